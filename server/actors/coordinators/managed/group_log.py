"""What a coordinator of groups whose assignments the server makes has to do with the log and the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import trio

from .....protocol.errors import ErrorCode, RequestError
from ....groups.classic import STORE_ERRORS
from ....groups.consumer_values import MemberTimes
from ....logs.configs import GroupConfigs
from ...disk.task_errors import TaskErrors
from ..alarm import Alarm, deadline_now_ms
from ..offsets_topic import OffsetsTopic, RawRecord

K_co = TypeVar("K_co", covariant=True)


class Deadlines(Protocol[K_co]):
    """Groups with members that come due."""

    @property
    def next_deadline_ms(self) -> int | None: ...

    def due(self, now_ms: int, /) -> Iterable[K_co]: ...


async def expire_in_time(
    alarm: Alarm, groups: Deadlines[K_co], expire: Callable[[K_co], Awaitable[None]], errors: TaskErrors
) -> None:
    """Begin `expire`, which raises nothing, for everything that comes due. Cancelled: a record that is being written is."""
    async with trio.open_nursery() as nursery:

        async def step() -> None:
            await alarm.wait(groups.next_deadline_ms)
            for key in groups.due(deadline_now_ms()):
                nursery.start_soon(expire, key)

        await errors.repeat("managed-groups", step)


def member_times(configs: GroupConfigs, kind: str, group: str) -> MemberTimes:
    """What members of a group are told, and held to."""
    config = configs.of_group(group)
    return MemberTimes(config[f"{kind}.heartbeat.interval.ms"], config[f"{kind}.session.timeout.ms"])


def check_serving(topic: OffsetsTopic, group: str, *, is_closed: bool) -> None:
    """Raises RequestError: NOT_COORDINATOR, after which clients look for a coordinator, INVALID_GROUP_ID."""
    if is_closed:
        raise RequestError(f"group {group!r}: the coordinator stops", ErrorCode.NOT_COORDINATOR)
    try:
        topic.check_served(group)
    except RequestError as exc:
        code = exc.code if exc.code is ErrorCode.INVALID_GROUP_ID else ErrorCode.NOT_COORDINATOR
        raise RequestError(exc.message, code) from exc


async def store_records(
    topic: OffsetsTopic,
    group: str,
    records: Sequence[RawRecord],
    on_stored: Callable[[], None],
    *,
    replaces_classic: bool = False,
) -> None:
    """`OffsetsTopic.store`, not to be cancelled, with the errors that members understand."""
    try:
        with trio.CancelScope(shield=True):
            await topic.ensure()
            await topic.store(group, records, on_stored, replaces_classic=replaces_classic)
    except RequestError as exc:
        code = exc.code if isinstance(exc.code, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        raise RequestError(
            f"group {group!r}: what has changed could not be stored: {exc.message}", STORE_ERRORS.get(code, code)
        ) from exc
