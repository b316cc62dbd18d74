"""Followed files against a model: programs append to, rotate, truncate and delete files, and ingest is killed and starts again.
Each line comes exactly once, and those of a file in order."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.tools.ingest import followed_file
from triolog.tools.ingest.file_position import MAX_MARKS, FileId, FilePosition
from triolog.tools.ingest.file_settings import FileLink
from triolog.tools.ingest.followed_file import Line
from triolog.tools.ingest.following import MAX_TROUBLES, MORE, Following, last_ends
from triolog.tools.ingest.settings import INGEST

from tests.support.counts import counts

MAX_LINE: Final = 3000


def link_of(*files: object, **keys: Any) -> FileLink:
    table = {"name": "test", "topic": "lines", "files": [str(each) for each in files], "max_line_bytes": MAX_LINE, **keys}
    link: FileLink = INGEST.read_link("the test", table)
    return link


OPEN: Final[list[Ingesting]] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_all()


def close_all() -> None:
    """Close the files of every link of a test."""
    while OPEN:
        OPEN.pop().following.close()


@attrs.define(eq=False)
class Ingesting:
    """Ingest without a server: what a transaction stores is in `lines` and `positions`."""

    link: FileLink
    now_s: float = 0.0
    lines: list[tuple[str, bytes]] = attrs.field(factory=list)
    """The name of the file at the time of reading, and the line; cut if it is too long."""
    positions: dict[FileId, FilePosition] = attrs.field(factory=dict)
    following: Following = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A process begins."""
        OPEN.append(self)
        self.following = Following(self.link, scan_s=0, clock_s=lambda: self.now_s)
        self.restore()

    def restore(self) -> None:
        """A session begins: positions come from a topic, as bytes."""
        stored = [FilePosition.decode(each.encode()) for each in self.positions.values()]
        self.following.restore(stored)

    def kill(self) -> None:
        self.following.close()  # as the kernel does
        self.start()

    def read(self) -> Sequence[Line]:
        lines = self.following.read()
        assert sum(line.end - line.offset for line in lines) <= self.link.batch_bytes + followed_file.CHUNK_BYTES + MAX_LINE
        return lines

    def commit(self, lines: Sequence[Line]) -> None:
        """A transaction is stored."""
        self.lines += ((line.file.path, line.value) for line in lines)
        self.positions |= {position.file: position for position in self.following.resets()}
        for file, end in last_ends(lines).items():
            self.positions[file.id] = file.position_at(end)

    def step(self) -> bool:
        lines = self.read()
        self.commit(lines)
        self.following.stored(lines)
        if not lines:
            for each in self.following.finished():
                self.positions.pop(each, None)
        return bool(lines)

    def settle(self, seconds: float = 0) -> list[bytes]:
        """Read all that there is, with so much time between, and return the new lines."""
        before = len(self.lines)
        while self.step():
            pass
        self.now_s += seconds
        while self.step():
            pass
        return [value for _, value in self.lines[before:]]

    def values(self) -> list[bytes]:
        return [value for _, value in self.lines]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def test_lines_come_once_and_a_rest_without_newline_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    ingesting = Ingesting(link_of(path))
    assert ingesting.settle() == []
    assert ingesting.following.troubles == {str(path): "it does not exist yet"}
    append(path, b"1\n\n\r\n\0\xff\nre")
    assert ingesting.settle() == [b"1", b"", b"\r", b"\0\xff"]
    assert ingesting.following.troubles == {}
    assert ingesting.settle(3600) == []
    append(path, b"st\n")
    assert ingesting.settle() == [b"rest"]


def test_a_renamed_file_is_read_to_its_end_and_its_rest_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"1\n2")
    ingesting = Ingesting(link_of(path))
    assert ingesting.settle() == [b"1"]
    path.rename(tmp_path / "a.log.1")
    append(path, b"new\n")
    append(tmp_path / "a.log.1", b"2\nrest")
    assert ingesting.settle() == [b"22"], "the new file waits for the old one"
    assert ingesting.settle(6) == [b"rest", b"new"]
    ingesting.kill()
    assert ingesting.settle(6) == []
    append(tmp_path / "a.log.1", b"late\n")
    assert ingesting.settle() == [b"late"]


