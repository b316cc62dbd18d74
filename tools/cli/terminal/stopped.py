"""A stopped log directory as commands that look inside take it: locked, read, with words for what stands in the way.

`DIR` is a log directory or the directory of one partition; in both cases the log directory's lock is taken, so that no server
(triolog or Kafka) starts meanwhile. Where the lock cannot be made because nothing there can be written, nobody else can write
there either, and commands that only read go on without it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .failures import UnreadableError
from .output import printable

if TYPE_CHECKING:
    from ....server.storage.directory.inventory import StoppedDirectory
    from ....server.storage.disk.filesystem import FileSystem

READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})

directory_argument = click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
topics_option = click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (repeatable).")


@contextlib.contextmanager
def stopped(directory: str, topics: tuple[str, ...] = (), *, writes: bool) -> Iterator[tuple[FileSystem, StoppedDirectory]]:
    """The directory, which no server uses inside of the block; `writes`: the command changes it.

    Raises UnreadableError when a server holds it, or what is there cannot be read or is no log; OSErrors of the block too.
    """
    from ....server.storage.directory.inventory import read_directory
    from ....server.storage.directory.log_directory import DirectoryLock
    from ....server.storage.disk.filesystem import OsFileSystem
    from ....server.storage.errors import StorageError

    fs = OsFileSystem()
    path = str(Path(directory).absolute())
    try:
        found = read_directory(fs, path, topics=frozenset(topics) or None)
        if found.is_whole and not found.partitions and not _is_log_directory(path):
            raise UnreadableError(f"{printable(directory)} holds no partition of a log")
        with contextlib.ExitStack() as stack:
            try:
                stack.callback(DirectoryLock.acquire(found.path).release)
            except OSError as exc:
                if writes or exc.errno not in READ_ONLY:
                    raise
            yield fs, read_directory(fs, path, topics=frozenset(topics) or None)
    except StorageError as exc:
        raise UnreadableError(printable(str(exc))) from exc
    except OSError as exc:
        raise UnreadableError(f"{printable(exc.filename or directory)}: {exc.strerror or exc}") from exc


def _is_log_directory(path: str) -> bool:
    from ....server.storage.disk.checkpoints import META_PROPERTIES_FILE

    return Path(path, META_PROPERTIES_FILE).exists()


def relative(path: str, directory: StoppedDirectory) -> str:
    """A file's name as people know it: from the log directory on."""
    return printable(path.removeprefix(f"{directory.path}/"))
