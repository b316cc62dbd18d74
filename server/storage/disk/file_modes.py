"""Opening files, which are regular ones, and making files and directories with a mode, whatever the umask of the process is;
what is there already keeps its own. A pipe or a device under a file's name is an error at once: to open one can wait for ever,
and to read one has no end. Nothing is made through a symbolic link.

A mount that knows no modes (vfat, some network mounts) gives what it gives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat


def open_file(path: str, flags: int, mode: int | None) -> int:
    """Open a file, or make it with `mode` (None: as the umask has it) where `flags` ask for that. Raises OSError."""
    if not flags & os.O_CREAT:
        return open_regular(path, flags)
    flags |= os.O_NOFOLLOW
    if mode is None:
        return open_regular(path, flags, 0o666)
    try:
        fd = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return open_regular(path, flags, mode)
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        with contextlib.suppress(OSError):
            os.fchmod(fd, mode)
    return fd


def open_regular(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a regular file; OSError for anything else. (O_NONBLOCK means nothing to a regular file.)"""
    fd = os.open(path, flags | os.O_NONBLOCK, mode)
    if not stat.S_ISREG(kind := os.fstat(fd).st_mode):
        os.close(fd)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, "is a directory" if stat.S_ISDIR(kind) else "is no regular file", path)
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