def test_a_file_that_was_renamed_while_ingest_was_stopped_is_found_by_its_inode(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"1\n")
    ingesting = Ingesting(link_of(path))
    ingesting.settle()
    ingesting.following.close()
    append(path, b"2\n")
    path.rename(tmp_path / "a.log-20261129")
    append(path, b"3\n")
    ingesting.start()
    assert ingesting.settle() == [b"2", b"3"]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_truncated_file_begins_again_and_its_copy_is_read_to_its_end(tmp_path: Path, is_stopped: bool) -> None:
    path, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    append(path, b"1\n")
    ingesting = Ingesting(link_of(path))
    ingesting.settle()
    if is_stopped:
        ingesting.following.close()
    append(path, b"2\n")
    copy.write_bytes(path.read_bytes())
    os.truncate(path, 0)
    append(path, b"9\n8\n7\n")  # longer than before
    if is_stopped:
        ingesting.start()
    assert ingesting.settle() == [b"2", b"9", b"8", b"7"]
    ingesting.kill()
    assert ingesting.settle(6) == []


def test_a_deleted_file_is_read_to_its_end_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"1\n")
    ingesting = Ingesting(link_of(path))
    ingesting.settle()
    append(path, b"2\nrest")
    path.unlink()
    assert ingesting.settle(6) == [b"2", b"rest"]
    ingesting.settle(6)
    assert ingesting.positions == {}, "its inode may be used again"
    append(path, b"1\n2\n")
    assert ingesting.settle() == [b"1", b"2"]


