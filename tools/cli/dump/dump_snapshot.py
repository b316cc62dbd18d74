"""The producers in a `.snapshot` file, and the batches in the `.batches` beside it, for `triolog dump`.

| check | says |
|---|---|
| name | the file is named after an offset of 20 digits |
| readable | version, CRC and number of entries agree |
| snapshot | the `.batches` belongs to the snapshot beside it |

Whether they are what the log says needs the log: `triolog verify`.
"""

from __future__ import annotations

from pathlib import Path

from ....server.storage.disk.checkpoints import read_small
from ....server.storage.disk.filesystem import FileSystem
from ....server.storage.disk.paths import base_offset_of
from ....server.storage.errors import CorruptSnapshotError
from ....server.storage.producers.producer_snapshots import (
    crc_of,
    decode_earlier,
    decode_snapshot,
    snapshot_path,
)
from ..terminal.output import count_text
from .dump_report import Report


def dump_snapshot(fs: FileSystem, path: str, report: Report) -> None:
    """Report every producer and every check. Raises OSError."""
    offset = base_offset_of(Path(path).name)
    report.check("name", "the name does not start with 20 digits and a dot" if offset is None else None)
    try:
        entries = decode_snapshot(path, read_small(fs, path))
    except (CorruptSnapshotError, ValueError) as exc:
        report.check("readable", str(exc))
        return
    for entry in entries if report.with_rows else ():
        newest = entry.batches[-1] if entry.batches else None
        row = {
            "producer_id": entry.producer_id,
            "epoch": entry.epoch,
            "last_sequence": -1 if newest is None else newest.last_sequence,
            "last_offset": -1 if newest is None else newest.last_offset,
            "offset_delta": 0 if newest is None else newest.offset_delta,
            "timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }
        report.row("producer", row)
    report.check("readable", None, f"{count_text(len(entries), 'producer')} at offset {offset}")


def dump_batches(fs: FileSystem, path: str, report: Report) -> None:
    """Report every batch and every check. Raises OSError."""
    offset = base_offset_of(Path(path).name)
    report.check("name", "the name does not start with 20 digits and a dot" if offset is None else None)
    try:
        belongs_to, earlier = decode_earlier(path, read_small(fs, path))
    except (CorruptSnapshotError, ValueError) as exc:
        report.check("readable", str(exc))
        return
    rows = [(producer_id, batch) for producer_id, batches in earlier.items() for batch in batches]
    for producer_id, batch in rows if report.with_rows else ():
        report.row("earlier_batch", {"producer_id": producer_id, **batch._asdict()})
    report.check("readable", None, f"{count_text(len(rows), 'batch', 'batches')} of {count_text(len(earlier), 'producer')}")
    report.check("snapshot", _why_of_another(fs, path, offset, belongs_to))


def _why_of_another(fs: FileSystem, path: str, offset: int | None, belongs_to: int) -> str | None:
    if offset is None:
        return None
    snapshot = snapshot_path(str(Path(path).parent), offset)
    try:
        data = read_small(fs, snapshot)
        decode_snapshot(snapshot, data)
    except FileNotFoundError:
        return f"{Path(snapshot).name} does not exist beside it"
    except (CorruptSnapshotError, ValueError) as exc:
        return str(exc)
    found = crc_of(data)
    return None if found == belongs_to else f"it belongs to one with CRC {belongs_to:#010x}, the one there has {found:#010x}"
