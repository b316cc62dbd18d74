"""A file that is read line by line, while others append to it, rename it, truncate it or delete it. Owner: `Following`.

*Invariants*: `offset` moves only in `advance`, after the lines before it are stored. Bytes are returned as lines only if the
bytes before them are those of the position (see `file_position`) after the read, too: so no line mixes the content before and
after a truncation. Memory: one chunk, which holds a line of `max_line_bytes`; the rest of a longer line is searched, not
kept.
"""

from __future__ import annotations

import os
import stat
from typing import Final

import attrs

from .file_position import CHECKED_BYTES, MARK_S, MAX_MARKS, FileId, FilePosition, Mark, digest

CHUNK_BYTES: Final = 256 * 1024
PIECES_AT_ONCE: Final = 64
"""Of a line above the limit: a sparse file may have one of many TB, and the link is to stop meanwhile."""
LINES_AT_ONCE: Final = 20_000
"""Of a read: a line costs some hundred bytes of memory, however short it is."""


@attrs.define(eq=False, repr=False)
class Line:
    """A line of a file, without its newline."""

    file: FollowedFile
    offset: int
    """Where it begins."""
    end: int
    """Where the next one begins."""
    value: bytes
    size: int
    """In the file; `value` has less if it is above the limit."""
    arrived_ms: int = 0


class TruncatedError(Exception):
    """The bytes before the position are not those that were stored."""


