"""The batch reader of the data source `triolog`: bounds become offsets, offsets become tasks, and tasks fetch record batches as
they are stored and decode them to Arrow.

Ranges of offsets are cut into the tasks of a read like this:
1. A range larger than `splitBytes` is cut where the server says (`split_points`: at entries of its sparse index); by an older
   server, or where it does not know, at even offsets.
2. `maxRecordsPerPartition` cuts what has more offsets than that into even parts.
3. `minPartitions` cuts further while there are fewer: first a part each for ranges that would get one, then the rest shares
   what is left by size (Spark: KafkaOffsetRangeCalculator).
4. Without `minPartitions`, neighbouring ranges share a task up to `GROUP_BYTES`: a task costs more than their records.

While one answer is decoded the next one is on its way. A broker that starts again in between is waited for and the fetch is
repeated from the offset that was reached, so nothing is lost and nothing comes twice.

`failOnDataLoss` decides about missing offsets that a query relies on. True, the default: DataLossError, and the query stops
before it skips anything. False: a line in the log of the process that noticed, and the query continues with the offsets that
exist.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ....protocol.errors import CorruptRecordError, ErrorCode, RecordTooLargeError, RequestError, TriologError
from ....protocol.limits import KIB, MIB
from ....protocol.native.messages import FetchPartitionResponse
from ....protocol.records.columnar.decode import Wanted, decode_batches, next_offset
from ....protocol.records.record import CommittedFilter
from ....protocol.types import Isolation, TopicPartition
from ...client.blocking.client import Started
from ..carried import Carried
from ..one_line import one_line
from ..sink.worker import settle
from . import bounds
from .bounds import PartitionRange
from .broker import Broker, Cut, Question, TopicMissingError
from .options import Assigned, ReadOptions
from .schema import null_headers

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(Carried, DataSourceReader):
    """Reads from the starting to the ending bound, both resolved when the read is planned. Holds plain data: it is pickled.

    It has no `pushFilters`. Spark 4.3 keeps one plan of a Python source for a DataFrame (PythonDataSourceV2.setReadInfo): where
    a filter has narrowed it, the next query on the DataFrame, or the other side of a union, reads that narrowed plan as well.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @one_line()
    def partitions(self) -> list[InputPartition]:
        """Return one range for each task. OptionError for a bound that does not fit, DataLossError, BrokerUnavailableError."""
        broker = Broker(self._options)
        known = broker.ranges()
        return list(plan_tasks(broker, self._options, resolve(broker, self._options, known), known))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; none for the partition that Spark makes up where there was nothing to plan."""
        yield from read_task(self._options, partition, self._columns)


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
            report(options.fail_on_data_loss, expired(partition, start, range_.low))
            start = range_.low
        if max(start, end) > range_.high:
            report(options.fail_on_data_loss, shrunk(partition, max(start, end), range_.high))
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


SMALLEST_SPLIT_BYTES: Final = 64 * 1024
"""`minPartitions` never asks the server for smaller pieces: an index entry stands for 4 KiB, a task costs 20 ms."""


GROUP_BYTES: Final = 256 * KIB
"""Log that the ranges of one task have together, if they are several: decoding it takes less time than the start of a task. It
stays small, so that a query with expensive functions keeps its parallel tasks."""
MERGED_BYTES: Final = 4 * MIB
"""Rows of several ranges that wait to be joined: large records can make a range larger than its estimate."""
GROUP_OFFSETS: Final = 5_000
"""The limit where the size is not known or records are compressed well."""


@attrs.frozen
class OffsetRange:
    """Offsets of one partition from `low` up to `high`, exclusive."""

    topic: str
    partition: int
    low: int
    high: int

    @property
    def name(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """Offsets in it; records, where compaction and markers have taken none."""
        return self.high - self.low


@attrs.frozen
class ReadTask(InputPartition):
    """The ranges that one task reads, one after the other."""

    ranges: tuple[OffsetRange, ...]


def plan_tasks(
    broker: Broker, options: ReadOptions, ranges: Iterable[OffsetRange], known: Mapping[TopicPartition, PartitionRange]
) -> list[ReadTask]:
    """Return the tasks that read these ranges. `known` is what `Broker.ranges` says."""
    pieces = plan_ranges(broker, options, ranges, known)
    if options.min_partitions is not None:
        return [ReadTask((piece,)) for piece in pieces]
    most = min(GROUP_OFFSETS, options.max_records_per_partition or GROUP_OFFSETS)
    groups: list[list[OffsetRange]] = []
    size = count = 0
    for piece in pieces:
        more = estimated_bytes(piece, known.get(piece.name))
        if groups and size + more <= GROUP_BYTES and count + piece.count <= most:
            groups[-1].append(piece)
            size, count = size + more, count + piece.count
        else:
            groups.append([piece])
            size, count = more, piece.count
    return [ReadTask(tuple(group)) for group in groups]


def plan_ranges(
    broker: Broker, options: ReadOptions, ranges: Iterable[OffsetRange], known: Mapping[TopicPartition, PartitionRange]
) -> list[OffsetRange]:
    """Cut these ranges: together the pieces are the ranges, without overlap. `known` is what `Broker.ranges` says."""
    wanted = [range_ for range_ in ranges if range_.count > 0]
    sizes = {range_: estimated_bytes(range_, known.get(range_.name)) for range_ in wanted}
    target = options.split_bytes
    if options.min_partitions is not None:
        target = min(target, max(SMALLEST_SPLIT_BYTES, sum(sizes.values()) // options.min_partitions))
    pieces = _cut_by_bytes(broker, wanted, sizes, target)
    if options.max_records_per_partition is not None:
        most = options.max_records_per_partition
        pieces = [part for piece in pieces for part in divide(piece, -(-piece.count // most))]
    if options.min_partitions is not None:
        pieces = raise_count(pieces, options.min_partitions)
    return pieces


def estimated_bytes(range_: OffsetRange, known: PartitionRange | None) -> int:
    """Estimate the log bytes of these offsets, as if all were alike; 0 when the size is unknown."""
    offsets = known.high - known.low if known is not None else 0
    return 0 if known is None or offsets <= 0 else known.size_bytes * range_.count // offsets


def divide(range_: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of as even a size as can be, but none without an offset."""
    parts = max(1, min(parts, range_.count))
    edges = [range_.low + range_.count * part // parts for part in range(parts + 1)]
    return [attrs.evolve(range_, low=low, high=high) for low, high in pairwise(edges)]


def raise_count(ranges: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    """Cut ranges until there are about `least` of them, the larger ones into more parts; no change where there are enough."""
    if len(ranges) >= least:
        return list(ranges)
    total = sum(range_.count for range_ in ranges)
    whole = {range_ for range_ in ranges if _share(range_.count, total, least) == 1}
    rest, left = sum(range_.count for range_ in ranges if range_ not in whole), least - len(whole)
    return [part for range_ in ranges for part in divide(range_, 1 if range_ in whole else _share(range_.count, rest, left))]


def _share(count: int, total: int, parts: int) -> int:
    return max(1, math.floor(count / total * parts + 0.5))  # halves up, as Java's Math.round


def _cut_by_bytes(
    broker: Broker, ranges: Sequence[OffsetRange], sizes: Mapping[OffsetRange, int], target: int
) -> list[OffsetRange]:
    large = [range_ for range_ in ranges if sizes[range_] > target]
    answer = broker.split_points([Cut(range_.name, range_.low, range_.high, target) for range_ in large])
    cuts: dict[OffsetRange, list[OffsetRange]] = {}
    for index, range_ in enumerate(large):
        if answer is None:
            cuts[range_] = divide(range_, -(-sizes[range_] // target))
        else:
            inner = sorted({point.offset for point in answer[index] if range_.low < point.offset < range_.high})
            edges = [range_.low, *inner, range_.high]
            cuts[range_] = [attrs.evolve(range_, low=low, high=high) for low, high in pairwise(edges)]
    return [piece for range_ in ranges for piece in cuts.get(range_, [range_])]


def read_task(options: ReadOptions, task: InputPartition, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in batches of up to `arrowMaxRecords`. Errors are one line."""
    settle()
    if not isinstance(task, ReadTask):
        return
    broker = Broker(options)
    with one_line():
        rows = (batch for range_ in task.ranges for batch in read_range(broker, options, range_, columns))
        yield from rows if len(task.ranges) == 1 else _merged(rows, options.arrow_max_records)


def _merged(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    """Join small batches: each costs Spark a conversion."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if waiting and (rows + batch.num_rows > most_rows or size + batch.nbytes > MERGED_BYTES):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    [joined] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


_LOSSES: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CORRUPT_MESSAGE)


def read_range(broker: Broker, options: ReadOptions, range_: OffsetRange, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The range's records, in batches of up to `arrowMaxRecords`. DataLossError, BrokerUnavailableError, the codec's errors."""
    wanted = Wanted(range_.topic, range_.partition, columns, range_.low, range_.high, options.check_crcs)
    position = _Position(broker, options, range_)
    while position.offset < range_.high:
        answer = position.fetch()
        if answer is None:
            continue
        first = position.offset
        following = position.accept(answer)
        if following is None:
            continue
        committed = CommittedFilter(answer.aborted) if options.isolation is Isolation.READ_COMMITTED else None
        assert isinstance(answer.records, bytes)
        rows = null_headers(decode_batches(answer.records, attrs.evolve(wanted, low=first), committed=committed))
        for start in range(0, rows.num_rows, options.arrow_max_records):
            yield rows.slice(start, options.arrow_max_records)


class _Position:
    """The position in a range, and the fetch in flight. Owner: the generator."""

    def __init__(self, broker: Broker, options: ReadOptions, range_: OffsetRange) -> None:
        self.offset = range_.low
        self._range = range_
        self._broker = broker
        self._fails = options.fail_on_data_loss
        self._ahead: Started | None = None
        self._skip_gaps = False

    def fetch(self) -> FetchPartitionResponse | None:
        """The next answer; None when there is none and the offset has moved instead."""
        ahead, self._ahead = self._ahead, None
        try:
            return self._broker.fetch(self._range.name, self.offset, ahead, skip_gaps=self._skip_gaps)
        except RequestError as exc:
            if exc.code not in _LOSSES:
                raise
            self._lose(exc)
            return None

    def accept(self, answer: FetchPartitionResponse) -> int | None:
        """Move behind the whole batches of an answer and ask for what follows; None when it has none."""
        following = next_offset(answer.records) if answer.records else None  # type: ignore[arg-type]
        if following is not None:
            self.offset = following
            if following < self._range.high:
                self._ahead = self._broker.fetch_ahead(self._range.name, following, skip_gaps=self._skip_gaps)
        elif answer.records:
            raise RecordTooLargeError(
                f"{len(answer.records)} bytes of {self._range.name} at offset {self.offset} hold no whole record "
                "batch. Raise fetchMaxBytes"
            )
        elif answer.next_offset > self.offset:  # compaction has left nothing from here to the end of the log
            self.offset = answer.next_offset
        else:
            report(self._fails, shrunk(self._range.name, self._range.high, answer.high_watermark))
            self.offset = self._range.high
        return following

    def _lose(self, error: RequestError) -> None:
        name, wanted = self._range.name, self.offset
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            if self._skip_gaps:  # nobody knows which offset comes behind it
                raise CorruptRecordError(
                    f"{name}: offset {wanted} is damaged and still in the log, so failOnDataLoss cannot skip it: "
                    f"{error.message}. Stop the server and run `triolog repair`, or read up to there and begin after it"
                ) from error
            report(self._fails, f"{name}: offset {wanted} cannot be read: {error.message}")
            self._skip_gaps = True
            return
        try:
            there = self._broker.ranges(Assigned((name,)))[name]
        except TopicMissingError:
            report(self._fails, vanished(name, wanted))
            self.offset = self._range.high
            return
        if there.low > wanted:
            report(self._fails, expired(name, wanted, there.low))
            self.offset = there.low
        else:
            report(self._fails, shrunk(name, self._range.high, there.high))
            self.offset = self._range.high


_LOG: Final = logging.getLogger("triolog.spark")
_ADVICE: Final = (
    "Records may be lost. Retention may have overtaken the query, or the topic was deleted or created "
    "again. Begin with a new checkpoint where the data starts now, or set failOnDataLoss to false to "
    "continue with the existing records"
)


class DataLossError(TriologError):
    """Offsets that were to be read are not there."""


def report(fail: bool, what: str) -> None:
    """Raise or log; `what` names topic, partition and the offsets on both sides."""
    if fail:
        raise DataLossError(f"{what}. {_ADVICE}")
    _LOG.warning("%s: continuing because failOnDataLoss is false, records may be lost", what)


def expired(partition: TopicPartition, wanted: int, log_start_offset: int) -> str:
    """The log begins above what is wanted."""
    return f"{partition}: offset {wanted} is to be read and the log starts at offset {log_start_offset}"


def shrunk(partition: TopicPartition, wanted: int, high_watermark: int) -> str:
    """The log ends below what was promised."""
    return f"{partition}: offsets up to {wanted} are to be read and the log ends at offset {high_watermark}"


def created_again(partition: TopicPartition, wanted: int) -> str:
    """Say that the topic was deleted, and that another topic has its name."""
    return f"{partition}: offset {wanted} is requested, but the topic was deleted and created again since the checkpoint"


def vanished(partition: TopicPartition, wanted: int) -> str:
    """The partition is gone."""
    return f"{partition}: offset {wanted} is requested, but the topic or partition no longer exists"
