"""Reading partitions without a socket: which fetch comes next, and which batches an answer holds.

The fetch offset of a partition runs ahead of what the program has seen; a seek starts a new generation, and answers to
fetches of an older one are dropped. What is left out: control batches, under read_committed the batches of aborted
transactions, records below the offset asked for (a fetch begins with the whole batch that holds it), records from the end
offset on, of a range of times those outside of it, and a last batch that a limit cut short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode, RecordTooLargeError, RequestError
from ...protocol.native.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Gaps, end_of
from ...protocol.records.batch import BatchHeader, check_batch, iter_batches
from ...protocol.records.record import CommittedFilter, iter_records
from ...protocol.types import Isolation, Record, TimeRange, TopicPartition
from .config import ConsumerConfig
from .procedures.topics import Procedure


class FetchedBatch(NamedTuple):
    """A record batch as it was stored. `first_offset`, `end_offset` (exclusive) and `times` bound the records that were asked
    for."""

    partition: TopicPartition
    header: BatchHeader
    data: memoryview
    first_offset: int
    end_offset: int | None
    times: TimeRange | None = None

    @property
    def next_offset(self) -> int:
        """Return the next offset to read after this batch."""
        return self.header.next_offset if self.end_offset is None else min(self.header.next_offset, self.end_offset)

    def records(self) -> list[Record]:
        """The records asked for, decompressed."""
        header = self.header
        records = iter_records(self.data, header)
        if self.times is not None:
            records = filter(self._is_in_time, records)
        if header.base_offset >= self.first_offset and (self.end_offset is None or header.next_offset <= self.end_offset):
            return list(records)
        end_offset = header.next_offset if self.end_offset is None else self.end_offset
        return [record for record in records if self.first_offset <= record.offset < end_offset]

    def _is_in_time(self, record: Record) -> bool:
        return self.times is None or self.times.holds(record.timestamp)


class _Partition:
    __slots__ = (
        "end_offset",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_range_done",
        "name",
        "start_offset",
        "times",
    )

    def __init__(
        self, name: TopicPartition, fetch_offset: int, end_offset: int | None, times: TimeRange | None, generation: int
    ) -> None:
        self.name = name
        self.times = times
        self.is_range_done = False
        self.start_offset = fetch_offset
        self.fetch_offset = fetch_offset
        self.end_offset = end_offset
        self.generation = generation
        self.high_watermark: int | None = None

    @property
    def is_finished(self) -> bool:
        return self.is_range_done or (self.end_offset is not None and self.fetch_offset >= self.end_offset)

    def question(self, max_bytes: int) -> FetchPartition:
        """Return the partition's entry in the next fetch."""
        times = self.times
        if times is None:
            return FetchPartition(*self.name, self.fetch_offset, max_bytes)
        return FetchPartition(*self.name, self.fetch_offset, max_bytes, times.start, end_of(times))


class Fetch(NamedTuple):
    """A request, and the generations of the partitions it reads."""

    request: FetchRequest
    generations: dict[TopicPartition, int]


