"""File systems between a log and the device: for a log that waits for space, one that remembers names, one that syncs later."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.server.storage.disk.filesystem import CREATE, READ, WRITE, FileSystem, OsFileSystem, read_file, replace_file
from triolog.server.storage.disk.filesystem_layers import LaterSyncs, RememberedNames
from triolog.server.storage.disk.memory_overlay import MOST_TAIL_BYTES, MemoryOverlay

from tests.support.counting_fs import CallCountingFileSystem
from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem

MOST_BYTES: Final = 1 << 20
NAMES: Final = ("a.index", "b.index", "c.snapshot", "d.deleted", "leader-epoch-checkpoint")


def content(fs: FileSystem, path: str) -> bytes:
    return read_file(fs, path, max_bytes=1 << 20)


def tree(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def outcome(call: Any, *arguments: Any) -> Any:
    """What a call answers, or the number of its OSError."""
    try:
        return call(*arguments)
    except OSError as exc:
        return errno.errorcode[exc.errno]


def change_at_random(fs: FileSystem, directory: str, rng: random.Random) -> list[Any]:
    """Some operations that storage makes on files that it writes; what each of them answers."""
    seen: list[Any] = []
    for _ in range(30):
        path, other = (f"{directory}/{rng.choice(NAMES)}" for _ in range(2))
        position, data = rng.randrange(40), rng.randbytes(rng.randrange(40))
        match rng.randrange(8):
            case 0:
                seen.append(outcome(replace_file, fs, path, data))
            case 1:
                seen.append(outcome(fs.unlink, path))
            case 2:
                seen.append(outcome(fs.rename, path, other))
            case 3:
                seen.append(outcome(content, fs, path))
            case kind:
                seen.append(outcome(_change_one, fs, path, rng.choice((CREATE, WRITE, READ)), position, data, kind))
        seen.append((fs.list_directory(directory), [fs.file_size(f"{directory}/{name}") for name in NAMES]))
    return seen


def _change_one(fs: FileSystem, path: str, flags: int, position: int, data: bytes, kind: int) -> Any:
    fd = fs.open(path, flags)
    try:
        if kind < 6:
            fs.write(fd, [data[:7], data[7:]], position) if data else None
        elif kind == 6:
            fs.truncate(fd, position) if flags != READ else None
        else:
            fs.allocate(fd, position + 1) if flags != READ else None
        size = fs.size(fd)
        view = bytes(fs.map(fd, size)) if size else b""
        return size, fs.read(fd, 100, position), fs.read_cached(fd, size, 0), view
    finally:
        fs.close(fd)


def test_it_answers_as_the_real_file_system_and_the_device_stays_as_it_is(tmp_path: Path) -> None:
    for seed in seeds(60):
        device, copy = tmp_path / f"device-{seed}", tmp_path / f"copy-{seed}"
        rng = random.Random(seed)
        for directory in (device, copy):
            directory.mkdir()
        for name in rng.sample(NAMES, 3):
            data = rng.randbytes(rng.randrange(60))
            (device / name).write_bytes(data)
            (copy / name).write_bytes(data)
        before, operations = tree(device), random.Random(seed).getrandbits(60)
        overlay = MemoryOverlay(OsFileSystem(), MOST_BYTES)
        seen = change_at_random(overlay, str(device), random.Random(operations))
        assert seen == change_at_random(OsFileSystem(), str(copy), random.Random(operations)), seed
        assert tree(device) == before, seed
        overlay.drop(str(device))
        assert {name: content(overlay, str(device / name)) for name in overlay.list_directory(str(device))} == before, seed
        assert overlay.held_bytes == 0


def test_a_map_shows_later_writes_also_when_the_file_grew_meanwhile(tmp_path: Path) -> None:
    overlay = MemoryOverlay(OsFileSystem(), MOST_BYTES)
    fd = overlay.open(str(tmp_path / "index"), CREATE)
    overlay.write(fd, [b"0123456789"], 0)
    view = overlay.map(fd, 10)
    overlay.write(fd, [b"abc"], 2)
    assert bytes(view) == b"01abc56789"
    overlay.write(fd, [b"x" * 50], 8)
    assert bytes(view) == b"01abc567xx"
    with pytest.raises(TypeError):
        view[0] = 1  # type: ignore[index]
    overlay.close(fd)


def test_a_log_that_is_cut_is_shorter_for_every_reader_and_whole_on_the_device(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"0123456789")
    overlay = MemoryOverlay(OsFileSystem(), MOST_BYTES)
    fd = overlay.open(str(path), WRITE)
    overlay.truncate(fd, 6)
    reader = overlay.open(str(path), READ)
    assert (overlay.size(fd), overlay.size(reader), overlay.file_size(str(path))) == (6, 6, 6)
    assert overlay.read(reader, 10, 4) == b"45"
    assert overlay.read_cached(reader, 4, 4) is None
    assert overlay.read_cached(reader, 2, 4) == b"45"
    for each in (fd, reader):
        overlay.close(each)
    assert path.read_bytes() == b"0123456789"
    assert overlay.held_bytes == 0


def test_a_log_is_written_with_the_bytes_that_it_has_and_with_no_others(tmp_path: Path) -> None:
    """Recovery may write again what it scanned, so that the device has it: that takes no space."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"0123456789")
    fs = GateFileSystem()
    overlay = MemoryOverlay(fs, MOST_BYTES)
    fd = overlay.open(str(path), WRITE)
    overlay.write(fd, [b"23", b"45"], 2)
    overlay.sync(fd)
    assert (fs.count("write", ".log"), fs.count("sync", ".log")) == (1, 1)
    for data, position in ((b"x", 2), (b"90", 9), (bytes(MOST_TAIL_BYTES + 1), 10)):
        with pytest.raises(OSError, match="memory does not keep bytes of logs"):
            overlay.write(fd, [data], position)
    overlay.close(fd)
    assert path.read_bytes() == b"0123456789"


