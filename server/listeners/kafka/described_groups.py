"""The common code of responses that describe groups whose assignments the server computes, for every kind of group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from ....protocol.errors import RequestError
from ....protocol.kafka.authorization import ResourceType
from ...broker import by_first
from ...loop.procedures import in_turns
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
    """Describe the requested groups. `describe` finds a group or raises RequestError, `shown` converts it for the response. A
    group named twice appears once."""
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


Partitions = Iterable[tuple[bytes, int]]
"""(topic id, number)."""


def named_topics(call: Call, partitions: Partitions) -> Iterator[tuple[bytes, str, list[int]]]:
    """(topic id, name, partition numbers) for each topic, without deleted ones, which have no name."""
    for topic_id, numbers in by_first(partitions).items():
        try:
            yield topic_id, call.broker.topics.named(topic_id), numbers
        except RequestError:
            continue
