"""Files of a file system in memory, where a start costs less than on a real one and can be made thousands of times."""

from __future__ import annotations

from triolog.server.storage.disk.filesystem import CREATE

from tests.support.crash_fs import CrashFileSystem


def put(fs: CrashFileSystem, path: str, content: bytes) -> None:
    """Let a file have that content."""
    fd = fs.open(path, CREATE)
    try:
        fs.truncate(fd, 0)
        if content:
            fs.write(fd, [content], 0)
    finally:
        fs.close(fd)


def logs_of(fs: CrashFileSystem) -> dict[str, bytes]:
    """Content of every segment's log by its path."""
    return {path: content for path, content in fs.tree().items() if path.endswith(".log")}