class Reading:
    """The partitions of one consumer and how far they are fetched. Owner: the consumer."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._lost: dict[TopicPartition, RequestError] = {}
        self._generation = 0
        self._turn = 0

    @property
    def partitions(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return list(self._partitions)

    @property
    def is_finished(self) -> bool:
        """Return whether everything up to the end offsets has been fetched; True without any partition."""
        return not self._lost and all(partition.is_finished for partition in self._partitions.values())

    @property
    def lost(self) -> dict[TopicPartition, RequestError]:
        """Partitions whose offset was out of range, and the server's words; `seek` says where they go on."""
        return self._lost

    def assign(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], times: TimeRange | None = None
    ) -> None:
        """Read these partitions and no others, from `starts` up to `ends` (exclusive) where there is one; with `times` only the
        records of that range, and up to where it ends."""
        self._partitions = {}
        self._lost = {}
        self._generation += 1
        for name, start in starts.items():
            self._partitions[name] = _Partition(name, start, ends.get(name), times, self._generation)

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Go on from another offset; the end stays."""
        partition = self._partitions[name]
        self._generation += 1
        partition.start_offset = partition.fetch_offset = offset
        partition.is_range_done = False
        partition.generation = self._generation
        self._lost.pop(name, None)

    def stop_at(self, name: TopicPartition, end_offset: int | None) -> None:
        """Move the end; None: there is none."""
        self._partitions[name].end_offset = end_offset

    def position(self, name: TopicPartition) -> int:
        """Return the next offset to read once the caller has everything fetched, also after offsets that were left out."""
        partition = self._partitions[name]
        if partition.end_offset is None:
            return partition.fetch_offset
        return min(partition.fetch_offset, max(partition.end_offset, partition.start_offset))

    def high_watermark(self, name: TopicPartition) -> int | None:
        """As of the last answer; None before the first."""
        return self._partitions[name].high_watermark

    def next_fetch(self) -> Fetch | None:
        """The next request; None when there is nothing to fetch. Partitions take turns at being the first."""
        wanted = [part for part in self._partitions.values() if not part.is_finished and part.name not in self._lost]
        if not wanted:
            return None
        self._turn += 1
        turn = self._turn % len(wanted)
        config = self._config
        request = FetchRequest(
            tuple(part.question(config.partition_max_bytes) for part in wanted[turn:] + wanted[:turn]),
            config.max_wait_ms,
            config.min_bytes,
            config.max_bytes,
            config.isolation,
            gaps=None if config.skip_gaps is None else Gaps.SKIP if config.skip_gaps else Gaps.REFUSE,
        )
        return Fetch(request, {part.name: part.generation for part in wanted})

    def accept(self, fetch: Fetch, response: FetchResponse) -> Iterator[FetchedBatch]:
        """The batches of an answer, in order; moves the fetch offset behind each as it is taken.

        Raises a partition's error, except out of range, which is kept in `lost`, and CorruptRecordError.
        """
        for entry in response.partitions:
            name = TopicPartition(entry.topic, entry.partition)
            partition = self._partitions.get(name)
            if partition is None or partition.generation != fetch.generations.get(name):
                continue
            if entry.error is None:
                partition.high_watermark = entry.high_watermark
                yield from self._read(partition, entry)
            elif entry.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._lost[name] = entry.error
            else:
                raise entry.error

    def _read(self, partition: _Partition, entry: FetchPartitionResponse) -> Iterator[FetchedBatch]:
        data = entry.records
        assert not isinstance(data, tuple), "asked for batches, got records"
        asked = partition.fetch_offset
        is_whole = not data
        if not data and entry.next_offset > asked:
            partition.fetch_offset = entry.next_offset
        committed = CommittedFilter(entry.aborted)
        for header, batch in iter_batches(data):
            is_whole = True
            if header.last_offset < asked or partition.is_finished:
                continue
            if self._config.check_crcs:
                check_batch(batch, header)
            partition.fetch_offset = header.next_offset
            if not committed.leaves_out(header, batch) and header.records_count:
                yield FetchedBatch(partition.name, header, batch, asked, partition.end_offset, partition.times)
        if partition.times is not None:
            partition.fetch_offset = max(partition.fetch_offset, entry.next_offset)
            partition.is_range_done = bool(entry.range_ended)
        if not is_whole:
            raise RecordTooLargeError(
                f"{len(data)} bytes of {partition.name} at offset {asked} hold no whole batch. Raise partition_max_bytes"
            )


def read_once(
    starts: Mapping[TopicPartition, int],
    times: TimeRange | None = None,
    *,
    isolation: Isolation,
    max_bytes: int,
    max_wait_s: float,
) -> Procedure[tuple[Reading, list[FetchedBatch]]]:
    """Fetch once from these offsets: the batches, and a `Reading` that has the next offsets, and the partitions whose offset
    was out of range. Raises the error of a partition."""
    config = ConsumerConfig(
        max_wait_ms=round(max_wait_s * 1000), max_bytes=max_bytes, partition_max_bytes=max_bytes, isolation=isolation
    )
    reading = Reading(config)
    reading.assign(dict(starts), {}, times)
    fetch = reading.next_fetch()
    assert fetch is not None, "nothing to read"
    response = yield fetch.request
    return reading, list(reading.accept(fetch, response))
