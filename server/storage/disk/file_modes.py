"""Making files and directories with a mode, whatever the umask of the process is; what is there already keeps its own.

A mount that knows no modes (vfat, some network mounts) gives what it gives.
"""

from __future__ import annotations

import contextlib
import os
import stat


def open_file(path: str, flags: int, mode: int | None) -> int:
    """Open a file, or make it with `mode` (None: as the umask has it) where `flags` ask for that. Raises OSError."""
    if mode is None or not flags & os.O_CREAT:
        return os.open(path, flags, 0o666)
    try:
        fd = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        return os.open(path, flags, mode)
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        with contextlib.suppress(OSError):
            os.fchmod(fd, mode)
    return fd


def make_directories(path: str, mode: int | None) -> None:
    """Make a directory, and those above it that are missing, unless it is there. Raises OSError."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent and not os.path.exists(parent):
        make_directories(parent, mode)
    try:
        os.mkdir(path, 0o777 if mode is None else mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    if mode is not None and stat.S_IMODE(os.stat(path).st_mode) != mode:
        with contextlib.suppress(OSError):
            os.chmod(path, mode)
