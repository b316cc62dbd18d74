"""The files of a link: which there are, which of them are rotated, and what comes next. No sockets.

| event | recognised by | then the link reads |
|---|---|---|
| new file | a name that matches, with a new inode | it from its position, or from its begin |
| rename, deletion | the name has another inode, or none | the old file to its end, until `finish_s` after the last line |
| truncation, copytruncate | other bytes before the position | the copy to its end, if any, and the file from its begin |
| loss of its end in a power cut | other bytes before the position, but not before an earlier one | it from there |
| rename while ingest was stopped | a position whose inode has another name in the same directory | that file to its end |

A copy is a file beside the truncated one whose name begins with its name, and which has the bytes that the position was stored
for. Lines that are in no copy are lost; a warning says so. A file whose name matches none any more, and that is at its end,
keeps its position until it is deleted: the inode is not a new file.
"""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from .file_position import FileId, FilePosition
from .file_settings import FileLink
from .followed_file import LINES_AT_ONCE, FollowedFile, Line, TruncatedError

LOGGER: Final = logging.getLogger(__name__)

SCAN_S: Final = 1.0
"""Between two looks for new and rotated files."""
MAX_TROUBLES: Final = 100
"""Files that the status and the log name. A directory may have a million that cannot be followed."""
MORE: Final = "and others"


