"""Describes the work of one round of cleaning, as a value that another process can receive (Kafka: LogToClean).

A job names files, offsets and limits and nothing else: the round works on inactive segments, which do not change, and leaves
`.cleaned` files beside them.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, NamedTuple, Self

import attrs

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.types import CompressionType, TopicPartition
from ...config import LogConfig
from ..indexes.index import IndexTail
from ..segments.segment import LogSegment
from .batch_filter import LOAD_FACTOR, LastRecord


class SourceSegment(NamedTuple):
    """An inactive segment: sizes are of what counts in the files."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    aborted_transactions: int
    """Entries of its transaction index."""


@attrs.frozen(kw_only=True)
class CleaningJob:
    """A round of cleaning of a log. The map is built from `first_dirty_offset` to `end_offset` (exclusive)."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[SourceSegment, ...]
    """Every segment from the first one on, ascending; those from `end_offset` on only say which transactions were aborted."""
    first_dirty_offset: int
    end_offset: int
    """The first segment boundary that the round must not pass."""
    last_records: tuple[tuple[int, LastRecord], ...]
    """By producer id."""
    now_ms: int
    """NO_TIMESTAMP: the clock is not trusted, so tombstones stay and get no delete horizon."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    compression_levels: tuple[tuple[CompressionType, int], ...]
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    map_bytes: int
    map_load_factor: float = LOAD_FACTOR
    max_bytes_per_second: int
    """Of reads and writes together; 0: no limit."""
    durable: bool
    """Whether the cleaned files are forced to the device before they are used."""

    @cached_property
    def segments_with_aborts(self) -> tuple[SourceSegment, ...]:
        """Those whose transaction index has entries: most often few, or none."""
        return tuple(segment for segment in self.segments if segment.aborted_transactions)

    @cached_property
    def producers_to_find(self) -> frozenset[int]:
        """Those whose last batch on the device the log does not remember."""
        return frozenset(producer_id for producer_id, last in self.last_records if last.synced_offset is None)

    @cached_property
    def ends(self) -> dict[int, int]:
        """By base offset of each segment where its offsets end, exclusive: at the next one, or with the round."""
        bases = [segment.base_offset for segment in self.segments]
        following = [*bases[1:], self.end_offset]
        return {base: max(base, min(end, self.end_offset)) for base, end in zip(bases, following, strict=True)}

    def config(self) -> LogConfig:
        """Return the configuration for a segment that the round writes."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_index_bytes=self.segment_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
        )

    def encode(self) -> bytes:
        """Encode the value as a line of JSON."""
        return json.dumps(attrs.asdict(self, recurse=False)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        fields: dict[str, Any] = json.loads(line)
        fields |= {
            "topic_partition": TopicPartition(*fields["topic_partition"]),
            "segments": tuple(SourceSegment(*segment) for segment in fields["segments"]),
            "last_records": tuple((producer_id, LastRecord(*last)) for producer_id, last in fields["last_records"]),
            "compression_levels": tuple((CompressionType(codec), level) for codec, level in fields["compression_levels"]),
        }
        return cls(**fields)


class CleanedState(NamedTuple):
    """A `.cleaned` segment that is complete: what the log needs to know to go on with it."""

    base_offset: int
    size: int
    max_timestamp: int
    offset_of_max_timestamp: int
    offset_tail: IndexTail
    time_tail: IndexTail
    aborted_transactions: int
    last_aborted_offset: int | None

    @classmethod
    def of(cls, segment: LogSegment) -> Self:
        return cls(
            segment.base_offset,
            segment.size,
            segment.max_timestamp,
            segment.offset_of_max_timestamp,
            segment.offset_index.tail,
            segment.time_index.tail,
            segment.transaction_index.entries,
            segment.transaction_index.last_offset,
        )

    def install(self, segment: LogSegment) -> None:
        """Let a segment that was just made have this state; its files are there, trimmed."""
        segment.size = self.size
        segment.max_timestamp, segment.offset_of_max_timestamp = self.max_timestamp, self.offset_of_max_timestamp
        segment.offset_index.tail, segment.time_index.tail = IndexTail(*self.offset_tail), IndexTail(*self.time_tail)
        for index in segment.indexes:
            index.file.create_bytes = index.size_in_bytes
        segment.transaction_index.take(self.aborted_transactions, self.last_aborted_offset)


class CleanedGroup(NamedTuple):
    """Consecutive segments, by base offset, and what came of them: None when the only one stays as it is."""

    base_offsets: list[int]
    cleaned: CleanedState | None
    bytes_read: int


class CleaningResult(NamedTuple):
    """The result of a round. `next_dirty_offset`: everything before it is clean now."""

    next_dirty_offset: int
    bytes_read: int
    bytes_written: int
    keys: int
    keyless_records: int
