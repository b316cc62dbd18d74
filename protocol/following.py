"""Following topics, for embedded brokers and clients: record by record, with the committed offsets of a group.

The caller owns the state of a follow, and the state changes when records have reached the caller. A `Reader` keeps nothing,
so a cancelled read loses nothing. How records are read is the reader's: `server.embedded.follow`, `tools.client.follow`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import attrs

from .errors import InvalidRequestError
from .limits import MIB
from .types import Record, TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound="Followed")

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
            raise ValueError(
                f"start is earliest or latest, not {self.start!r}. Use start_offset or start_timestamp for numbers"
            )
        if (self.start_offset is not None) + (self.start_timestamp is not None) + (self.start == "latest") > 1:
            raise ValueError("a follow has one start: give start, start_offset or start_timestamp")
        if not self.topics:
            raise ValueError("no topic to follow")

    def describe(self, name: str) -> str:
        """The `repr` of a follow."""
        return f"{name}({', '.join(self.topics)}{'' if self.group is None else f', group={self.group}'})"


class Place(NamedTuple):
    """The place of a follow. `positions` are in the order in which it reads partitions next."""

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]


NOWHERE: Final = Place({}, {})


class Found(NamedTuple):
    """Records, and the offset after the last of them. None when nothing came in time."""

    records: Sequence[tuple[TopicPartition, Record]]
    place: Place


class Reader(Protocol):
    """Reads for one follow."""

    @property
    def following(self) -> Following: ...

    async def __call__(self, place: Place) -> Found:
        """Return the next records; wait for the first, for at most `max_wait_s`. Raises RequestError."""

    async def placed(self, place: Place) -> Place:
        """Add new partitions. Raises RequestError for a topic that does not exist (any more)."""


class Run(Protocol):
    """Runs an async function in the thread of the broker or the client."""

    async def __call__(self, function: Callable[[], Awaitable[T]], /) -> T: ...


async def directly(function: Callable[[], Awaitable[T]], /) -> T:
    """Run a function directly: the `Run` of a caller in the right thread."""
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
            raise InvalidRequestError("a follow without a group cannot commit. Give group=...")
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
        """Mark this record and the earlier ones of its partition as done: the group continues after it. Raises RequestError."""
        await self._follow.commit(self)


class Follow:
    """The records of topics as they come: `async for record in broker.follow(...)`. One task uses it at a time.

    It reads ahead one read, of at most `max_bytes`; in an embedded broker, also of at most 2,000 records. A cancellation ends a
    read, and loses nothing."""

    def __init__(self, read_on: Reader, commit: CommitOffsets, run: Run = directly) -> None:
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
        """Mark all returned records as done, or those up to `record` in its partition: the next follow of the group continues
        after them. Uncommitted records come again after the program ends (at least once). Raises RequestError: among others
        when the group has members, because then only they may commit.
        """
        if offsets := self._taken.to_commit(record):
            await self._run(partial(self.keep, offsets))
            self._taken.committed(offsets, record)


class BlockingCaller(Protocol):
    """Runs async functions to their end."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T: ...


class BlockingFollowedRecord(Followed):
    """A record, and its place in a group."""

    def commit(self) -> None:
        """Mark this record and the earlier ones of its partition as done: the group continues after it. Raises RequestError."""
        self._follow.commit(self)


class BlockingFollow:
    """The records of topics as they come: `for record in broker.follow(...)`. One thread uses it at a time. It reads ahead as
    `Follow` does."""

    def __init__(self, follow: Follow, caller: BlockingCaller) -> None:
        self._read_on = follow.read_on
        self._commit = follow.keep
        self._caller = caller
        self._taken = Taken(follow.read_on.following, BlockingFollowedRecord)

    def __repr__(self) -> str:
        return self._read_on.following.describe(type(self).__name__)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BlockingFollowedRecord:
        while (record := self._taken.next(self)) is None:
            place = self._taken.place
            found: Found = self._caller.call(lambda place=place: self._read_on(place))  # type: ignore[misc]
            self._taken.put(found)
            if not found.records:
                raise StopIteration
        return record

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition, after the last record that the program has got. Before the first record
        this call decides the starting offsets. `commit` stores these offsets, and `BlockingTransaction.commit_offsets` accepts
        them. Raises RequestError."""
        if self._taken.is_nowhere:
            self._taken.put(Found((), self._caller.call(lambda: self._read_on.placed(self._taken.place))))
        return self._taken.positions()

    def commit(self, record: BlockingFollowedRecord | None = None) -> None:
        """Mark all returned records as done, or those up to `record` in its partition: the next follow of the group continues
        after them. Uncommitted records come again after the program ends (at least once). Raises RequestError: among others
        when the group has members, because then only they may commit.
        """
        if offsets := self._taken.to_commit(record):
            self._caller.call(lambda: self._commit(offsets))
            self._taken.committed(offsets, record)
