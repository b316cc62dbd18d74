"""The reader of the data source `triolog_segments`. Batch reads only.

The driver plans: it lists the directories (or leases the files of a running server), turns bounds into offsets and cuts splits
along the indexes. Tasks read their splits by path, so every executor needs the directory under the same name. No server is
asked, but for the lease.

The call `lease_segments` gives the files of a running server names of their own, which neither retention nor compaction takes
away before the lease ends. A task renews the lease when it begins and while it reads; a lease that nobody renews ends after
`leaseMs`, so a task that waits longer for its turn finds no files (SegmentGoneError). Nobody ends it earlier: Spark does not
report the end of a batch read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ....protocol.limits import INT64_MAX
from ....protocol.native.messages import LeasePartitionResponse
from ....protocol.types import NO_OFFSET, TopicPartition
from ...segments.segment_log import PartitionLog, SegmentFile, read_logs
from ...segments.segment_reader import SegmentRead, read_split
from ...segments.segment_times import first_offset_at
from ...segments.segment_transactions import committed_range, last_stable_offset
from ...segments.splits import LogRange, SegmentSplit, SplitLimits, pack_splits, plan_splits
from ..carried import Carried
from ..one_line import one_line
from ..sink.worker import settle
from ..source.bounds import PartitionRange
from ..source.broker import Broker, Question, TopicMissingError
from ..source.options import Assigned, Matching, ReadOptions, Subscribed
from ..source.reader import OffsetRange, resolve
from ..source.schema import null_headers
from .segments_options import SERVER, SegmentOptions

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class SegmentTask(InputPartition):
    """Splits of one partition, ascending: what one task reads."""

    splits: tuple[SegmentSplit, ...]
    lease: SegmentLease | None = None


class SegmentsReader(Carried, DataSourceReader):
    """Reads what lay in the files when it was planned. Holds plain data: it is pickled. It takes no filters, for
    `reader.BatchReader`'s reason."""

    def __init__(self, options: SegmentOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @one_line()
    def partitions(self) -> list[InputPartition]:
        """The splits, packed into tasks.

        OptionError for a bound that does not fit, TopicMissingError, DataLossError, LogInUseError, LogDirectoryError,
        DamagedSegmentError with mode FAILFAST, OSError; BrokerUnavailableError and RequestError of a lease.
        """
        options = self._options
        lease, logs = self._logs()
        known = {name: PartitionRange(log.log_start_offset, _readable_end(log, options)) for name, log in logs.items()}
        times = FileTimes(logs, options)
        limits = SplitLimits(
            split_bytes=options.read.split_bytes,
            min_partitions=options.read.min_partitions or 1,
            max_records=options.read.max_records_per_partition,
        )
        ranges = [self._log_range(logs[part.name], part) for part in resolve(times, options.read, known)]
        return [SegmentTask(task, lease) for task in pack_splits(plan_splits(ranges, limits), limits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; none for the partition that Spark makes up where there was nothing to plan."""
        settle()
        if not isinstance(partition, SegmentTask):
            return
        options = self._options.read
        read = SegmentRead(
            columns=self._columns,
            mode=self._options.mode,
            check_crcs=options.check_crcs,
            fail_on_data_loss=options.fail_on_data_loss,
            max_records=options.arrow_max_records,
        )
        keep = partition.lease.keeper() if partition.lease is not None else _nothing
        with one_line():
            for split in partition.splits:
                yield from map(null_headers, read_split(split, read, between_chunks=keep))

    def _logs(self) -> tuple[SegmentLease | None, dict[TopicPartition, PartitionLog]]:
        options, selection = self._options, self._options.read.selection
        if options.snapshot == SERVER:
            lease, leased = lease_logs(options.read, options.lease_ms)
            return lease, _with_stable_ends(leased, options)
        topics = None
        if isinstance(selection, Assigned):
            topics = frozenset(partition.topic for partition in selection.partitions)
        elif isinstance(selection, Subscribed):
            topics = frozenset(selection.topics)
        logs = read_logs(options.paths, topics)
        found = {log.topic_partition: log for log in logs}
        where = " and ".join(options.paths)
        if isinstance(selection, Matching):
            found = {name: log for name, log in found.items() if selection.matches(name.topic)}
        elif isinstance(selection, Assigned):
            for name in selection.partitions:
                if name not in found:
                    raise TopicMissingError(f"{where} has no partition {name}. The option assign names it")
            found = {name: found[name] for name in selection.partitions}
        else:
            for topic in selection.topics:
                if all(name.topic != topic for name in found):
                    raise TopicMissingError(f"{where} has no partition of topic {topic}. The option subscribe names it")
        return None, _with_stable_ends(list(found.values()), options)

    def _log_range(self, log: PartitionLog, part: OffsetRange) -> LogRange:
        if self._options.is_committed:
            return committed_range(log, part.low, part.high)
        return LogRange(log=log, low=part.low, high=part.high)


@attrs.frozen
class FileTimes:
    """Answers lookups by time from the files."""

    logs: Mapping[TopicPartition, PartitionLog]
    options: SegmentOptions

    def offsets_for_times(self, questions: Sequence[Question]) -> list[int]:
        """The offset for each question, in order, -1 where no record that can be read is as late."""
        found = []
        for name, timestamp in questions:
            offset = first_offset_at(self.logs[name], timestamp, self.options.mode)
            is_readable = offset is not None and offset < _readable_end(self.logs[name], self.options)
            found.append(offset if offset is not None and is_readable else NO_OFFSET)
        return found


def _nothing() -> None:
    """Between the chunks of files that nobody leases."""


def _with_stable_ends(logs: Sequence[PartitionLog], options: SegmentOptions) -> dict[TopicPartition, PartitionLog]:
    """By name; for a committed read each with its last stable offset, which is then not looked for again."""
    if options.is_committed:
        logs = [attrs.evolve(log, last_stable_offset=last_stable_offset(log)) for log in logs]
    return {log.topic_partition: log for log in sorted(logs, key=lambda log: log.topic_partition)}


def _readable_end(log: PartitionLog, options: SegmentOptions) -> int:
    stable = log.last_stable_offset if options.is_committed else None
    return log.end_offset if stable is None else max(log.log_start_offset, min(stable, log.end_offset))


_RENEWALS: Final = 3
"""In the time of one lease, so that two may come late."""


@attrs.frozen
class SegmentLease:
    """A lease and who gave it. Picklable."""

    options: ReadOptions
    lease_id: str
    lease_ms: int

    def keeper(self) -> Callable[[], None]:
        """A function to call often, which renews the lease when it is time; for the first time now.

        Raises RequestError when the lease has ended, BrokerUnavailableError.
        """
        renewed_at = -float("inf")

        def renew() -> None:
            nonlocal renewed_at
            if time.monotonic() - renewed_at >= self.lease_ms / 1000 / _RENEWALS:
                Broker(self.options).lease_segments([], self.lease_ms, self.lease_id)
                renewed_at = time.monotonic()

        return renew


def lease_logs(options: ReadOptions, lease_ms: int) -> tuple[SegmentLease, list[PartitionLog]]:
    """Lease the partitions that are selected, as they are now, up to the high watermark.

    TopicMissingError, RequestError for a partition that cannot be leased, BrokerUnavailableError.
    """
    broker = Broker(options)
    response = broker.lease_segments(list(broker.ranges()), lease_ms)
    return SegmentLease(options, response.lease_id, lease_ms), [_log_of(entry) for entry in response.partitions]


def _log_of(entry: LeasePartitionResponse) -> PartitionLog:
    ends = [segment.base_offset for segment in entry.segments[1:]] + [INT64_MAX]
    return PartitionLog(
        topic_partition=TopicPartition(entry.topic, entry.partition),
        segments=tuple(
            SegmentFile(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                path=segment.path,
                size_bytes=segment.size_bytes,
                is_leased=True,
            )
            for segment, end_offset in zip(entry.segments, ends, strict=False)
        ),
        log_start_offset=entry.log_start_offset,
        end_offset=entry.high_watermark,
        directory=entry.directory or "",
        last_stable_offset=entry.last_stable_offset,
    )
