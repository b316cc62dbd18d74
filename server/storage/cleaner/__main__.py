"""The cleaner's process: `python -m triolog.server.storage.cleaner PID PERMISSIONS`, started by a server, one for each round.

| who | line | meaning |
|---|---|---|
| server | a job, as JSON | clean this |
| cleaner | `{"group": [...]}` | these segments are clean; their `.cleaned` files are complete |
| server | `next` | they are in place, or not wanted; go on |
| cleaner | `{"result": [...]}` | done |
| cleaner | `{"error": text, "kind": damage, gone, disk or bug}` | given up |
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TextIO

from ....protocol.errors import CorruptRecordError, InvalidRecordError, TriologError
from ...config import DataPermissions
from ..child_process import ParentWatch, read_line, run_child, say
from ..disk.filesystem import FileSystem, OsFileSystem
from ..errors import SnapshotExpiredError
from .clean import clean
from .job import CleaningJob


def clean_for_server(fs: FileSystem, source: TextIO, output: TextIO, watch: ParentWatch) -> None:
    """Do the job in the first line of `source`, as the module says."""
    job = CleaningJob.decode(read_line(source).encode())
    cleaning = clean(fs, job, keep_on=lambda size: watch.check())
    try:
        while True:
            group = next(cleaning)
            say(output, group=group)
            read_line(source)
    except StopIteration as stop:
        say(output, result=stop.value)
    except (CorruptRecordError, InvalidRecordError) as exc:
        say(output, error=exc.message, kind="damage")
    except (SnapshotExpiredError, FileNotFoundError) as exc:
        say(output, error=str(exc), kind="gone")
    except OSError as exc:
        say(output, error=str(exc), kind="disk")
    except TriologError as exc:
        say(output, error=str(exc), kind="bug")


if __name__ == "__main__":
    sys.exit(run_child(partial(clean_for_server, OsFileSystem(DataPermissions(sys.argv[2])))))
