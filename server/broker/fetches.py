"""Fetch values: the request to the reader, its result, and the progress of a fetch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import attrs

from ...protocol.errors import RequestError
from ...protocol.types import Isolation, TimeRange, TopicPartition
from ..logs.gap_passes import GapPasses
from ..partitions.partition import PartitionActor
from ..storage.errors import OffsetInGapError
from ..storage.lookups.fetch import FetchedRecords


class FetchPartition(NamedTuple):
    """Read `topic_partition` from `offset`, about `max_bytes` of it. With `times` the batches that can hold records of that
    range come, from `offset` on or, with NO_OFFSET, from the log start; FetchedRecords says where the next page goes on."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    times: TimeRange | None = None


class ReaderView(NamedTuple):
    """The isolation level of a reader, and whether gaps are skipped or refused; None: the topic's gap.policy decides."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    skip_gaps: bool | None = None


DEFAULT_VIEW: Final = ReaderView()


class FetchAnswer(NamedTuple):
    """The records read from a partition, or the error."""

    topic_partition: TopicPartition
    fetched: FetchedRecords | None
    error: RequestError | None


def note_gaps(passes: GapPasses, client_id: str, host: str, answers: Iterable[FetchAnswer]) -> None:
    """A client is told these answers: what it passes over, or stands before, is noted."""
    for topic_partition, fetched, error in answers:
        if fetched is not None:
            if fetched.passed:
                passes.passed(f"client {client_id!r} at {host}", topic_partition, fetched.passed)
        elif isinstance(error, OffsetInGapError) and error.by_policy:
            passes.refused(f"client {client_id!r} at {host}", error)


@attrs.define(eq=False, repr=False)
class Fetched:
    """The progress of one fetch. Owner: the fetch."""

    left: int
    """How many bytes it may still answer."""
    answers: list[FetchAnswer] = attrs.field(factory=list)
    size: int = 0
    is_enough: bool = False
    """Whether waiting for more is pointless, however little there is."""
    read: list[tuple[PartitionActor, int]] = attrs.field(factory=list)
    """Whose readers are handed how many bytes, once it is answered."""

    def room(self, asked: FetchPartition) -> int:
        """Return the largest number of bytes that may be read from a partition."""
        return max(0, min(asked.max_bytes, self.left))

    def add(self, topic_partition: TopicPartition, found: FetchedRecords) -> None:
        """This was read of it."""
        self.answers.append(FetchAnswer(topic_partition, found, None))
        if size := len(found.records):
            self.size += size
            self.left -= size
            self.is_enough = self.is_enough or found.ends_segment

    def fail(self, topic_partition: TopicPartition, error: RequestError) -> None:
        """It cannot be read."""
        self.answers.append(FetchAnswer(topic_partition, None, error.as_answer()))
        self.is_enough = True

    def count(self) -> None:
        """It is answered."""
        for actor, size in self.read:
            actor.fetched_bytes += size
