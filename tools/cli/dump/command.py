"""`triolog dump`: what is in the files of a stopped log, and whether it can be true.

Which file is which is decided by its name; what is checked in it, `dump_log`, `dump_index` and `dump_text` say. Findings
are handed on as they are made, so that a segment of any size needs little memory. Nothing is ever changed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..terminal.failures import EXIT_FAILED
from ..terminal.output import flush, json_option, timezone_option, warn
from ..terminal.times import Zone

if TYPE_CHECKING:
    from ....server.storage.disk.filesystem import FileSystem
    from .dump_report import Report


@click.command
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True))
@click.option("--records", is_flag=True, help="Print the records of every batch too.")
@click.option("--checks", "only_checks", is_flag=True, help="Print only the verdicts.")
@timezone_option
@json_option
def command(files: tuple[str, ...], records: bool, only_checks: bool, zone: Zone, as_json: bool) -> None:
    """Show and check the batches, index entries or lines of FILE..., or of all known files of a directory.

    Checks of a .log: sizes, CRCs, offsets, the structure of all records, timestamps, leader epochs. Checks of an .index or
    .timeindex: order, and every entry against the batches of its .log. A .txnindex, .snapshot or .batches, checkpoints,
    topics.json, meta.properties and partition.metadata must be readable. Records of __consumer_offsets and __transaction_state
    are also explained in words. Exit code 1 when a check failed. --json prints JSON lines.
    """
    from ....server.storage.disk.filesystem import OsFileSystem
    from .dump_report import JsonReport, TextReport

    fs = OsFileSystem()
    paths = list(_expanded(files))
    folders = dict.fromkeys(Path(path).absolute().parent for path in paths)
    for holder in dict.fromkeys(filter(None, map(_holder, folders))):
        warn(f"warning: {holder}. Files that change while they are read can fail checks")
    report = JsonReport(with_rows=not only_checks) if as_json else TextReport(zone, with_rows=not only_checks)
    for path in paths:
        report.begin(path, kind_of(path) or "")
        _dump(fs, path, report, with_records=records)
        report.end()
    flush()
    if report.failed:
        raise click.exceptions.Exit(EXIT_FAILED)


def kind_of(path: str) -> str | None:
    """Return the kind of a file by its name; None for unknown names."""
    from .dump_text import TEXT_FILES

    name = Path(path).name
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".batches"):
        if name.endswith(suffix):
            return suffix
    return name if name in TEXT_FILES else None


def _expanded(files: tuple[str, ...]) -> Iterator[str]:
    for path in files:
        if not Path(path).is_dir():
            if kind_of(path) is None:
                raise click.UsageError(
                    f"{path} is not a file that dump knows: .log, .index, .timeindex, .txnindex, .snapshot, .batches, "
                    "checkpoints, topics.json, meta.properties, partition.metadata, or a directory of these"
                )
            yield path
            continue
        found = [
            f"{folder}/{name}"
            for folder, folders, names in os.walk(path)
            for name in sorted(names)
            if not folders.sort() and kind_of(name) is not None
        ]
        if not found:
            raise click.UsageError(f"{path} holds no file of a log")
        yield from found


def _dump(fs: FileSystem, path: str, report: Report, *, with_records: bool) -> None:
    from ....protocol.errors import TriologError
    from .dump_index import dump_offset_index, dump_time_index, dump_transaction_index
    from .dump_log import dump_log
    from .dump_snapshot import dump_batches, dump_snapshot
    from .dump_text import dump_text

    kinds: dict[str | None, Callable[[FileSystem, str, Report], None]] = {
        ".log": partial(dump_log, with_records=with_records),
        ".index": dump_offset_index,
        ".timeindex": dump_time_index,
        ".txnindex": dump_transaction_index,
        ".snapshot": dump_snapshot,
        ".batches": dump_batches,
    }
    try:
        kinds.get(kind_of(path), dump_text)(fs, path, report)
    except OSError as exc:
        report.check("readable", f"{exc.strerror}")
    except TriologError as exc:
        report.check("readable", str(exc))


def _holder(directory: Path) -> str | None:
    """Return a description of the process that locks the log directory of these files; None when no process does.

    A shared lock is taken for a moment and given back: there is no way to only ask that every file system knows.
    """
    from ....server.storage.disk.filesystem import open_regular

    for folder in (directory, directory.parent):
        try:
            fd = open_regular(str(folder / ".lock"), os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return f"{folder} is locked by {os.pread(fd, 200, 0).decode('utf-8', 'replace').strip() or 'a running server'}"
        finally:
            os.close(fd)
    return None
