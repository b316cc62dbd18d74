"""The data source `triolog_segments`: `spark.read.format("triolog_segments").load(directory)`. Batch reads only.

The driver plans: it lists the directories (or leases the files of a running server), turns bounds into offsets and cuts
splits along the indexes. Tasks read their splits by path, so every executor needs the directory under the same name. No
server is asked, but for the lease. Spark finds the source through `pyspark_triolog_segments`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ....protocol.types import NO_OFFSET, TopicPartition
from ...segments.segment_log import PartitionLog, read_logs
from ...segments.segment_reader import SegmentRead, read_split
from ...segments.segment_times import first_offset_at
from ...segments.segment_transactions import committed_range, last_stable_offset
from ...segments.splits import LogRange, SegmentSplit, SplitLimits, pack_splits, plan_splits
from ..sink.worker import settle
from ..source.bounds import PartitionRange
from ..source.broker import Question, TopicMissingError
from ..source.options import Assigned, Matching, Subscribed
from ..source.ranges import OffsetRange
from ..source.reader import resolve
from ..source.schema import columns_of, spark_schema
from .segment_lease import SegmentLease, lease_logs
from .segments_options import SERVER, SegmentOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TriologSegments(DataSource):
    """Segment files as a table."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format(...)` accepts."""
        return "triolog_segments"

    def schema(self) -> StructType:
        """The columns that the options ask for. OptionError for options that no read can have."""
        return spark_schema(SegmentOptions.from_options(self.options).read.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the schema's columns. It takes no filters, for `reader.BatchReader`'s reason."""
        return SegmentsReader(SegmentOptions.from_options(self.options), columns_of(schema))


@attrs.frozen
class SegmentTask(InputPartition):
    """Splits of one partition, ascending: what one task reads."""

    splits: tuple[SegmentSplit, ...]
    lease: SegmentLease | None = None


class SegmentsReader(DataSourceReader):
    """Reads what lay in the files when it was planned. Holds plain data: it is pickled."""

    def __init__(self, options: SegmentOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

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
        for split in partition.splits:
            yield from read_split(split, read, between_chunks=keep)

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
                    raise TopicMissingError(f"{where} has no partition {name}; the option assign names it")
            found = {name: found[name] for name in selection.partitions}
        else:
            for topic in selection.topics:
                if all(name.topic != topic for name in found):
                    raise TopicMissingError(f"{where} has no partition of topic {topic}; the option subscribe names it")
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
