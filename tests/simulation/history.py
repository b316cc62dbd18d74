"""What clients did and were told, in the order in which it happened: what the checker looks at.

A call is two events, or an event that says when it began. Records are known by ids that nobody uses twice. `loading` makes the
same events of what real clients have noted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import attrs
from triolog.protocol.types import TopicPartition

KEY_MARK: Final = "#"
TOMBSTONE_MARK: Final = "!"
ON_ARRIVAL: Final = -1
"""Timestamp of a sent record that the server stamps."""


def key_of(record: str) -> str | None:
    """The key of a record, from its id."""
    _, mark, key = record.rpartition(KEY_MARK)
    return key.rstrip(TOMBSTONE_MARK) if mark else None


def is_tombstone(record: str) -> bool:
    return record.endswith(TOMBSTONE_MARK)


class Sent(NamedTuple):
    """A record on its way. Its id can say that it has a key (`a:7#k3`), and that it deletes what has it (`a:8#k3!`)."""

    id: str
    timestamp: int
    key: str = ""
    """Where a topic is compacted and the id does not say it."""


class Found(NamedTuple):
    """A record as it was read."""

    offset: int
    id: str
    timestamp: int


@attrs.frozen(kw_only=True)
class Event:
    """`at_ms`: milliseconds since the world began, with fractions where it is the real one. `who`: the client."""

    at_ms: float
    who: str


@attrs.frozen(kw_only=True)
class Send(Event):
    """Records leave, in this order; `producer` is who has to keep it: another one after each new identity."""

    partition: TopicPartition
    producer: str
    records: tuple[Sent, ...]
    transaction: str | None = None


@attrs.frozen(kw_only=True)
class Acknowledged(Event):
    """The first of the records is at `base_offset`, the others behind it."""

    partition: TopicPartition
    ids: tuple[str, ...]
    base_offset: int


@attrs.frozen(kw_only=True)
class GivenUp(Event):
    """The client knows no answer, or was told of an error. `is_refused`: the records are nowhere."""

    ids: tuple[str, ...]
    error: str
    is_refused: bool = False


@attrs.frozen(kw_only=True)
class Introduced(Event):
    """A transactional producer got its epoch: those of lower ones are fenced, whoever hears of it first."""

    transactional_id: str
    producer: str
    producer_id: int
    epoch: int


@attrs.frozen(kw_only=True)
class Ended(Event):
    """A transaction was committed (True), aborted (False), or nobody knows (None)."""

    transaction: str
    is_committed: bool | None


@attrs.frozen(kw_only=True)
class Polled(Event):
    """One fetch of a reader that was at `position`, and is at `next_position` now."""

    partition: TopicPartition
    is_committed: bool
    position: int
    records: tuple[Found, ...]
    next_position: int
    transaction: str | None = None
    """Whose input this was."""
    group: str | None = None
    """Of whom the reader is a member, who commits what was read."""


@attrs.frozen(kw_only=True)
class Moved(Event):
    """A reader goes on elsewhere, on purpose. `is_start`: where the log begins, as it was told."""

    partition: TopicPartition
    position: int
    is_start: bool = False


@attrs.frozen(kw_only=True)
class CommitsOffset(Event):
    group: str
    partition: TopicPartition
    offset: int
    transaction: str | None = None


@attrs.frozen(kw_only=True)
class OffsetCommitted(Event):
    """The answer to the last of the client's commits for this partition. None: there was none."""

    group: str
    partition: TopicPartition
    offset: int
    is_kept: bool | None


@attrs.frozen(kw_only=True)
class OffsetFetched(Event):
    """`offset` -1: there is none. `begun_ms`: when it was asked; None: at this moment, too."""

    group: str
    partition: TopicPartition
    offset: int
    begun_ms: float | None = None


@attrs.frozen(kw_only=True)
class LookedUp(Event):
    """The answer to offsets-for-times; -1 for none. `begun_ms`: when it was asked. `found_timestamp` None: not told."""

    partition: TopicPartition
    timestamp: int
    begun_ms: float
    offset: int
    found_timestamp: int | None


@attrs.frozen(kw_only=True)
class Trims(Event):
    """Records below an offset are to be deleted."""

    partition: TopicPartition
    before_offset: int


@attrs.frozen(kw_only=True)
class Expires(Event):
    """Segments whose records are all older than this may be gone."""

    partition: TopicPartition
    before_timestamp: int


@attrs.frozen(kw_only=True)
class Compacts(Event):
    """Of records of a key the last one has to be there."""

    partition: TopicPartition


@attrs.frozen(kw_only=True)
class Trimmed(Event):
    """Records below an offset are deleted: nobody sees them any more."""

    partition: TopicPartition
    before_offset: int


