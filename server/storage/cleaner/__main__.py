"""The cleaner's process: `python -m triolog.server.storage.cleaner PID PERMISSIONS`, started by a server, one for each round.

| who | line | meaning |
|---|---|---|
| server | a job, as JSON | clean this |
| cleaner | `{"progress": bytes}` | so many bytes were read and written so far |
| cleaner | `{"group": [...]}` | these segments are clean; their `.cleaned` files are complete |
| server | `next` | they are in place, or not wanted; go on |
| cleaner | `{"result": [...]}` | done |
| cleaner | `{"error": text, "kind": damage, gone, disk or bug}` | given up |
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final, TextIO

from ....protocol.errors import CorruptRecordError, InvalidRecordError, TriologError
from ....protocol.limits import MIB
from ...config import DataPermissions
from ..child_process import ParentWatch, read_line, run_child, say
from ..disk.filesystem import FileSystem, OsFileSystem
from ..errors import SnapshotExpiredError
from .clean import clean
from .job import CleaningJob

PROGRESS_BYTES: Final = 32 * MIB


class _Progress:
    """Sees that the server is still there, and tells it of progress."""

    def __init__(self, output: TextIO, watch: ParentWatch) -> None:
        self._output = output
        self._watch = watch
        self._bytes = 0
        self._told = 0

    def __call__(self, size: int) -> None:
        self._watch.check()
        self._bytes += size
        if self._bytes - self._told >= PROGRESS_BYTES:
            self._told = self._bytes
            say(self._output, progress=self._bytes)


def clean_for_server(fs: FileSystem, source: TextIO, output: TextIO, watch: ParentWatch) -> None:
    """Do the job in the first line of `source`, as the module says."""
    job = CleaningJob.decode(read_line(source).encode())
    cleaning = clean(fs, job, keep_on=_Progress(output, watch))
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
