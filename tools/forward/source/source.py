"""The interface of a source: topics, ranges, records in order, and a store for the link's offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import attrs

from ....protocol.types import Record, TopicPartition
from ...client.procedures.groups import CommittedOffset
from ...client.procedures.topics import AtTime


class OffsetRange(NamedTuple):
    """Offsets that can be read, `end_offset` exclusive, and how many bytes they take."""

    start_offset: int
    end_offset: int
    size_bytes: int


@attrs.frozen(kw_only=True)
class SourceTopic:
    """A topic as it is at one moment. A topic that is made anew has another id."""

    name: str
    topic_id: str
    config: Mapping[str, str]
    partitions: Mapping[int, OffsetRange]


class Gap(NamedTuple):
    """Offsets that nobody can read any more; both are inclusive."""

    first_offset: int
    last_offset: int

    @property
    def offsets(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}"


class Piece(NamedTuple):
    """Records of a partition in order, and where it goes on behind them. `gap` lies before the first."""

    partition: TopicPartition
    records: Iterator[Record]
    next_offset: int
    gap: Gap | None


class Source(Protocol):
    """Blocking. Owner: the thread of one link.

    Raises SourceFailedError when the source cannot be reached, TopicStoppedError when a topic's records cannot be read on.
    """

    def node(self) -> str:
        """Return the source's node name, for names upstream."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, SourceTopic]:
        """All topics, or those of the names that are there."""

    def locate(self, partitions: Iterable[TopicPartition], start: AtTime) -> dict[TopicPartition, int]:
        """The first offsets at or after a time."""

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that are committed for this group."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note how far it is."""

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of the records at these offsets, those that are there."""

    def read(self, offsets: Mapping[TopicPartition, int], ranks: Mapping[str, int]) -> None:
        """Read these partitions from these offsets on, topics of the lowest rank first."""

    def next(self, timeout_s: float) -> Piece | None:
        """Return the next piece; None when none came in time."""

    @property
    def is_behind(self) -> bool:
        """Return whether more records are known to exist."""

    @property
    def finished_s(self) -> float | None:
        """Return the monotonic time in seconds at which no records were left; None: more exist."""

    def close(self) -> None:
        """No further calls."""