@attrs.define(eq=False, repr=False)
class Following:
    """Owner: the thread of one link. Files stay open over sessions: a deleted one can be opened no more."""

    link: FileLink
    scan_s: float = SCAN_S
    clock_s: Callable[[], float] = time.monotonic
    troubles: dict[str, str] = attrs.field(factory=dict)
    """What cannot be read, and why."""
    truncated: int = 0
    """Files that were found truncated."""
    _files: dict[FileId, FollowedFile] = attrs.field(factory=dict)
    _positions: dict[FileId, FilePosition] = attrs.field(factory=dict)
    """Of files that are not open."""
    _scanned_s: float = float("-inf")
    _turn: int = 0

    def restore(self, positions: Iterable[FilePosition]) -> None:
        """Begin a session: the server has these positions."""
        stored = {position.file: position for position in positions}
        for file in [file for file in self._files.values() if file.is_copy and file.id not in stored]:
            self._files.pop(file.id).close()
        self._positions = {known: position for known, position in stored.items() if known not in self._files}
        for file in list(self._files.values()):
            position = stored.get(file.id)
            try:
                self._restore(file, position)
            except OSError as exc:
                self._give_up(file, position, exc)
        self._scanned_s = float("-inf")

    def read(self) -> list[Line]:
        """Return the next lines of files whose turn it is, in the order of each. `stored` comes before the next call."""
        now_s = self.clock_s()
        if now_s - self._scanned_s >= self.scan_s:
            self._scan(now_s)
            self._scanned_s = now_s
        lines: list[Line] = []
        size, files = 0, list(self._files.values())
        self._turn += 1
        for number in range(len(files)):
            file = files[(number + self._turn) % len(files)]
            found = self._read_one(file, now_s)
            if found:
                file.changed_s = now_s
                lines += found
                size += found[-1].end - found[0].offset
            if size >= self.link.batch_bytes or len(lines) >= LINES_AT_ONCE:
                break
        return lines

    def resets(self) -> list[FilePosition]:
        """Return positions to store with the lines of the last read: those of files that begin again."""
        return [file.position_at(0) for file in self._files.values() if file.is_reset]

    def stored(self, lines: Iterable[Line]) -> None:
        """The lines of the last read are durable, and so are their positions and the resets."""
        for file in self._files.values():
            file.is_reset = False
        for file, end in last_ends(lines).items():
            file.advance(end)
            file.is_copy = False

    def finished(self) -> list[FileId]:
        """Return the files whose positions nobody needs any more, and forget them."""
        gone = [file.id for file in self._files.values() if self._is_finished(file) and file.is_deleted]
        for file in [file for file in self._files.values() if self._is_finished(file)]:
            del self._files[file.id]
            if file.id not in gone and file.offset:
                self._positions[file.id] = file.position_at(file.offset)
            file.close()
        return gone

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _read_one(self, file: FollowedFile, now_s: float) -> list[Line]:
        try:
            if file.before is not None:
                if file.before.has_unread:
                    return []
                file.before = None
            return file.read(is_ending=self._is_quiet(file, now_s))
        except TruncatedError:
            position = file.position_at(file.offset)
            file.restart()
            self._was_truncated(file, position)
        except OSError as exc:
            self._note(file.path, exc)
        return []

    def _is_quiet(self, file: FollowedFile, now_s: float) -> bool:
        return file.is_rotated and now_s - file.changed_s >= self.link.finish_s

    def _is_finished(self, file: FollowedFile) -> bool:
        try:
            return self._is_quiet(file, self.clock_s()) and file.size <= file.offset
        except OSError:  # NFS has no file any more that was deleted elsewhere
            return True

    def _restore(self, file: FollowedFile, position: FilePosition | None) -> None:
        if position is None:
            file.restart()
        elif file.restore(position):
            self._was_truncated(file, position)
        elif file.offset < position.offset:
            LOGGER.warning(
                "end of file lost: link=%s path=%s stored_to=%d: lines from offset %d on are stored again",
                self.link.name,
                file.path,
                position.offset,
                file.offset,
            )

    def _give_up(self, file: FollowedFile, position: FilePosition | None, error: OSError) -> None:
        """Close a file that cannot be read. The next scan tries again, from the same position."""
        self._note(file.path, error)
        self._files.pop(file.id).close()
        if position is not None:
            self._positions[file.id] = position

    def _note(self, path: str, error: OSError | str) -> None:
        is_named = path in self.troubles or len(self.troubles) < MAX_TROUBLES
        why = error if isinstance(error, str) else error.strerror or str(error)
        self.troubles[path if is_named else MORE] = why

    def _was_truncated(self, file: FollowedFile, position: FilePosition) -> None:
        """Follow the copy that was made before the file was truncated, from its position."""
        self.truncated += 1
        file.is_reset = True
        LOGGER.warning("file truncated: link=%s path=%s stored_to=%d", self.link.name, file.path, position.offset)
        name = os.path.basename(file.path)
        for path, found in self._beside(file.path):
            if not os.path.basename(path).startswith(name) or found in self._files or found in self._positions:
                continue
            copy = self._opened(path, position)
            if copy is not None:
                copy.restore(position)
                copy.is_rotated, copy.is_copy, copy.changed_s, copy.path = True, True, self.clock_s(), file.path
                copy.before, file.before = file.before, copy
                self._files[copy.id] = copy
                LOGGER.info("copy found: link=%s path=%s copy=%s", self.link.name, file.path, path)
                return
        LOGGER.warning(
            "no copy found: link=%s path=%s: lines that were written after offset %d and before the truncation are lost",
            self.link.name,
            file.path,
            position.offset,
        )

    def _scan(self, now_s: float) -> None:
        self.troubles = {}
        there: dict[FileId, str] = {}
        for path in self._matching():
            try:
                found = os.stat(path)
            except OSError as exc:
                if not isinstance(exc, FileNotFoundError):
                    self._note(path, exc)
                continue
            if not stat.S_ISREG(found.st_mode):  # opening a pipe would let a program write that waits for its reader
                continue
            there.setdefault(FileId(found.st_dev, found.st_ino), path)
        before: dict[str, FollowedFile] = {}
        for file in self._files.values():
            name = there.pop(file.id, None)
            if name is not None:
                file.path = name
            else:
                before[file.path] = file
            if file.is_rotated != (name is None):
                file.is_rotated, file.changed_s = name is None, now_s
        for path in there.values():
            self._follow(path, now_s, before=before.get(path))
        self._find_renamed(now_s)

    def _follow(
        self, path: str, now_s: float, *, renamed: FilePosition | None = None, before: FollowedFile | None = None
    ) -> FollowedFile | None:
        if len(self._files) >= self.link.max_files:
            self._note(path, f"more than max_files={self.link.max_files} files")
            return None
        file = self._opened(path, renamed)
        if file is None or file.id in self._files:
            if file is not None:
                file.close()
            return None
        file.is_rotated, file.changed_s, file.before = renamed is not None, now_s, before
        self._files[file.id] = file
        position = self._positions.pop(file.id, None)
        try:
            position = position or self._moved(file)
            self._restore(file, position)
        except OSError as exc:
            self._give_up(file, position, exc)
            return None
        return file

    def _moved(self, file: FollowedFile) -> FilePosition | None:
        """Return a position of the same inode on another device: numbers of devices may change with a start of the machine."""
        for known, position in list(self._positions.items()):
            if known.inode == file.id.inode and position.path == file.path and file.newest_of(position) is not None:
                del self._positions[known]
                return attrs.evolve(position, file=file.id)
        return None

    def _find_renamed(self, now_s: float) -> None:
        """Follow the files of positions that have another name now and are not read to their end."""
        by_path = {file.path: file for file in self._files.values() if not file.is_rotated}
        by_directory: dict[str, list[FilePosition]] = {}
        for position in self._positions.values():
            by_directory.setdefault(os.path.dirname(position.path), []).append(position)
        for positions in by_directory.values():
            paths = {found: path for path, found in self._beside(positions[0].path)}
            for position in positions:
                path = paths.get(position.file)
                if path is None:
                    continue
                try:
                    is_longer = os.stat(path).st_size > position.offset
                except OSError:
                    continue
                found = self._follow(path, now_s, renamed=position) if is_longer else None
                if found is not None:
                    found.path = position.path
                now_there = by_path.get(position.path)
                if found is not None and now_there is not None and now_there.before is None:
                    now_there.before = found

    def _beside(self, path: str) -> Iterator[tuple[str, FileId]]:
        """Yield the files of its directory; none if that is not there."""
        directory = os.path.dirname(path) or "."
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    try:
                        if entry.is_file(follow_symlinks=False):
                            found = entry.stat(follow_symlinks=False)
                            yield entry.path, FileId(found.st_dev, found.st_ino)
                    except OSError:
                        continue
        except OSError as exc:
            self._note(directory, exc)

    def _matching(self) -> list[str]:
        paths: dict[str, None] = {}
        for pattern in self.link.files:
            where = os.path.join(glob.escape(pattern), "*") if os.path.isdir(pattern) else pattern
            found = list(_expanded(where))
            if not found and not glob.has_magic(pattern) and not os.path.exists(pattern):
                self._note(pattern, "it does not exist yet")
            paths |= dict.fromkeys(sorted(found))
        return [
            path
            for path in paths
            if not any(fnmatch.fnmatch(os.path.basename(path), each) for each in self.link.exclude) and not os.path.isdir(path)
        ]

    def _opened(self, path: str, position: FilePosition | None = None) -> FollowedFile | None:
        """Return the file; None if it cannot be read, or has not the bytes of `position`: another file may have its inode."""
        file = None
        try:
            file = FollowedFile.open(path, self.link.max_line_bytes)
            if file is None or position is None or file.is_at(position):
                return file
        except OSError as exc:
            if not isinstance(exc, FileNotFoundError):
                self._note(path, exc)
        if file is not None:
            file.close()
        return None


def _expanded(pattern: str) -> Iterator[str]:
    """Yield the paths of a glob. As in the module `glob`, but `**` enters each directory once."""
    parts = pattern.split(os.sep)
    if "**" not in parts:
        yield from glob.glob(pattern)
        return
    at = parts.index("**")
    above, below = os.sep.join(parts[:at]), os.sep.join(parts[at + 1 :]) or "*"
    for base in glob.glob(above) if above else [os.sep if at else os.curdir]:
        for directory in _directories(base):
            for path in _expanded(os.path.join(glob.escape(directory), below)):
                yield path if above or at else path.removeprefix(os.curdir + os.sep)


def _directories(base: str) -> Iterator[str]:
    """Yield a directory and those below it, hidden ones left out. Each comes once: links may form a loop."""
    seen: set[tuple[int, int]] = set()
    for directory, names, _ in os.walk(base, followlinks=True):
        try:
            found = os.stat(directory)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) in seen:
            names.clear()
            continue
        seen.add((found.st_dev, found.st_ino))
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield directory


def last_ends(lines: Iterable[Line]) -> Mapping[FollowedFile, int]:
    """Return where the last line of each file ends."""
    return {line.file: line.end for line in lines}
