"""The stream reader of the data source `triolog`: which offsets a micro-batch takes.

Spark keeps one of these on the driver for offsets, partitions and commits, and pickles another one, as it was made, to the
tasks: nothing that is learnt here is seen by `read`.

| Spark calls | when |
|---|---|
| `prepareForTriggerAvailableNow`, `getDefaultReadLimit`, `initialOffset` | a query begins |
| `latestOffset(start, limit)` | before each batch; an answer equal to `start` means that there is nothing to do |
| `partitions(start, end)` | for each batch, again for one that was planned and not finished when the query stopped |
| `commit(end)` | when the batch behind it is planned |

**The first offset is kept.** Spark writes a batch's end into its checkpoint, but the start of the first batch nowhere. A
query that begins at `latest` and fails in its first batch would begin again later in the log, and the records in between
would be lost. So the end of the first batch carries the start (`bounds.StreamOffsets.starts`), and `partitions` takes it from
there.

**Offsets belong to a topic id.** A topic that was deleted and created again has other records at the same offsets. Each end
names the ids of its topics. Where they differ from the server's, records were lost, and `failOnDataLoss` decides.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ....protocol.errors import TriologError
from ....protocol.native.messages import SplitPoint
from ....protocol.types import TopicPartition
from ..carried import Carried
from ..one_line import one_line
from ..option_table.option import OptionError
from . import bounds, reader
from .bounds import Json, PartitionRange, StreamOffsets
from .broker import Broker, Cut
from .options import ReadOptions
from .reader import OffsetRange, estimated_bytes, plan_tasks, read_task, start_offsets

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("triolog.spark")
PIECES_OF_A_LIMIT: Final = 8
"""`maxBytesPerTrigger` is met within this part of it: the server is asked for cuts of that size."""

LOOKED_AT: Final = 4
"""`maxBytesPerTrigger` is looked for in the part of a backlog that would have so many times of it if records were alike: a
backlog of a terabyte is not cut up for each batch."""


class StreamReader(Carried, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets of a streaming query. Owner: the process that Spark runs it in; nobody calls it twice at once."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._columns = columns
        self._clock = clock
        self._broker = Broker(options)
        self._initial: Json | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._known: dict[TopicPartition, PartitionRange] = {}
        self._last_trigger_s: float | None = None

    # ---- offsets -------------------------------------------------------------------------------------------------------

    @one_line()
    def initialOffset(self) -> Json:
        """Return the offsets where a new query begins; the same on every call, since Spark calls twice."""
        if self._initial is None:
            self._known = self._broker.ranges()
            starts = {
                partition: start for partition, (start, _) in start_offsets(self._broker, self._options, self._known).items()
            }
            self._initial = StreamOffsets(starts, self._topic_ids(starts)).to_json()
        return self._initial

    @one_line()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the query's end at the current ends of the logs: later records are not part of it."""
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The one limit that Spark has to know; it cannot combine any, so the others are kept in `latestOffset`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @one_line()
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next batch; `start` itself when there is none. DataLossError, BrokerUnavailableError."""
        reached = StreamOffsets.from_json(start)
        available = self._available(reached.offsets)
        for partition in sorted(reached.offsets.keys() - available.keys()):
            reader.report(self._options.fail_on_data_loss, reader.vanished(partition, reached.offsets[partition]))
        begin = self._begin(reached, available)
        end = self._limited(begin, self._shrink_checked(begin, available), limit)
        topic_ids = self._topic_ids(end)
        if end == reached.offsets and topic_ids == reached.topic_ids:
            return start
        is_first = start == self._initial and self._options.is_start_moving
        return StreamOffsets(end, topic_ids, begin if is_first else {}).to_json()

    def reportLatestOffset(self) -> Json | None:
        """Return the ends of the logs, as of the last check; for the progress report."""
        return StreamOffsets({partition: range_.high for partition, range_ in self._known.items()}).to_json() or None

    def commit(self, end: Json) -> None:
        """Everything below `end` is done with. With `kafka.group.id` that is published; Spark's checkpoint is what counts."""
        if self._options.group is not None:
            try:
                self._broker.commit_group(self._options.group, StreamOffsets.from_json(end).offsets)
            except TriologError as exc:
                _LOG.warning("group %s: could not publish offsets: %s", self._options.group, exc)

    def stop(self) -> None:
        """The query is over."""
        with contextlib.suppress(OSError):
            self._broker.close()

    # ---- tasks ---------------------------------------------------------------------------------------------------------

    @one_line()
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch. DataLossError for offsets that are not there any more."""
        reached, until = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        known = self._looked_up()
        begin = until.starts or self._begin(reached, until.offsets, until.topic_ids)
        ranges = []
        for partition, high in sorted(until.offsets.items()):
            low = begin.get(partition, high)
            if low >= high:  # nothing new, or a log that has shrunk and was reported
                continue
            if partition not in known:
                reader.report(self._options.fail_on_data_loss, reader.vanished(partition, low))
                continue
            if self._is_other(until.topic_ids, partition.topic, known[partition].topic_id):
                reader.report(self._options.fail_on_data_loss, reader.created_again(partition, low))
                continue  # the next batch begins where the new topic does
            if low < known[partition].low:
                reader.report(self._options.fail_on_data_loss, reader.expired(partition, low, known[partition].low))
                low = known[partition].low
            ranges.append(OffsetRange(*partition, low, high))
        return list(plan_tasks(self._broker, self._options, ranges, known))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        yield from read_task(self._options, partition, self._columns)

    # ---- how far -------------------------------------------------------------------------------------------------------

    def _looked_up(self) -> dict[TopicPartition, PartitionRange]:
        """Return the current ranges. Callers notice a deleted topic by comparing with the query's offsets."""
        self._known = self._broker.ranges(missing_is_left_out=True)
        return self._known

    def _ends(self) -> dict[TopicPartition, int]:
        return {partition: range_.high for partition, range_ in self._looked_up().items()}

    def _available(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the end of each partition for this query. AvailableNow fixes it at the query's beginning, but a later start
        offset moves it: there is nothing to read before that."""
        if self._target is None:
            return self._ends()
        end = dict(self._target)
        for partition, offset in begin.items():
            if partition in self._known and self._known[partition].high >= offset:
                end[partition] = max(offset, end.get(partition, offset))
        return end

    def _topic_ids(self, offsets: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the ids of these partitions' topics, as of the last check."""
        found = {name.topic: self._known[name].topic_id for name in offsets if name in self._known}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}

    @staticmethod
    def _is_other(topic_ids: Mapping[str, str], topic: str, topic_id: str | None) -> bool:
        """Return whether a topic has another id than the one that belongs to the query's offsets."""
        return topic_id is not None and topic_ids.get(topic, topic_id) != topic_id

    def _begin(
        self, reached: StreamOffsets, end: Mapping[TopicPartition, int], end_ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int]:
        """Return where a batch up to `end` begins. Data loss is reported for a topic that was created again: it is read from
        its first record. `end_ids` None: those of the last check."""
        ids = self._topic_ids(end) if end_ids is None else end_ids
        begin = {}
        for partition, offset in sorted(reached.offsets.items()):
            if partition not in end:
                continue
            if self._is_other(reached.topic_ids, partition.topic, ids.get(partition.topic)):
                reader.report(self._options.fail_on_data_loss, reader.created_again(partition, offset))
                begin[partition] = self._known[partition].low if partition in self._known else 0
            else:
                begin[partition] = offset
        return begin | self._starts_of_new(begin, end)

    def _starts_of_new(
        self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the start of each new partition: its earliest offset, which must be 0."""
        starts = {}
        for partition in sorted(end.keys() - begin.keys()):
            starts[partition] = self._known[partition].low if partition in self._known else 0
            if starts[partition] > 0:
                reader.report(self._options.fail_on_data_loss, reader.expired(partition, 0, starts[partition]))
        return starts

    def _shrink_checked(
        self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The ends as they were given. Data loss is reported where a log ends below the offset that the query has reached."""
        for partition, offset in sorted(end.items()):
            if offset < begin[partition]:
                reader.report(self._options.fail_on_data_loss, reader.shrunk(partition, begin[partition], offset))
        return dict(end)

    def _limited(
        self, begin: Mapping[TopicPartition, int], end: dict[TopicPartition, int], limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        if isinstance(limit, ReadAllAvailable):  # also with options: a trigger that takes everything at once
            return end
        if self._is_to_wait(sum(bounds.backlog(begin, end).values())):
            return {partition: begin[partition] for partition in begin if partition in end}
        if isinstance(limit, ReadMaxRows):
            return bounds.prorate(begin, end, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return self._limited_by_bytes(begin, end, limit.max_bytes)
        return end

    def _is_to_wait(self, waiting: int) -> bool:
        """Return whether fewer than `minOffsetsPerTrigger` wait, and the last batch is not `maxTriggerDelay` ago.

        Never before the first batch. Under AvailableNow, too: the rest waits for the next run (Spark:
        KafkaMicroBatchStream.delayBatch).
        """
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now_s = self._clock()
        is_due = self._last_trigger_s is None or (now_s - self._last_trigger_s) * 1000 >= self._options.max_trigger_delay_ms
        if waiting >= least or is_due:
            self._last_trigger_s = now_s
            return False
        return True

    def _limited_by_bytes(
        self, begin: Mapping[TopicPartition, int], end: dict[TopicPartition, int], limit: int
    ) -> dict[TopicPartition, int]:
        """`end`, brought so near to `begin` that about `limit` bytes of log lie between; each partition moves by one piece."""
        waiting = [
            OffsetRange(*partition, begin[partition], begin[partition] + size)
            for partition, size in sorted(bounds.backlog(begin, end).items())
        ]
        sizes = [estimated_bytes(range_, self._known.get(range_.name)) for range_ in waiting]
        total = sum(sizes)
        if total <= limit:
            return end
        limited = dict(end)
        piece = max(1, limit // (PIECES_OF_A_LIMIT * len(waiting)))
        looked_at = [_first_part(range_, LOOKED_AT * limit, total) for range_ in waiting]
        answer = self._broker.split_points([Cut(part.name, part.low, part.high, piece) for part in looked_at])
        found = sum(point.bytes for points in answer or () for point in points)
        for index, part in enumerate(looked_at):
            if answer is None or not answer[index]:
                limited[part.name] = _first_part(waiting[index], limit, total).high
            else:
                share = limit * sum(point.bytes for point in answer[index]) // max(1, found)
                limited[part.name] = _reached(answer[index], share, part.high)
        return limited


class RefusedStreamReader(Carried, DataSourceStreamReader):
    """Stands in for the reader of a query whose options are refused."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    @one_line()
    def initialOffset(self) -> Json:
        """OptionError."""
        raise self._error

    @one_line()
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """OptionError; a query with a checkpoint calls this first."""
        raise self._error

    @one_line()
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """OptionError; a query with an unfinished batch calls this first."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """OptionError."""
        raise self._error


def _first_part(range_: OffsetRange, share: int, total: int) -> OffsetRange:
    """The first `share` of `total`th of a range, of one offset at least."""
    return attrs.evolve(range_, high=min(range_.high, range_.low + max(1, share * range_.count // total)))


def _reached(points: Sequence[SplitPoint], left: int, end: int) -> int:
    """Return the end offset of the leading pieces that total at most `left` bytes; the first piece always counts."""
    for number, point in enumerate(points):
        if number and left < point.bytes:
            return point.offset
        left -= point.bytes
    return end