@attrs.frozen(kw_only=True)
class Made(Event):
    """A topic is there, with what was configured for it."""

    topic: str
    config: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Configures(Event):
    """A topic is about to have another configuration, this one, whole. Until the answer it may have either."""

    topic: str
    config: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Configured(Configures):
    """It has this one and no other, from now on."""


@attrs.frozen(kw_only=True)
class Deleted(Event):
    """The deletion of a topic was answered. A topic that is created under its name afterwards is another one."""

    topic: str


@attrs.frozen(kw_only=True)
class Seen(Event):
    """A client that asked at `begun_ms` was told that the topic exists, or what it holds."""

    topic: str
    begun_ms: float


@attrs.frozen(kw_only=True)
class ClockMoved(Event):
    """The wall clock, against the time since the world began."""

    ms: int


@attrs.frozen(kw_only=True)
class ClockChecked(Event):
    """The server checks the wall clock from here on: by a jump no record becomes older."""


@attrs.frozen(kw_only=True)
class Lost(Event):
    """What was not on the device may have gone: a power cut, or a log directory or a sync that failed.

    `at_ms`: when; who was on the way hears of answers from before even later. `window_ms`: what was acknowledged longer ago has
    to be there; None: of that nothing is said. As the server knew: `synced`, below which offset everything is on the device;
    `oldest_ms`, how long ago the oldest byte was written that is not. `partitions`: which are concerned; None: all.
    """

    window_ms: float | None
    synced: Mapping[TopicPartition, int]
    oldest_ms: Mapping[TopicPartition, float]
    partitions: tuple[TopicPartition, ...] | None = None


@attrs.frozen(kw_only=True)
class Survived(Event):
    """What is in a log that was opened for the first time since something may have been lost, from the offset on up to which it
    was synced; where ends of transactions are; and which offsets it says are missing."""

    partition: TopicPartition
    records: Mapping[int, str]
    markers: tuple[int, ...] = ()
    gaps: tuple[range, ...] = ()
    end_offset: int = 0
    """Where the log ends, at least behind the last of `records`."""


@attrs.frozen(kw_only=True)
class Torn(Event):
    """Which offsets a log says are missing, at a start after a power cut that nobody may have lost anything by: of batches that
    nobody was told of one may be gone and the next one there."""

    partition: TopicPartition
    gaps: tuple[range, ...]


@attrs.frozen(kw_only=True)
class Damaged(Event):
    """Somebody damaged the batch of these offsets. They may be gone, and nothing else."""

    partition: TopicPartition
    first_offset: int
    next_offset: int

    @property
    def offsets(self) -> range:
        return range(self.first_offset, self.next_offset)


@attrs.frozen(kw_only=True)
class StartForgotten(Event):
    """Somebody took away the file that says for the second time where a log begins. After a clean stop that is where its files
    begin: what the checkpoint alone says could hide records."""

    partition: TopicPartition


@attrs.frozen(kw_only=True)
class Refused(Event):
    """A reader was told that what it asked for is damaged, and goes on behind it."""

    partition: TopicPartition
    is_committed: bool
    offset: int


@attrs.frozen(kw_only=True)
class Wrong(Event):
    """What somebody who knows more than a client sees to be wrong on the spot."""

    kind: str
    detail: str


@attrs.frozen(kw_only=True)
class Cut(Event):
    """A life has ended in front of an operation of the disk, after so many changes. Empty: it was over before."""

    changes: int
    operation: str


@attrs.frozen(kw_only=True)
class Happened(Event):
    """Something that is nobody's promise: a kill, a cut, a move of the clock."""

    what: str


@attrs.frozen(kw_only=True)
class Stored(Event):
    """All that a reader finds in a partition when everything is over."""

    partition: TopicPartition
    is_committed: bool
    start_offset: int
    end_offset: int
    records: tuple[Found, ...]
    size_bytes: int = 0
    markers: tuple[tuple[int, int], ...] = ()
    """Offset and timestamp of each end of a transaction: lookups by time find them too, as Kafka's do."""


@attrs.define(eq=False)
class History:
    events: list[Event] = attrs.field(factory=list)
    paths: dict[str, str] = attrs.field(factory=dict)
    """Directories of this run, which errors name, and what stands for them in its lines."""

    def add(self, event: Event) -> None:
        self.events.append(event)

    def lines(self) -> Iterable[str]:
        for event in self.events:
            line = repr(event)
            for path, name in self.paths.items():
                line = line.replace(path, name)
            yield line

    def digest(self) -> str:
        """The same for two histories that are alike in everything."""
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode())
        return digest.hexdigest()
