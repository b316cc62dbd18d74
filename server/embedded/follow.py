"""Following topics: record after record, with the place of a group that is committed as the program says.

The state of a follow is its caller's, and changes when records have come to the caller: what reads for it in the broker's
thread (`ReadOn`) keeps nothing, so a read that is cancelled on its way loses nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ...protocol.limits import MIB
from ...protocol.types import Isolation, Record, TopicPartition
from ..broker import Broker, FetchAnswer, FetchPartition, ReaderView

T = TypeVar("T")
R = TypeVar("R", bound="Followed")

LOOK_S: Final = 0.5
"""How often a follow that waits looks for partitions that have come."""
UNSTABLE_S: Final = 0.01
"""How long it waits for a transaction that may still change where its group is."""

Start = Literal["earliest", "latest"]
CommitOffsets = Callable[[str, Mapping[TopicPartition, int]], Awaitable[None]]
"""Of a group."""


@attrs.frozen(kw_only=True)
class Following:
    """The parameters of a follow: its topics, its group, its start and its limits."""

    topics: tuple[str, ...]
    group: str | None = None
    start: Start = "earliest"
    start_offset: int | None = None
    start_timestamp: int | None = None
    committed_only: bool = True
    max_bytes: int = MIB
    max_wait_s: float = math.inf

    def __attrs_post_init__(self) -> None:
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"start is earliest or latest, not {self.start!r}; start_offset and start_timestamp take numbers")
        if (self.start_offset is not None) + (self.start_timestamp is not None) + (self.start == "latest") > 1:
            raise ValueError("a follow starts in one place: start, start_offset or start_timestamp")
        if not self.topics:
            raise ValueError("there is no topic to follow")

    def describe(self, name: str) -> str:
        """The `repr` of a follow."""
        return f"{name}({', '.join(self.topics)}{'' if self.group is None else f', group={self.group}'})"


class Place(NamedTuple):
    """The place of a follow. `positions` are in the order in which it reads partitions next."""

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]


NOWHERE: Final = Place({}, {})


class Found(NamedTuple):
    """Records, and where the follow is behind them. None when nothing has come in its time."""

    records: Sequence[tuple[TopicPartition, Record]]
    place: Place


@attrs.frozen(eq=False, repr=False)
class ReadOn:
    """Reads for one follow, in the broker's thread."""

    core: Callable[[], Broker]
    following: Following

    async def __call__(self, place: Place) -> Found:
        """The records that come next; waits for the first, for at most `max_wait_s`. Raises RequestError."""
        await trio.lowlevel.checkpoint()
        deadline = trio.current_time() + self.following.max_wait_s
        while True:
            place = await self.placed(place)
            left_s = deadline - trio.current_time()
            found = await self._read(place, max(0.0, min(LOOK_S, left_s)))
            if found.records or (left_s <= 0 and found.place.positions == place.positions):
                return found
            place = found.place

    async def placed(self, place: Place) -> Place:
        """With the partitions that have come since. Raises RequestError for a topic that is not there (any more)."""
        topics = self.core().topics
        ids = {topic: topics.id_of(topic) for topic in self.following.topics}
        there = [TopicPartition(topic, number) for topic in ids for number in range(topics.partition_count(topic))]
        if ids == place.topic_ids and len(there) == len(place.positions):
            return place
        kept = {each: offset for each, offset in place.positions.items() if ids[each.topic] == place.topic_ids.get(each.topic)}
        return Place({**kept, **await self._starts([each for each in there if each not in kept], place)}, ids)

    async def _starts(self, partitions: Sequence[TopicPartition], place: Place) -> dict[TopicPartition, int]:
        """Return the start of each partition: the group's committed offset, or else the requested start. Partitions that are
        created later start at the beginning, so that the follow reads the records written meanwhile."""
        committed = await self._committed(partitions)
        starts = {}
        for each in partitions:
            offset = committed.get(each, -1)
            starts[each] = offset if offset >= 0 else await self._start(each, is_later=bool(place.topic_ids))
        return starts

    async def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.following.group is None:
            return {}
        while True:
            try:
                found = await self.core().offsets.fetch(self.following.group, partitions, require_stable=True)
            except RequestError as exc:
                if exc.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
                await trio.sleep(UNSTABLE_S)
            else:
                return {each: offset for each, offset, _ in found}

    async def _start(self, partition: TopicPartition, *, is_later: bool) -> int:
        following, log = self.following, self.core().reader.snapshot(partition)
        end = log.last_stable_offset if following.committed_only else log.high_watermark
        if is_later:
            return log.log_start_offset
        if following.start_offset is not None:
            return following.start_offset
        if following.start_timestamp is not None:
            found = await self.core().reader.offset_for_time(partition, following.start_timestamp, self._view.isolation)
            return found.offset if found.offset >= 0 else end
        return end if following.start == "latest" else log.log_start_offset

    @property
    def _view(self) -> ReaderView:
        return ReaderView(Isolation.READ_COMMITTED if self.following.committed_only else Isolation.READ_UNCOMMITTED)

    async def _read(self, place: Place, max_wait_s: float) -> Found:
        reader, max_bytes = self.core().reader, self.following.max_bytes
        questions = [FetchPartition(each, offset, max_bytes) for each, offset in place.positions.items()]
        answers = await reader.fetch(questions, max_bytes=max_bytes, max_wait_s=max_wait_s, view=self._view)
        unpacked = await reader.unpack(answers, questions, max_bytes=max_bytes)
        records: list[tuple[TopicPartition, Record]] = []
        waiting, served = {}, {}
        for question, answer, plain in zip(questions, answers, unpacked, strict=True):
            partition = question.topic_partition
            if isinstance(plain, RequestError):
                raise plain
            if plain is None:
                waiting[partition] = self._moved(answer, question.offset)
            elif plain.records:
                records += [(partition, record) for record in plain.records]
                served[partition] = plain.next_offset
            else:
                waiting[partition] = plain.next_offset
        return Found(records, Place({**waiting, **served}, place.topic_ids))

    def _moved(self, answer: FetchAnswer, offset: int) -> int:
        """Return the next offset after a deletion of records or a truncation. Raises RequestError for any other error."""
        assert answer.error is not None
        if answer.error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise answer.error
        log = self.core().reader.snapshot(answer.topic_partition)
        return log.log_start_offset if offset < log.log_start_offset else log.high_watermark


