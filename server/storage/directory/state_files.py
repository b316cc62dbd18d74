"""Files of a log directory that hold a state as a whole (`topics.json`, `security.json`, `groups.json`, `client-metrics.json`,
`brokers.json`): nothing is written that could not be read again, and the copy from before the last change stays beside the new
one.

Where the file cannot be read, no start goes by that copy on its own: it lacks the last change. `triolog repair` returns to it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TypeVar

from ..disk.checkpoints import PREVIOUS_SUFFIX, check_size, limit_of
from ..disk.filesystem import FileSystem, link_file, read_file, replace_file
from ..errors import CheckpointError

T = TypeVar("T")


def read_state(fs: FileSystem, path: str, decode: Callable[[str, bytes], T]) -> T:
    """Decode the file. Raises FileNotFoundError, OSError, and CheckpointError that names every way out."""
    limit = limit_of(path)
    assert limit is not None, path
    try:
        return decode(path, read_file(fs, path, max_bytes=limit))
    except CheckpointError as exc:
        if fs.file_size(path + PREVIOUS_SUFFIX) is None:
            raise
        name = os.path.basename(path)
        raise CheckpointError(
            f"{exc}; or `triolog repair {os.path.dirname(path)}` returns to {name}{PREVIOUS_SUFFIX}, "
            "which lacks the last change"
        ) from exc


def read_previous(fs: FileSystem, path: str, decode: Callable[[str, bytes], object]) -> bytes | None:
    """The bytes of the copy from before the last change; None when there is none that can be read. Raises OSError."""
    previous = path + PREVIOUS_SUFFIX
    limit = limit_of(path)
    assert limit is not None, path
    try:
        data = read_file(fs, previous, max_bytes=limit)
        decode(previous, data)
    except (FileNotFoundError, CheckpointError):
        return None
    return data


def write_state(fs: FileSystem, path: str, data: bytes, *, durable: bool, private: bool = False) -> None:
    """Put the file in place; on the device when this returns. Raises FileTooLargeError before anything is changed, OSError."""
    check_size(path, len(data))
    if durable:
        _keep_previous(fs, path, private=private)
    replace_file(fs, path, data, durable=durable, private=private)


def _keep_previous(fs: FileSystem, path: str, *, private: bool) -> None:
    """Give the file as it is a second name; a copy, where the mount knows no links. Its name is synced with that of the new
    file."""
    previous = path + PREVIOUS_SUFFIX
    if fs.file_size(path) is None:
        return
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(previous)
    if not link_file(fs, path, previous):
        limit = limit_of(path)
        assert limit is not None, path
        with contextlib.suppress(CheckpointError):  # one that is too large is not worth keeping
            replace_file(fs, previous, read_file(fs, path, max_bytes=limit), durable=False, private=private)
