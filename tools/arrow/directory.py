"""Records of a log directory, or of one partition's, that no server need run for: triolog's and Apache Kafka's.

Nothing is locked and nothing is written. What is read is what the files held when the read began; a running server may go on,
but what it has not written yet is missing, and what it deletes or compacts meanwhile is an error that says so. Damaged batches
are left out, with a warning, without one, or are an error, as `damaged` says; offsets that damage or compaction took are just
not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from ...protocol.errors import TriologError
from ...protocol.types import Isolation, TopicPartition
from ...server.storage.directory.inventory import read_directory
from ...server.storage.disk.paths import is_internal
from ..segments.segment_bytes import FILES
from ..segments.segment_damage import DamagedSegmentError, ReadMode
from ..segments.segment_log import LogInUseError, PartitionLog, read_logs
from ..segments.segment_reader import SegmentGoneError, SegmentRead, read_split
from ..segments.segment_times import first_offset_at
from ..segments.segment_transactions import committed_range, last_stable_offset
from ..segments.splits import LogRange, SplitLimits, plan_splits
from .bounds import Bounds
from .report import ArrowError
from .schema import UNIT
from .sources import ReadOptions, Span, chosen_partitions

if TYPE_CHECKING:
    import pyarrow as pa

_MODES: Final = {"warn": ReadMode.PERMISSIVE, "skip": ReadMode.DROPMALFORMED, "raise": ReadMode.FAILFAST}
MAX_ROWS: Final = 1 << 20
"""Of a batch; a chunk of the file has fewer."""


class DirectorySource:
    """A snapshot of a log directory, opened for one read. Owner: the read."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self._path = path
        self._is_committed = options.isolation is Isolation.READ_COMMITTED
        self._mode = _MODES[options.damaged]
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._log_bytes = 0

    def topics(self) -> list[str]:
        """Those that have a partition there."""
        try:
            names = {files.topic_partition.topic for files in read_directory(FILES, self._path).partitions}
        except (TriologError, OSError) as exc:
            raise self._error(exc) from exc
        return sorted(name for name in names if not is_internal(name))

    def spans(self, topics: Sequence[str], partitions: Sequence[int] | None, bounds: Bounds) -> list[Span]:
        """Return the spans that the files hold now."""
        try:
            logs = {log.topic_partition: log for log in read_logs([self._path], frozenset(topics))}
            chosen = chosen_partitions(list(logs), topics, partitions, bounds, self._path)
            if self._is_committed:
                logs = {name: attrs.evolve(logs[name], last_stable_offset=last_stable_offset(logs[name])) for name in chosen}
            self._logs = {name: logs[name] for name in chosen}
            return [self._span(log, bounds) for log in self._logs.values()]
        except ArrowError:
            raise
        except (TriologError, OSError) as exc:
            raise self._error(exc) from exc

    def read(self, span: Span, columns: tuple[str, ...], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """In chunks of about 4 MiB."""
        if span.low >= span.high:
            return
        log = self._logs[span.name]
        how = SegmentRead(
            columns=columns,
            mode=self._mode,
            max_records=MAX_ROWS,
            start_timestamp=bounds.start_timestamp,
            end_timestamp=bounds.end_timestamp,
            timestamp_unit=UNIT,
            advice="Read again. Read topics of a running server at its address",
        )
        try:
            if self._is_committed:
                wanted = committed_range(log, span.low, span.high)
            else:
                wanted = LogRange(log=log, low=span.low, high=span.high)
            for split in plan_splits([wanted], SplitLimits()):
                yield from read_split(split, how)
                self._log_bytes += split.size_bytes
        except (TriologError, OSError) as exc:
            raise self._error(exc, span.name) from exc

    def log_bytes(self) -> int:
        """In steps of 64 MiB."""
        return self._log_bytes

    def close(self) -> None:
        """Files are open only while they are read."""

    def _span(self, log: PartitionLog, bounds: Bounds) -> Span:
        low, high = bounds.of_partition(log.topic_partition)
        end = log.end_offset
        if self._is_committed and log.last_stable_offset is not None:
            end = min(end, log.last_stable_offset)
        low, high = max(low, log.log_start_offset), min(high, end)
        if bounds.start_timestamp and low < high:
            reached = first_offset_at(log, bounds.start_timestamp, self._mode)
            low = high if reached is None else max(low, reached)
        return Span(log.topic_partition, low, max(low, high))

    def _error(self, error: Exception, name: TopicPartition | None = None) -> TriologError:
        text = f"{error.filename or self._path}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        if isinstance(error, DamagedSegmentError):
            text = (
                f"{error.path}: position {error.position}: {error.reason}. `triolog verify` shows all damage of a "
                'directory. damaged="warn" or "skip" reads the whole batches'
            )
        elif isinstance(error, LogInUseError):
            text = text.replace("Read again, or with snapshot=server.", "Read again.")
        elif isinstance(error, SegmentGoneError):
            return ArrowError(text)
        return ArrowError(text if name is None else f"{name}: {text}")