class Run(Protocol):
    """Runs an async function in the broker's thread."""

    async def __call__(self, function: Callable[[], Awaitable[T]], /) -> T: ...


async def directly(function: Callable[[], Awaitable[T]], /) -> T:
    """For who is there already."""
    return await function()


# ---- what the caller has --------------------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class Followed:
    """A record that was followed. `timestamp` in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    _follow: Any

    def __repr__(self) -> str:
        names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class Taken(Generic[R]):
    """The records that a follow has fetched, and the part that the program has got. Owner: the follow, which one task uses at a
    time."""

    def __init__(self, following: Following, make: Callable[..., R]) -> None:
        self._following = following
        self._make = make
        self.place = NOWHERE
        self._ahead: deque[tuple[TopicPartition, Record]] = deque()
        self._uncommitted: set[TopicPartition] = set()

    def put(self, found: Found) -> None:
        """This has come."""
        self._ahead.extend(found.records)
        self.place = found.place

    def next(self, follow: Any) -> R | None:
        """The next record; None: more has to be read."""
        if not self._ahead:
            return None
        partition, (offset, timestamp, key, value, headers) = self._ahead.popleft()
        self._uncommitted.add(partition)
        return self._make(*partition, offset, timestamp, key, value, headers, follow)

    @property
    def is_nowhere(self) -> bool:
        """Return whether the starting offsets are still undecided."""
        return self.place is NOWHERE

    def positions(self) -> dict[TopicPartition, int]:
        """Behind the records that the program has got."""
        ahead: dict[TopicPartition, int] = {}
        for partition, record in self._ahead:
            ahead.setdefault(partition, record.offset)
        return {**self.place.positions, **ahead}

    def to_commit(self, record: Followed | None) -> dict[TopicPartition, int]:
        """Raises InvalidRequestError without a group."""
        if self._following.group is None:
            raise InvalidRequestError("the follow has no group that could commit; follow with group=...")
        if record is not None:
            return {TopicPartition(record.topic, record.partition): record.offset + 1}
        positions = self.positions()
        return {each: positions[each] for each in self._uncommitted if each in positions}

    def committed(self, offsets: Mapping[TopicPartition, int], record: Followed | None) -> None:
        if record is None:
            self._uncommitted -= offsets.keys()


class FollowedRecord(Followed):
    """A record, and its place in a group."""

    async def commit(self) -> None:
        """The group is done with this record and those before it in its partition, and goes on behind it. Raises
        RequestError."""
        await self._follow.commit(self)


class Follow:
    """The records of topics as they come: `async for record in broker.follow(...)`. One task uses it at a time. What is read
    ahead is one read, of at most `max_bytes` or 2,000 records; a cancellation ends a read, and loses nothing."""

    def __init__(self, read_on: ReadOn, commit: CommitOffsets, run: Run = directly) -> None:
        self.read_on = read_on
        self._commit = commit
        self._run = run
        self._taken = Taken(read_on.following, FollowedRecord)

    def __repr__(self) -> str:
        return self.read_on.following.describe(type(self).__name__)

    def through(self, run: Run) -> Follow:
        """The same for a program that is not in the broker's thread: `run` has functions run there."""
        return Follow(self.read_on, self._commit, run)

    async def keep(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, in the broker's thread. Raises RequestError."""
        await self._commit(str(self.read_on.following.group), offsets)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FollowedRecord:
        while (record := self._taken.next(self)) is None:
            found = await self._run(partial(self.read_on, self._taken.place))
            self._taken.put(found)
            if not found.records:
                raise StopAsyncIteration
        return record

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition, after the last record that the program has got. Before the first record
        this call decides the starting offsets. `commit` stores these offsets, and `Transaction.commit_offsets` accepts them.
        Raises RequestError."""
        if self._taken.is_nowhere:
            self._taken.put(Found((), await self._run(partial(self.read_on.placed, self._taken.place))))
        return self._taken.positions()

    async def commit(self, record: FollowedRecord | None = None) -> None:
        """The group is done with all records that the program has got, or with those up to `record` in its partition: the next
        follow of the group goes on behind them. What was not committed when the program ends comes again (at least once).
        Raises RequestError: among others when the group has members, whose place it is then to commit."""
        if offsets := self._taken.to_commit(record):
            await self._run(partial(self.keep, offsets))
            self._taken.committed(offsets, record)