def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"first\nsecond\n")
    ingesting = Ingesting(link_of(path))
    ingesting.settle()
    ingesting.following.close()
    path.write_bytes(b"FIRST\nSECOND\nthird\n")  # the same inode, other bytes
    ingesting.start()
    assert ingesting.settle() == [b"FIRST", b"SECOND", b"third"]


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes to a pipe waits for its reader, and is killed when that closes the pipe."""
    opened, original = [], os.open

    def noted(path: Any, *arguments: Any, **keywords: Any) -> int:
        opened.append(path)
        return original(path, *arguments, **keywords)

    os.mkfifo(tmp_path / "pipe")
    append(tmp_path / "a.log", b"1\n")
    monkeypatch.setattr(followed_file.os, "open", noted)
    assert Ingesting(link_of(tmp_path)).settle() == [b"1"]
    assert opened == [str(tmp_path / "a.log")]


@pytest.mark.parametrize("appended", [b"", b"after the power cut\n" * 500], ids=["lost", "lost and continued"])
def test_a_file_that_lost_its_end_in_a_power_cut_continues_before_the_lost_part(tmp_path: Path, appended: bytes) -> None:
    path = tmp_path / "a.log"
    ingesting = Ingesting(link_of(path))
    lines = [b"line %d of this file" % number for number in range(2000)]
    for start in range(0, 2000, 100):  # 10 s each
        append(path, b"".join(each + b"\n" for each in lines[start : start + 100]))
        ingesting.settle(10)
    [position] = ingesting.positions.values()
    assert len(position.marks) == MAX_MARKS
    kept = path.read_bytes().index(b"line 1650 ") + 7  # in the middle of a line
    os.truncate(path, kept)
    ingesting.kill()
    append(path, appended)
    again = ingesting.settle(60)
    whole = [b"line 16" + each for each in appended.splitlines()[:1]] + appended.splitlines()[1:]
    assert again == [*lines[1600:1650], *whole]
    assert ingesting.following.truncated == 0
    ingesting.kill()
    assert ingesting.settle(60) == []


def test_a_file_that_lost_more_than_the_marks_is_read_from_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    ingesting = Ingesting(link_of(path))
    for number in range(2 * MAX_MARKS):
        append(path, (b"%d" % number) * 1000 + b"\n")
        ingesting.settle(10)
    os.truncate(path, 3000)
    ingesting.kill()
    assert ingesting.settle() == [b"0" * 1000, b"1" * 1000]
    assert ingesting.following.truncated == 1


def test_a_foreign_file_with_the_inode_of_a_deleted_one_is_not_read(tmp_path: Path) -> None:
    path, foreign = tmp_path / "a.log", tmp_path / "a.log.2.gz"
    append(path, b"1\n")
    ingesting = Ingesting(link_of(path))
    ingesting.settle()
    ingesting.following.close()
    path.unlink()
    append(foreign, b"not a line of the log\n")
    [position] = ingesting.positions.values()
    found = foreign.stat()
    ingesting.positions = {FileId(found.st_dev, found.st_ino): attrs.evolve(position, file=FileId(found.st_dev, found.st_ino))}
    ingesting.start()
    assert ingesting.settle(60) == []
    append(path, b"2\n")
    assert ingesting.settle() == [b"2"]


def test_a_device_error_of_one_file_stops_no_other_and_its_position_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, pread = tmp_path / "bad.log", os.pread
    append(bad, b"1\n")
    append(tmp_path / "good.log", b"2\n")
    ingesting = Ingesting(link_of(tmp_path / "*.log"))
    ingesting.settle()
    append(bad, b"3\n")

    def failing(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == bad.stat().st_ino:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, size, offset)

    monkeypatch.setattr(followed_file.os, "pread", failing)
    ingesting.restore()  # a session after a failure
    append(tmp_path / "good.log", b"4\n")
    assert ingesting.settle() == [b"4"]
    ingesting.kill()
    append(tmp_path / "good.log", b"5\n")
    assert ingesting.settle() == [b"5"]
    assert ingesting.following.troubles == {str(bad): os.strerror(errno.EIO)}
    monkeypatch.undo()
    assert ingesting.settle() == [b"3"]


def test_a_file_that_nfs_has_forgotten_is_closed_and_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, fstat = tmp_path / "gone.log", os.fstat
    append(gone, b"1\n")
    ingesting = Ingesting(link_of(tmp_path / "*.log"))
    ingesting.settle()
    [file] = ingesting.following._files.values()
    gone.unlink()

    def stale(fd: int) -> os.stat_result:
        if fd == file._fd:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return fstat(fd)

    monkeypatch.setattr(followed_file.os, "fstat", stale)
    append(tmp_path / "other.log", b"2\n")
    assert ingesting.settle(60) == [b"2"]
    assert file not in ingesting.following._files.values()


def test_many_short_lines_come_in_batches_of_a_limited_number(tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"\n" * 50_000 + b"last\n")
    ingesting = Ingesting(link_of(tmp_path / "a.log"))
    sizes = []
    while lines := ingesting.read():
        sizes.append(len(lines))
        ingesting.commit(lines)
        ingesting.following.stored(lines)
    assert (sizes, ingesting.values()[-1]) == ([20_000, 20_000, 10_001], b"last")


@pytest.mark.parametrize("size", [MAX_LINE, MAX_LINE + 1, 3 * followed_file.CHUNK_BYTES])
def test_a_line_above_the_limit_comes_cut_and_the_file_continues(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.log"
    long = bytes(random.Random(size).choices(b"abc", k=size))
    append(path, b"1\n" + long)
    ingesting = Ingesting(link_of(path))
    assert ingesting.settle(60) == [b"1"]
    append(path, b"\n2\n")
    found = ingesting.read()
    assert [(line.value, line.size) for line in found][:1] == [(long[:MAX_LINE], size)]
    ingesting.kill()
    assert ingesting.settle() == [long[:MAX_LINE], b"2"]
    ingesting.kill()
    append(path, b"3\n")
    assert ingesting.settle() == [b"3"]


def test_a_very_long_line_is_searched_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a link stops in time, whatever is in a file."""
    monkeypatch.setattr(followed_file, "PIECES_AT_ONCE", 2)
    path = tmp_path / "a.log"
    path.touch()
    os.truncate(path, 10 * followed_file.CHUNK_BYTES)  # sparse, as after a truncation under a program that keeps its offset
    append(path, b"end\n2\n")
    ingesting = Ingesting(link_of(path))
    found = [ingesting.following.read() for _ in range(5)]
    assert found[:4] == [[]] * 4
    assert found[4][0].size == 10 * followed_file.CHUNK_BYTES + 3
    ingesting.kill()
    for _ in range(7):
        lines = ingesting.following.read()
        ingesting.commit(lines)
        ingesting.following.stored(lines)
    assert ingesting.values() == [b"\0" * MAX_LINE, b"2"]


