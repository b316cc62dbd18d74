"""What the descriptions of all groups have in common whose assignments the server makes, whatever kind they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ....protocol.errors import RequestError
from ....protocol.kafka.authorization import ResourceType
from ..connections.in_turns import in_turns
from .door import Call

D = TypeVar("D")


class DescribeRequest(Protocol):
    """ConsumerGroupDescribe, ShareGroupDescribe, StreamsGroupDescribe."""

    group_ids: list[str]
    include_authorized_operations: bool


class DescribedGroup(Protocol):
    """A group in the answer."""

    error_code: int
    error_message: str | None
    group_id: str
    authorized_operations: int


G = TypeVar("G", bound=DescribedGroup)


async def described_groups(
    call: Call, body: DescribeRequest, describe: Callable[[str], D], shown: Callable[[Call, D], G], kind: type[G]
) -> list[G]:
    """What a request asks for. `describe` finds a group or raises RequestError, `shown` puts it into the answer's words. A
    group that is named twice is answered once."""
    answers = []
    async for group in in_turns(dict.fromkeys(body.group_ids)):
        try:
            answer = shown(call, describe(group))
        except RequestError as exc:
            answer = kind()
            answer.group_id, answer.error_code, answer.error_message = group, exc.code, exc.message
        else:
            if body.include_authorized_operations:
                answer.authorized_operations = call.authorized_operations(ResourceType.GROUP, group)
        answers.append(answer)
    return answers
