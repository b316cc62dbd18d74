"""The entries of an `.index`, `.timeindex` or `.txnindex` file for `triolog dump`, held against the `.log` beside it.

| check | says |
|---|---|
| size | whole entries; a tail of zeros is what a file has that was preallocated and not closed |
| order | offsets and positions ascend; timestamps ascend, their offsets do not go back; markers ascend |
| log | the `.log` beside it is there |
| entries | see `index_check`; not of a transaction index, for which the whole log is needed: `triolog verify` |
| closing entry | time index without a tail of zeros: the last entry has the largest timestamp of the log |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ....protocol.errors import CorruptRecordError
from ....protocol.records.batch import BatchHeader
from ....server.offline.index_check import (
    MAX_TRANSACTION_INDEX_BYTES,
    IndexFile,
    OffsetMatching,
    TimeMatching,
    order_failure,
    read_transaction_entries,
)
from ....server.storage.disk.diskops import FileHandle, drive
from ....server.storage.disk.filesystem import FileSystem, read_file
from ....server.storage.disk.paths import LOG_SUFFIX, base_offset_of, segment_file
from ....server.storage.errors import CorruptIndexError, StorageError
from ....server.storage.indexes.file_records import whole_file
from ....server.storage.indexes.index import AbstractIndex, OffsetIndex, TimeIndex
from ..terminal.output import count_text
from .dump_report import Report

_Visit = Callable[[BatchHeader, int], None]


def dump_offset_index(fs: FileSystem, path: str, report: Report) -> None:
    """Report every (offset, position) and every check. Raises OSError."""
    _dump(fs, path, OffsetIndex, report)


def dump_time_index(fs: FileSystem, path: str, report: Report) -> None:
    """Report every (timestamp, offset) and every check. Raises OSError."""
    _dump(fs, path, TimeIndex, report)


def dump_transaction_index(fs: FileSystem, path: str, report: Report) -> None:
    """Report every aborted transaction and every check. Raises OSError."""
    base_offset = _base_offset(path, report)
    if base_offset is None:
        return
    try:
        entries = read_transaction_entries(path, read_file(fs, path, max_bytes=MAX_TRANSACTION_INDEX_BYTES))
    except (CorruptIndexError, ValueError) as exc:
        report.check("size", str(exc))
        return
    for slot, txn in enumerate(entries if report.with_rows else ()):
        report.row("aborted_txn", {"slot": slot, **txn._asdict()})
    report.check("size", None, count_text(len(entries), "entry", "entries"))
    report.check("order", order_failure(entries, base_offset))


def _dump(fs: FileSystem, path: str, kind: type[AbstractIndex], report: Report) -> None:
    base_offset = _base_offset(path, report)
    if base_offset is None:
        return
    with IndexFile(fs, path, kind, base_offset) as file:
        _report_entries(file, kind, report)
        note = count_text(file.entries, "entry", "entries")
        note += f", then {file.zeros:,} of zeros: preallocated, not closed" if file.zeros else ""
        wrong = f"{file.size} bytes are not a multiple of {file.entry_size}" if file.remainder else None
        report.check("size", wrong, note)
        matching = TimeMatching(iter(file)) if kind is TimeIndex else OffsetMatching(iter(file))
        has_log = _visit_log(fs, path, base_offset, matching.visit, report)
        matching.finish()
        report.check("order", matching.order.text)
        if not has_log:
            return
        report.check("entries", matching.failures.text, count_text(file.entries, "entry", "entries"))
        if isinstance(matching, TimeMatching):
            if file.zeros:
                report.check("closing entry", None, "the segment is not closed: there need not be one")
            else:
                report.check("closing entry", matching.closing_failure)


def _report_entries(file: IndexFile, kind: type[AbstractIndex], report: Report) -> None:
    for slot, (key, value) in enumerate(file if report.with_rows else ()):
        if kind is TimeIndex:
            report.row("time_entry", {"slot": slot, "timestamp": key, "offset": value})
        else:
            report.row("offset_entry", {"slot": slot, "offset": key, "position": value})


def _base_offset(path: str, report: Report) -> int | None:
    base_offset = base_offset_of(Path(path).name)
    if base_offset is None:
        report.check("name", "the name does not start with 20 digits and a dot")
    return base_offset


def _visit_log(fs: FileSystem, path: str, base_offset: int, visit: _Visit, report: Report) -> bool:
    """Show every header of the sibling log; False when there is none. What is wrong with it, its own dump says."""
    log = str(Path(path).parent / segment_file(base_offset, LOG_SUFFIX))
    size = fs.file_size(log)
    if size is None:
        report.check("log", f"{log} does not exist, so the entries cannot be checked. Give an index together with its log")
        return False
    try:
        drive(fs, whole_file(FileHandle(path=log), size).visit_headers(visit))
    except (CorruptRecordError, StorageError) as exc:
        report.check("log", None, f"is read up to its first damage: {exc}")
        return True
    report.check("log", None)
    return True