def test_directories_and_globs_find_files_that_are_made_later(tmp_path: Path) -> None:
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    ingesting = Ingesting(link_of(tmp_path / "logs", tmp_path / "**" / "*.txt"))
    append(tmp_path / "logs" / "a", b"1\n")
    append(tmp_path / "logs" / "a.gz", b"packed\n")
    append(tmp_path / "logs" / "deep" / "b.txt", b"2\n")
    append(tmp_path / "logs" / "deep" / "c.other", b"3\n")
    os.mkfifo(tmp_path / "logs" / "pipe")
    assert sorted(ingesting.settle()) == [b"1", b"2"]


def test_two_stars_find_each_directory_once_over_loops_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "logs" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs" / ".hidden").mkdir()
    (deep / "loop").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "there").symlink_to(tmp_path / "elsewhere")
    for number, folder in enumerate((deep, tmp_path / "elsewhere", tmp_path / "logs" / ".hidden", tmp_path / "logs")):
        append(folder / "a.log", b"%d\n" % number)
    expected = [str(tmp_path / "logs" / each / "a.log") for each in ("", "deep", "there")]
    assert Following(link_of(tmp_path / "logs" / "**" / "*.log"))._matching() == expected
    assert Following(link_of(tmp_path / "**" / "logs" / "**"))._matching() == expected
    monkeypatch.chdir(tmp_path / "logs")
    assert Following(link_of("**/*.log"))._matching() == ["a.log", "deep/a.log", "there/a.log"]


def test_a_directory_with_many_files_that_cannot_be_followed_has_a_short_status(tmp_path: Path) -> None:
    for number in range(MAX_TROUBLES + 50):
        append(tmp_path / f"{number}", b"1\n")
    ingesting = Ingesting(link_of(tmp_path, max_files=1))
    ingesting.settle()
    assert len(ingesting.following.troubles) == MAX_TROUBLES + 1
    assert MORE in ingesting.following.troubles