@attrs.define(eq=False, repr=False)
class FollowedFile:
    """A file that is open."""

    path: str
    """The name under which programs write to it, or wrote before it was renamed or copied."""
    id: FileId
    max_line_bytes: int
    _fd: int
    offset: int = 0
    is_rotated: bool = False
    """Whether its name belongs to another file or to none, so that it will end."""
    is_copy: bool = False
    """Whether it was found as the copy of a truncated file, and its position may not be stored yet."""
    before: FollowedFile | None = None
    """The file whose lines come first: this one has its name, or was truncated after it was copied."""
    is_reset: bool = False
    """Whether it begins again, and the stored position does not say so yet."""
    changed_s: float = 0.0
    """The monotonic time at which it last had a new line, or was rotated."""
    _head: bytes = b""
    _tail: bytes = b""
    """The bytes before `offset`."""
    _window: bytes = b""
    """The bytes after `_tail` that the last read has returned as lines."""
    _marks: tuple[Mark, ...] = ()
    _marked_s: float = float("-inf")
    _long_end: int = 0
    """Of a line above the limit: no newline lies before this offset."""
    _long_head: bytes = b""
    _long_tail: bytes = b""
    """The first bytes of that line, and the last ones before `_long_end`."""

    @classmethod
    def open(cls, path: str, max_line_bytes: int) -> FollowedFile | None:
        """Return the file; None if it is none, such as a directory or a pipe. Raises OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            return None
        return cls(path, FileId(found.st_dev, found.st_ino), max_line_bytes, fd)

    @property
    def is_deleted(self) -> bool:
        """Return whether it is known that the file has no name any more."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def has_unread(self) -> bool:
        """Return whether bytes are left of it, or of the files whose lines come first."""
        return self._fd >= 0 and (self.size > self.offset or (self.before is not None and self.before.has_unread))

    def is_at(self, position: FilePosition) -> bool:
        """Return whether the file has the bytes that the position was stored for. Raises OSError."""
        count = position.checked
        head, tail = os.pread(self._fd, count, 0), os.pread(self._fd, count, position.offset - count)
        return len(tail) == count and digest(head) == position.head and digest(tail) == position.tail

    def newest_of(self, position: FilePosition) -> FilePosition | None:
        """Return the position if the file is at it, else the newest of its marks that the file has. Raises OSError."""
        marks = position.marks
        while not self.is_at(position):
            if not marks:
                return None
            *earlier, (offset, tail) = marks
            marks = tuple(earlier)
            position = attrs.evolve(position, offset=offset, tail=tail, marks=marks)
        return position

    def restore(self, position: FilePosition | None) -> bool:
        """Continue at a position, or at its newest mark that the file has; without one, or if the file has other bytes by now,
        at its begin. Return whether it had others. Raises OSError."""
        found = None if position is None else self.newest_of(position)
        self._forget()
        if found is not None:
            self.offset, count, self._marks = found.offset, found.checked, found.marks
            self._head, self._tail = os.pread(self._fd, count, 0), os.pread(self._fd, count, found.offset - count)
        return found is None and position is not None

    def restart(self) -> None:
        """Begin again, because the file was truncated."""
        self._forget()

    def read(self, *, is_ending: bool) -> list[Line]:
        """Return the next lines, as many as fit a chunk. `is_ending`: the rest without a newline is a line, too. Raises
        TruncatedError, OSError."""
        if self.size < self.offset:
            raise TruncatedError
        limit = self.max_line_bytes
        data = os.pread(self._fd, max(CHUNK_BYTES, limit + 1), self.offset)
        if not data:
            self._check()
            return []
        end = data.rfind(b"\n") + 1
        if not end and len(data) > limit:
            return self._read_long(data, is_ending=is_ending)
        self._check()
        if not end and is_ending:
            self._window = data
            return [Line(self, self.offset, self.offset + len(data), data, len(data))]
        *values, rest = data[:end].split(b"\n", LINES_AT_ONCE)
        self._window = data[: end - len(rest)]
        lines, offset = [], self.offset
        for value in values:
            size = len(value)
            lines.append(Line(self, offset, offset + size + 1, value[:limit], size))
            offset += size + 1
        return lines

    def _read_long(self, data: bytes, *, is_ending: bool) -> list[Line]:
        """The line is above the limit: look for its end, a chunk at a time."""
        searched = max(self._long_end, self.offset + len(data))
        tail, found = self._long_tail or data[-CHECKED_BYTES:], 0
        for _ in range(PIECES_AT_ONCE):
            chunk = os.pread(self._fd, CHUNK_BYTES, searched)
            found = chunk.find(b"\n") + 1
            tail = (tail + (chunk[:found] if found else chunk))[-CHECKED_BYTES:]
            searched += found or len(chunk)
            if found or not chunk:
                break
        self._check()
        self._long_end, self._long_head, self._long_tail = searched, data[:CHECKED_BYTES], tail
        if not found and (chunk or not is_ending):
            return []
        size = searched - self.offset - (1 if found else 0)
        return [Line(self, self.offset, searched, data[: self.max_line_bytes], size)]

    def _check(self) -> None:
        """Raises TruncatedError."""
        if os.pread(self._fd, len(self._tail), self.offset - len(self._tail)) != self._tail:
            raise TruncatedError
        if os.pread(self._fd, len(self._head), 0) != self._head:
            raise TruncatedError

    def position_at(self, end: int) -> FilePosition:
        """Return the position after a line of the last read."""
        head, tail = self._ends(end)
        return FilePosition(
            file=self.id, path=self.path, offset=end, head=digest(head), tail=digest(tail), marks=self._marks if end else ()
        )

    def advance(self, end: int) -> None:
        """The lines of the last read up to here are stored."""
        if self.changed_s - self._marked_s >= MARK_S and self.offset >= CHECKED_BYTES:
            self._marks = (*self._marks, (self.offset, digest(self._tail)))[-MAX_MARKS:]
            self._marked_s = self.changed_s
        self._head, self._tail = self._ends(end)
        self._window = b"" if self._long_end == end else self._window[end - self.offset :]
        self.offset, self._long_end, self._long_head, self._long_tail = end, 0, b"", b""

    def _ends(self, end: int) -> tuple[bytes, bytes]:
        """Return the first bytes of the file and the last ones before `end`."""
        count = min(CHECKED_BYTES, end)
        if self._long_end == end:
            begin, known = self._long_head, self._tail + self._long_tail
        else:
            begin = self._window[: end - self.offset]
            known = self._tail + begin
        return (self._head + begin)[:count], known[-count:] if count else b""

    def _forget(self) -> None:
        self.offset, self._head, self._tail, self._window, self._marks = 0, b"", b"", b"", ()
        self._long_end, self._long_head, self._long_tail = 0, b"", b""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
