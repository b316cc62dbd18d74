"""The batch reader of the data source `triolog`: bounds become offsets, offsets become tasks, tasks give Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ....protocol.types import TopicPartition
from ..sink.worker import settle
from . import bounds, data_loss
from .bounds import PartitionRange
from .broker import Broker, Question
from .fetching import read_range
from .options import ReadOptions
from .ranges import OffsetRange, plan_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads from the starting to the ending bound, both resolved when the read is planned. Holds plain data: it is pickled.

    It has no `pushFilters`. Spark 4.3 keeps one plan of a Python source for a DataFrame (PythonDataSourceV2.setReadInfo): where
    a filter has narrowed it, the next query on the DataFrame, or the other side of a union, reads that narrowed plan as well.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return one range for each task. OptionError for a bound that does not fit, DataLossError, BrokerUnavailableError."""
        broker = Broker(self._options)
        known = broker.ranges()
        return list(plan_ranges(broker, self._options, resolve(broker, self._options, known), known))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; none for the partition that Spark makes up where there was nothing to plan."""
        settle()
        if isinstance(partition, OffsetRange):
            yield from read_range(Broker(self._options), self._options, partition, self._columns)


class Times(Protocol):
    """A source of the first offset at or after a time."""

    def offsets_for_times(self, questions: Sequence[Question]) -> list[int]:
        """The offset for each question, in order, -1 where there is none."""


def resolve(times: Times, options: ReadOptions, known: Mapping[TopicPartition, PartitionRange]) -> list[OffsetRange]:
    """The offsets between the bounds, for each partition that has any; times are looked up in one request."""
    starts = start_offsets(times, options, known, ending=options.ending)
    ranges = []
    for partition, (start, end) in starts.items():
        range_ = known[partition]
        if start < range_.low:
            data_loss.report(options.fail_on_data_loss, data_loss.expired(partition, start, range_.low))
            start = range_.low
        if max(start, end) > range_.high:
            data_loss.report(options.fail_on_data_loss, data_loss.shrunk(partition, max(start, end), range_.high))
            end = range_.high
        if start < end:
            ranges.append(OffsetRange(*partition, start, end))
    return ranges


def start_offsets(
    times: Times, options: ReadOptions, known: Mapping[TopicPartition, PartitionRange], ending: bounds.Bound = bounds.LATEST
) -> dict[TopicPartition, tuple[int, int]]:
    """Return (start, end) of each partition, as the bounds say; partitions that no longer exist are skipped."""
    bounds.check_partitions(options.starting, known)
    bounds.check_partitions(ending, known)
    questions = [
        (bound, Question(partition, timestamp))
        for bound in (options.starting, ending)
        for partition in known
        if (timestamp := bounds.question(bound, partition)) is not None
    ]
    answers = times.offsets_for_times([question for _, question in questions])
    found = {(id(bound), question.partition): offset for (bound, question), offset in zip(questions, answers, strict=True)}
    return {
        partition: (
            bounds.start_offset(
                options.starting, partition, range_, found.get((id(options.starting), partition)), options.starting_strategy
            ),
            bounds.end_offset(ending, partition, range_, found.get((id(ending), partition))),
        )
        for partition, range_ in known.items()
    }
