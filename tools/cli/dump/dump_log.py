"""The batches of a `.log` file for `triolog dump`, and whether they can be a log.

| check | says |
|---|---|
| name | the file is named after a base offset of 20 digits |
| batches | whole batches of magic 2 up to the end of the file; zeros behind the last one are preallocated space |
| CRC | every batch has the checksum of its bytes |
| offsets | they ascend from the base offset on and fit in 32 bits above it |
| records | lengths, counts and offset deltas of all records agree (compacted batches may have gaps) |
| timestamps | the header's largest timestamp is that of its records |
| leader epochs | they never go back |
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ....protocol.errors import CorruptRecordError, RequestError
from ....protocol.limits import INT32_MAX, KIB
from ....protocol.records.batch import BatchHeader, check_batch
from ....protocol.records.record import iter_records
from ....protocol.records.walk import walk_records
from ....protocol.types import TimestampType
from ....server.offline.findings import FaultTally
from ....server.storage.disk.diskops import FileHandle, drive
from ....server.storage.disk.filesystem import READ, FileSystem
from ....server.storage.disk.paths import base_offset_of
from ....server.storage.errors import StorageError
from ....server.storage.indexes.file_records import whole_file
from ..terminal.output import count_text
from ..terminal.shapes import fields
from .coordinator_records import record_in_words, topic_of
from .dump_report import Report

TAIL_PIECE_BYTES: Final = 64 * KIB


def dump_log(fs: FileSystem, path: str, report: Report, *, with_records: bool) -> None:
    """Report every batch and every check. Raises OSError."""
    base_offset = base_offset_of(Path(path).name)
    name_failure = None if base_offset is not None else "the name does not start with 20 digits and a dot"
    report.check("name", name_failure, f"base offset {base_offset}" if base_offset is not None else "")
    size = fs.file_size(path) or 0
    topic = topic_of(Path(path).absolute().parent.name)
    batches = _Batches(report, base_offset or 0, topic, with_records=with_records)
    framing: str | None = None
    try:
        drive(fs, whole_file(FileHandle(path=path), size).visit_batches(batches.visit))
    except (CorruptRecordError, StorageError) as exc:
        framing = getattr(exc, "message", None) or str(exc)
    _check_tail(fs, path, size, batches.stop, framing, report)
    batches.report_checks()


class _Batches:
    """The state of a dump over the batches read so far."""

    def __init__(self, report: Report, base_offset: int, topic: str | None, *, with_records: bool) -> None:
        self._report = report
        self._topic = topic
        self._base_offset = base_offset
        self._with_records = with_records
        self._next_offset = base_offset
        self._leader_epoch = -1
        self._count = self._records_count = 0
        self.stop = 0
        self._crc, self._offsets, self._records = FaultTally(), FaultTally(), FaultTally()
        self._timestamps, self._epochs = FaultTally(), FaultTally()

    def visit(self, header: BatchHeader, position: int, batch: memoryview) -> bool:
        crc_ok = self._check_crc(header, position, batch)
        self._check_offsets(header, position)
        structure_ok = self._walk(header, position, batch) if crc_ok else None
        self._check_epoch(header, position)
        self._count += 1
        self._records_count += max(header.records_count, 0)
        self.stop = position + header.size_bytes
        if self._report.with_rows:
            self._report.row("batch", _row(header, position, crc_ok, structure_ok))
            if self._with_records and structure_ok:
                self._print_records(header, batch)
        return True

    def report_checks(self) -> None:
        """The verdicts, once all batches were seen."""
        counts = f"{count_text(self._count, 'batch', 'batches')}, {count_text(self._records_count, 'record')}"
        self._report.check("CRC", self._crc.text, counts)
        self._report.check("offsets", self._offsets.text, f"{self._base_offset} up to {self._next_offset} (exclusive)")
        self._report.check("records", self._records.text, "batches with a wrong CRC left out" if self._crc.text else "")
        self._report.check("timestamps", self._timestamps.text)
        self._report.check("leader epochs", self._epochs.text)

    def _check_crc(self, header: BatchHeader, position: int, batch: memoryview) -> bool:
        try:
            check_batch(batch, header)
        except CorruptRecordError as exc:
            self._crc.add(f"position {position}: {exc.message}")
            return False
        return True

    def _check_offsets(self, header: BatchHeader, position: int) -> None:
        first, last = header.base_offset, header.last_offset
        if first < self._next_offset or last < first:
            self._offsets.add(f"position {position}: {first} to {last} cannot follow {self._next_offset - 1}")
        elif last - self._base_offset > INT32_MAX:
            self._offsets.add(f"position {position}: {last} is more than {INT32_MAX} above {self._base_offset}")
        self._next_offset = max(self._next_offset, last + 1)

    def _walk(self, header: BatchHeader, position: int, batch: memoryview) -> bool:
        try:
            walk = walk_records(batch, header, allow_gaps=True)
        except RequestError as exc:
            self._records.add(f"position {position}: {exc.message}")
            return False
        if walk.records_count and walk.max_timestamp != header.max_timestamp:
            found = f"the header has {header.max_timestamp}, the largest of the records is {walk.max_timestamp}"
            self._timestamps.add(f"position {position}: {found}")
        return True

    def _check_epoch(self, header: BatchHeader, position: int) -> None:
        epoch = header.partition_leader_epoch
        if epoch < self._leader_epoch:
            self._epochs.add(f"position {position}: {epoch} follows {self._leader_epoch}")
        self._leader_epoch = max(self._leader_epoch, epoch)

    def _print_records(self, header: BatchHeader, batch: memoryview) -> None:
        for record in iter_records(batch, header):
            says = record_in_words(self._topic, header, record)
            fields = {"key": record.key, "value": record.value, "headers": record.headers, "says": says}
            self._report.row("record", {"offset": record.offset, "timestamp": record.timestamp, **fields})


def _row(header: BatchHeader, position: int, crc_ok: bool, structure_ok: bool | None) -> dict[str, object]:
    flags = {
        "append-time": header.timestamp_type is TimestampType.LOG_APPEND_TIME,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete-horizon": header.has_delete_horizon,
    }
    try:
        codec = header.compression_type.name.lower()
    except RequestError:
        codec = f"unknown {header.attributes & 7}"
    return {
        "position": position,
        "bytes": header.size_bytes,
        **fields(header, "base_offset", "last_offset", "records_count"),
        "codec": codec,
        **fields(header, "base_timestamp", "max_timestamp"),
        "leader_epoch": header.partition_leader_epoch,
        **fields(header, "producer_id", "producer_epoch", "base_sequence"),
        "flags": [name for name, is_set in flags.items() if is_set],
        "crc_ok": crc_ok,
        "structure_ok": structure_ok,
    }


def _check_tail(fs: FileSystem, path: str, size: int, stop: int, framing: str | None, report: Report) -> None:
    """Check whether the last whole batch ends the file."""
    tail = size - stop
    if not tail:
        report.check("batches", framing, f"{size:,} bytes")
    elif _is_zero(fs, path, stop, size):
        report.check("batches", None, f"{stop:,} bytes, then {tail:,} zeros: preallocated")
    else:
        found = framing or f"{tail} bytes from position {stop} on are not a whole batch: a torn write, or still being written"
        report.check("batches", found, f"{stop:,} of {size:,} bytes are whole batches. Recovery cuts the log there")


def _is_zero(fs: FileSystem, path: str, start: int, stop: int) -> bool:
    fd = fs.open(path, READ)
    try:
        while start < stop:
            piece = fs.read(fd, min(TAIL_PIECE_BYTES, stop - start), start)
            if not piece or piece.count(0) != len(piece):
                return False
            start += len(piece)
        return True
    finally:
        fs.close(fd)
