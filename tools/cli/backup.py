"""`triolog backup`: a consistent copy of a log directory while its server runs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .terminal.failures import FailedError, UnreadableError
from .terminal.output import count_text, json_option, print_json, printable, say, size_text
from .terminal.progress import open_progress
from .terminal.shapes import Sum, fields
from .terminal.stopped import directory_argument

if TYPE_CHECKING:
    from ...server.offline.backup import PartitionBackup

_PAUSE_S: Final = 0.05
"""Between two looks at files that are being replaced."""


@click.command
@directory_argument
@click.argument("target", metavar="DEST", type=click.Path(file_okay=False))
@click.option("--copy", is_flag=True, help="Copy sealed segments too, instead of creating hard links.")
@json_option
def command(directory: str, target: str, copy: bool, as_json: bool) -> None:
    """Copy the log directory DIR of a running (or stopped) server on this machine to DEST, which is empty or does not exist.

    The copy has every record that was acknowledged before the command began. It may have later ones. If DEST is on the same
    file system, sealed segments become hard links, which take no space and no time. Active segments are copied up to their last
    whole batch. A server opens the copy like the directory of a server that was killed. `triolog verify DEST` finds no damage
    that DIR does not have. For a server with several data directories, run the command once for each.
    """
    from ...protocol.errors import TriologError
    from ...server.offline.backup import make_backup, plan_backup
    from ...server.storage.disk.filesystem import OsFileSystem
    from ...server.storage.errors import LogDirectoryError

    wait, fs, begin = partial(time.sleep, _PAUSE_S), OsFileSystem(), time.perf_counter()
    try:
        plan = plan_backup(fs, str(Path(directory).absolute()), wait)
        with open_progress(
            "copying", sum(partition.active_bytes for partition in plan.partitions), counts_records=False
        ) as bar:
            count = Sum(bar)
            backups = make_backup(
                *(fs, plan, str(Path(target).absolute()), wait), links=not copy, done=lambda each: count(each.copied_bytes)
            )
    except LogDirectoryError as exc:
        raise UnreadableError(printable(str(exc))) from exc
    except TriologError as exc:
        raise FailedError(printable(str(exc))) from exc
    except OSError as exc:
        raise FailedError(f"{printable(exc.filename or target)}: {exc.strerror}. DEST is not complete: remove it") from exc
    _report(backups, target, time.perf_counter() - begin, as_json=as_json)


def _report(backups: list[PartitionBackup], target: str, elapsed_s: float, *, as_json: bool) -> None:
    linked_files = sum(backup.linked_files for backup in backups)
    linked_bytes = sum(backup.linked_bytes for backup in backups)
    copied_bytes = sum(backup.copied_bytes for backup in backups)
    if as_json:
        partitions = [
            {**each.topic_partition._asdict(), **fields(each, "log_end_offset", "linked_bytes", "copied_bytes")}
            for each in backups
        ]
        print_json({"target": target, "partitions": partitions, "linked_bytes": linked_bytes, "copied_bytes": copied_bytes})
        return
    say(
        f"{count_text(len(backups), 'partition')} in {printable(target)}: {size_text(linked_bytes)} in "
        f"{count_text(linked_files, 'hard link')}, {size_text(copied_bytes)} copied, {elapsed_s:.2f} s"
    )