def test_files_above_the_limit_are_named_and_wait(tmp_path: Path) -> None:
    for name in "abc":
        append(tmp_path / name, name.encode() + b"\n")
    ingesting = Ingesting(link_of(tmp_path, max_files=2))
    assert sorted(ingesting.settle()) == [b"a", b"b"]
    assert ingesting.following.troubles == {str(tmp_path / "c"): "more than max_files=2 files"}
    (tmp_path / "a").unlink()
    assert ingesting.settle(6) == []
    assert ingesting.settle(6) == [b"c"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_named_and_read_later(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, b"1\n")
    path.chmod(0)
    ingesting = Ingesting(link_of(path))
    assert (ingesting.settle(), ingesting.following.troubles) == ([], {str(path): "Permission denied"})
    path.chmod(0o600)
    assert ingesting.settle() == [b"1"]


def test_a_directory_that_is_gone_is_read_on_when_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    append(folder / "a", b"1\n")
    ingesting = Ingesting(link_of(folder / "a"))
    ingesting.settle()
    ingesting.following.close()
    folder.rename(tmp_path / "unmounted")
    ingesting.start()
    assert ingesting.settle(60) == []
    assert str(folder / "a") in ingesting.following.troubles
    (tmp_path / "unmounted").rename(folder)
    append(folder / "a", b"2\n")
    assert ingesting.settle() == [b"2"]


@attrs.define(eq=False)
class Writers:
    """Programs that log to some files, and logrotate. Every line has the number of its file and of itself."""

    folder: Path
    rng: random.Random
    written: dict[int, list[bytes]] = attrs.field(factory=dict)
    rotations: int = 0
    open_rests: set[int] = attrs.field(factory=set)
    """Files whose last line has no newline yet."""

    def path(self, number: int) -> Path:
        return self.folder / f"app{number}.log"

    def write(self, number: int) -> None:
        lines = self.written.setdefault(number, [])
        data = b"\n" if number in self.open_rests else b""
        self.open_rests.discard(number)
        for _ in range(self.rng.randrange(1, 30)):
            line = b"%d %d " % (number, len(lines)) + b"x" * self.rng.choice([0, 10, 100, 1000, 2900])
            lines.append(line)
            data += line + b"\n"
        if self.rng.random() < 0.3 and data.count(b"\n") > 1:
            data = data[:-1]
            self.open_rests.add(number)
        append(self.path(number), data)

    def rename(self, number: int) -> None:
        if self.path(number).exists():
            self.rotations += 1
            self.path(number).rename(f"{self.path(number)}.{self.rotations % 90 + 10}")
            self.open_rests.discard(number)

    def copy_and_truncate(self, number: int) -> None:
        if self.path(number).exists():
            self.rotations += 1
            copy = Path(f"{self.path(number)}-2026{self.rotations:04}")
            copy.write_bytes(self.path(number).read_bytes())
            os.truncate(self.path(number), 0)
            self.open_rests.discard(number)


def one_history(folder: Path, rng: random.Random) -> None:
    writers = Writers(folder, rng)
    ingesting = Ingesting(link_of(folder / "*.log", batch_bytes=rng.choice([1, 5000, 10**6])))
    seen: list[list[bytes]] = []
    for _ in range(rng.randrange(5, 60)):
        number = rng.randrange(3)
        kind = rng.choices(["write", "rename", "copytruncate", "step", "kill", "undone", "time"], [8, 2, 2, 8, 2, 2, 2])[0]
        if kind == "write":
            writers.write(number)
        elif kind == "rename":
            ingesting.settle(6)  # what was never read has no position, and is not found after a restart
            ingesting.settle(6)
            writers.rename(number)
        elif kind == "copytruncate":  # what was never read has no position, and its copy is not found
            writers.write(number)
            ingesting.settle(6)
            ingesting.settle(6)
            writers.write(number)
            writers.copy_and_truncate(number)
            ingesting.settle()
        elif kind == "step":
            ingesting.step()
        elif kind == "kill":  # before or after the transaction
            lines = ingesting.read()
            if rng.random() < 0.5:
                ingesting.commit(lines)
            ingesting.kill()
        elif kind == "undone":  # the transaction is aborted or in doubt, and the session begins again
            lines = ingesting.read()
            if rng.random() < 0.5:
                ingesting.commit(lines)
            ingesting.restore()
        else:
            ingesting.now_s += rng.choice([1, 10])
            seen.append(ingesting.values())
    for number in writers.open_rests:
        append(writers.path(number), b"\n")
    for _ in range(10):
        ingesting.settle(6)
    for number, lines in writers.written.items():
        found = [value for value in ingesting.values() if value.startswith(b"%d " % number)]
        assert found == lines, f"file {number}"


@pytest.mark.parametrize("part", range(10))
def test_each_line_comes_exactly_once_and_in_order_whatever_happens_to_files_and_ingest(tmp_path: Path, part: int) -> None:
    for number in range(counts(1000, merge=60, commit=12)):
        folder = tmp_path / str(number)
        folder.mkdir()
        one_history(folder, random.Random(1000 * part + number))
        close_all()