def test_a_few_bytes_behind_the_end_of_a_log_are_kept_in_memory(tmp_path: Path) -> None:
    """A control batch that covers a gap there; recovery writes it again with what the device has."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"0123456789")
    overlay = MemoryOverlay(OsFileSystem(), MOST_BYTES)
    fd = overlay.open(str(path), WRITE)
    overlay.truncate(fd, 8)
    overlay.write(fd, [b"ab", b"c"], 8)
    assert (overlay.size(fd), overlay.file_size(str(path)), overlay.held_bytes) == (11, 11, 3)
    assert [overlay.read(fd, 4, position) for position in (3, 6, 8, 9, 11)] == [b"3456", b"67ab", b"abc", b"bc", b""]
    overlay.write(fd, [b"67abc"], 6)
    overlay.write(fd, [b"bc"], 9)
    overlay.truncate(fd, 9)
    assert content(overlay, str(path)) == b"01234567a"
    overlay.truncate(fd, 4)
    assert content(overlay, str(path)) == b"0123"
    overlay.close(fd)
    assert path.read_bytes() == b"0123456789"


def test_what_is_set_aside_of_a_log_takes_no_memory_and_a_preallocated_file_that_of_its_entries(tmp_path: Path) -> None:
    path = str(tmp_path / f"{0:020d}.log.corrupt-7")
    overlay = MemoryOverlay(OsFileSystem(), 10)
    replace_file(overlay, path, bytes(100))
    assert (overlay.file_size(path), overlay.held_bytes) == (100, 0)
    with pytest.raises(OSError, match="memory does not keep") as raised:
        content(overlay, path)
    assert raised.value.errno == errno.ENOSPC
    fd = overlay.open(str(tmp_path / "index"), CREATE)
    overlay.truncate(fd, 10 << 20)
    overlay.write(fd, [b"entry"], 0)
    assert overlay.size(fd) == 10 << 20
    assert overlay.read(fd, 8, 2) == b"try\0\0\0\0\0"
    assert overlay.held_bytes == 5
    overlay.close(fd)


def test_memory_has_a_limit_and_what_is_forgotten_is_given_back(tmp_path: Path) -> None:
    overlay = MemoryOverlay(OsFileSystem(), 100)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        replace_file(overlay, str(tmp_path / name / "index"), bytes(40))
    with pytest.raises(OSError, match="memory holds 80 bytes instead, and 30 more would exceed 100") as raised:
        replace_file(overlay, str(tmp_path / "two" / "other"), bytes(30))
    assert raised.value.errno == errno.ENOSPC
    overlay.drop(str(tmp_path / "one"))
    replace_file(overlay, str(tmp_path / "two" / "other"), bytes(30))
    assert overlay.held_bytes == 70
    assert tree(tmp_path / "two") == {}


def test_no_directories_and_no_links_are_made_in_memory_and_descriptors_refuse_what_they_are_not_for(tmp_path: Path) -> None:
    overlay, path = MemoryOverlay(OsFileSystem(), 100), str(tmp_path / "index")
    replace_file(overlay, path, b"data")
    overlay.make_directory(str(tmp_path))
    for call in (overlay.make_directory, overlay.remove_directory, lambda target: overlay.link(path, target)):
        with pytest.raises(OSError, match="No space left"):
            call(str(tmp_path / "new"))
    with pytest.raises(OSError, match="No such file"):
        overlay.open(str(tmp_path / "new" / "index"), CREATE)
    fd = overlay.open(path, READ)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        overlay.write(fd, [b"x"], 0)
    overlay.close(fd)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        overlay.read(fd, 1, 0)


def looks(fs: CallCountingFileSystem) -> int:
    return fs.calls["list_directory"] + fs.calls["file_size"]


def make(fs: FileSystem, path: str) -> None:
    fs.close(fs.open(path, CREATE))


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    return str(tmp_path)


def test_it_is_looked_once_and_not_at_all_for_what_is_not_there(directory: str) -> None:
    counting = CallCountingFileSystem()
    names = RememberedNames(counting, directory)
    for _ in range(3):
        listed = names.list_directory(directory)
        assert listed == ["a", "b"]
        listed.clear()  # the caller's own
    assert looks(counting) == 1
    assert names.file_size(f"{directory}/c") is None
    for refused in (lambda: names.open(f"{directory}/c", READ), lambda: names.unlink(f"{directory}/c")):
        with pytest.raises(FileNotFoundError) as found:
            refused()
        assert found.value.filename == f"{directory}/c"
    assert looks(counting) == 1
    assert names.file_size(f"{directory}/b") == 2


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda fs, path: make(fs, f"{path}/c"), ["a", "b", "c"]),
        (lambda fs, path: fs.unlink(f"{path}/a"), ["b"]),
        (lambda fs, path: fs.rename(f"{path}/a", f"{path}/z"), ["b", "z"]),
        (lambda fs, path: fs.link(f"{path}/a", f"{path}/z"), ["a", "b", "z"]),
        (lambda fs, path: fs.make_directory(f"{path}/z"), ["a", "b", "z"]),
        (lambda fs, path: replace_file(fs, f"{path}/z", b""), ["a", "b", "z"]),
    ],
)
def test_changes_through_it_are_seen(directory: str, change: Callable[[FileSystem, str], object], after: list[str]) -> None:
    names = RememberedNames(OsFileSystem(), directory).fs
    names.list_directory(directory)
    change(names, directory)
    assert names.list_directory(directory) == after == sorted(os.listdir(directory))
    assert [name for name in ("a", "b", "c", "z") if names.file_size(f"{directory}/{name}") is not None] == after


def test_of_its_own_changes_it_knows_without_a_look_and_behind_one_that_failed_it_looks_again(directory: str) -> None:
    counting = CallCountingFileSystem()
    names = RememberedNames(counting, directory).fs
    names.list_directory(directory)
    replace_file(names, f"{directory}/c", b"", durable=False)
    names.unlink(f"{directory}/a")
    assert names.list_directory(directory) == ["b", "c"]
    assert looks(counting) == 1
    os.mkdir(f"{directory}/sub")
    with pytest.raises(IsADirectoryError):
        names.rename(f"{directory}/b", f"{directory}/sub")
    assert names.list_directory(directory) == ["b", "c", "sub"]


def test_a_file_that_goes_elsewhere_is_gone_and_one_from_elsewhere_is_there(directory: str) -> None:
    os.mkdir(f"{directory}/sub")
    names = RememberedNames(OsFileSystem(), directory).fs
    names.list_directory(directory)
    names.rename(f"{directory}/a", f"{directory}/sub/x")
    assert names.list_directory(directory) == ["b", "sub"]
    names.rename(f"{directory}/sub/x", f"{directory}/y")
    assert names.list_directory(directory) == ["b", "sub", "y"]


def test_other_directories_are_not_remembered(directory: str) -> None:
    other = f"{directory}/sub"
    os.mkdir(other)
    names = RememberedNames(OsFileSystem(), directory)
    names.list_directory(directory)
    assert names.list_directory(other) == []
    make(OsFileSystem(), f"{other}/x")
    assert names.list_directory(other) == ["x"]
    assert names.file_size(f"{other}/x") == 0


@pytest.fixture
def fs() -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.make_directory("/d")
    fs.sync_directory("/")
    return fs


def put(fs: LaterSyncs, path: str, data: bytes) -> None:
    fd = fs.open(path, CREATE | os.O_TRUNC)
    fs.write(fd, [data], 0)
    fs.sync(fd)
    fs.close(fd)
    fs.sync_directory("/d")


def test_what_is_due_is_on_the_device_once_it_is_done_and_counted_once(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    put(later, "/d/a", b"one")
    put(later, "/d/a", b"two")
    put(later, "/d/b", b"three")
    assert len(later) == 3  # two files and their directory
    assert fs.durable_content("/d/a") is None
    later.settle()
    assert [fs.durable_content(path) for path in ("/d/a", "/d/b")] == [b"two", b"three"]
    assert fs.open_descriptors == 0


def test_a_new_file_that_is_put_in_place_is_synced_under_its_new_name(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    replace_file(later.fs, "/d/a", b"new")
    assert fs.durable_content("/d/a") is None
    later.settle()
    assert fs.durable_content("/d/a") == b"new"


def test_a_file_that_is_replaced_is_the_old_or_the_new_one_after_a_power_cut(fs: CrashFileSystem) -> None:
    replace_file(fs, "/d/a", b"old")
    replace_file(LaterSyncs(fs).fs, "/d/a", b"new")
    found = set()
    for seed in range(50):
        after = fs.copy().crash(random.Random(seed))
        found.add(after.content("/d/a"))
    assert found == {b"old", b"new"}


def test_a_file_that_is_not_open_can_be_noted_if_it_is_there(fs: CrashFileSystem) -> None:
    replace_file(fs, "/d/a", b"one", durable=False)
    later = LaterSyncs(fs)
    later.note("/d/a")
    later.note("/d/a")
    with pytest.raises(FileNotFoundError, match="/d/b"):
        later.note("/d/b")
    later.sync_directory("/d")
    assert len(later) == 2
    later.settle()
    assert fs.durable_content("/d/a") == b"one"


def test_what_is_deleted_again_is_not_due_and_an_error_of_a_sync_comes_when_it_is_done(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    fd = later.open("/d/a", CREATE)
    later.sync(fd)
    later.close(fd)
    later.unlink("/d/a")
    assert len(later) == 0
    later.settle()
    put(later, "/d/a", b"one")
    fs.fail_next("sync", 5)
    with pytest.raises(OSError, match="sync"):
        later.settle()


class Forgets(CrashFileSystem):
    """Notes which way pages are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[str] = []

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        self.forgotten.append("written back before")
        super().forget(fd, start, stop)

    def forget_clean(self, fd: int, start: int, stop: int | None = None) -> None:
        self.forgotten.append("clean")


def test_only_what_is_known_to_be_clean_is_forgotten_without_writing_it_back() -> None:
    fs = Forgets()
    for later in (LaterSyncs(fs), LaterSyncs(fs, is_written_back=True)):
        fd = later.open("/a", CREATE)
        later.forget(fd, 0)
        later.write(fd, [b"x"], 0)
        later.forget(fd, 0)
        later.close(fd)
        fd = later.open("/a", WRITE)
        later.truncate(fd, 0)
        later.close(fd)
    assert fs.forgotten == ["written back before", "written back before", "clean", "written back before"]
