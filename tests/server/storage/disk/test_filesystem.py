"""The seam to the operating system, with and without what Linux offers; the modes of what is made; the throttle of bytes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.config import DataPermissions, LogConfig
from triolog.server.storage.child_process import MAX_PAUSE_S, Throttle
from triolog.server.storage.disk import filesystem
from triolog.server.storage.disk.filesystem import CREATE, OsFileSystem, replace_file
from triolog.server.system import block_devices
from triolog.server.system.block_devices import file_system_type, lies_in_memory

from tests.support.brokers import PARTITION, TOPIC, one_partition, value
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import batch, open_driven

FS: Final = filesystem.OsFileSystem()
SHARED_MEMORY: Final = os.stat("/dev/shm" if os.path.isdir("/dev/shm") else "/")
REAL_PWRITE: Final = os.pwrite
REAL_PREAD: Final = os.pread


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    found = FS.open(str(tmp_path / "file"), filesystem.CREATE)
    yield found
    FS.close(found)


def content(fd: int) -> bytes:
    return FS.read(fd, FS.size(fd), 0)


def test_more_buffers_than_iov_max_and_of_every_kind_are_written(fd: int) -> None:
    kinds = (bytes, bytearray, memoryview)
    buffers = [kinds[number % 3](b"%05d" % number) for number in range(3 * filesystem.IOV_MAX + 7)]
    FS.write(fd, buffers, 3)
    assert content(fd) == bytes(3) + b"".join(buffers)
    assert not os.get_inheritable(fd)
    assert filesystem.READ & os.O_CLOEXEC


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(0, 50), st.integers(1, 40))
def test_any_buffers_are_written_however_short_each_write_is(
    tmp_path_factory: pytest.TempPathFactory, buffers: list[bytes], position: int, most: int
) -> None:
    path = tmp_path_factory.mktemp("write") / "file"
    fd = FS.open(str(path), filesystem.CREATE)
    try:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: REAL_PWRITE(fd, b"".join(parts)[:most], at))
            monkeypatch.setattr(os, "pwrite", lambda fd, data, at: REAL_PWRITE(fd, bytes(data)[:most], at))
            FS.write(fd, buffers, position)
    finally:
        FS.close(fd)
    data = b"".join(buffers)
    assert path.read_bytes() == (bytes(position) + data if data else b"")


def test_a_read_is_short_at_the_end_of_the_file_only(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    FS.write(fd, [b"0123456789"], 0)
    monkeypatch.setattr(os, "pread", lambda fd, size, position: REAL_PREAD(fd, min(size, 3), position))
    assert FS.read(fd, 10, 0) == b"0123456789"
    assert FS.read(fd, 20, 4) == b"456789"
    assert FS.read(fd, 5, 10) == b""
    assert FS.read(fd, 0, 0) == b""


def test_a_cached_read_is_exact_or_none(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is also what is not cached, and where the system has no such reads."""
    FS.write(fd, [b"0123456789"], 0)
    assert FS.read_cached(fd, 4, 3) == b"3456"
    assert FS.read_cached(fd, 4, 8) is None
    monkeypatch.setattr(os, "preadv", _failing(errno.EAGAIN))
    assert FS.read_cached(fd, 4, 3) is None
    monkeypatch.setattr(os, "preadv", _failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        FS.read_cached(fd, 4, 3)
    monkeypatch.delattr(os, "RWF_NOWAIT")
    assert FS.read_cached(fd, 4, 3) is None


def _failing(code: int) -> Any:
    def preadv(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    return preadv


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_mount_that_does_not_know_the_flag_says_so(fd: int, monkeypatch: pytest.MonkeyPatch, code: int, mounts: Path) -> None:
    mounts.write_text("")
    monkeypatch.setattr(os, "preadv", _failing(code))
    with pytest.raises(filesystem.CachedReadUnsupportedError):
        FS.read_cached(fd, 4, 3)


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the system says of its mounts."""
    monkeypatch.setattr(block_devices, "MOUNTS", str(tmp_path / "mountinfo"))
    file_system_type.cache_clear()
    yield tmp_path / "mountinfo"
    file_system_type.cache_clear()


def test_what_lies_in_memory_is_told_by_its_device(mounts: Path) -> None:
    assert not lies_in_memory(os.makedev(0, 23)), "the system does not tell"
    for line, found in {
        "25 30 0:23 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw,size=64k": True,
        "25 30 0:23 / /mnt rw - ramfs none rw": True,
        "25 30 0:23 / /mnt/tmpfs rw - overlay tmpfs rw": False,
        "25 30 0:231 / /dev/shm rw - tmpfs tmpfs rw": False,
        "25 30 0:23": False,
    }.items():
        mounts.write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{line}\n")
        file_system_type.cache_clear()
        assert lies_in_memory(os.makedev(0, 23)) is found, line
        assert not lies_in_memory(os.makedev(254, 0))


@pytest.mark.skipif(not lies_in_memory(SHARED_MEMORY.st_dev), reason="needs /dev/shm in memory")
def test_what_lies_in_memory_is_read_at_once() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(b"0123456789")
        file.flush()
        assert FS.read_cached(file.fileno(), 4, 3) == b"3456"
        assert FS.read_cached(file.fileno(), 4, 8) is None


def test_a_map_shows_later_writes_and_cannot_be_written(fd: int) -> None:
    FS.write(fd, [bytes(100)], 0)
    view = FS.map(fd, 100)
    FS.write(fd, [b"later"], 50)
    assert bytes(view[50:55]) == b"later"
    with pytest.raises(TypeError):
        view[0:1] = b"x"  # type: ignore[index]


def test_without_fdatasync_and_fallocate_a_file_is_synced_and_has_its_length(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(fd) or real(fd))  # type: ignore[func-returns-value]
    FS.sync(fd)
    assert synced == []
    monkeypatch.delattr(os, "fdatasync")
    FS.sync(fd)
    assert synced == [fd]
    monkeypatch.delattr(os, "posix_fallocate")
    FS.allocate(fd, 4096)
    assert FS.size(fd) == 4096


def test_a_log_works_where_nothing_of_linux_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RWF_NOWAIT", "fdatasync", "posix_fallocate", "O_CLOEXEC"):
        monkeypatch.delattr(os, name)
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=300, preallocate=True, index_interval_bytes=1))
    for _ in range(10):
        driven.append(batch(), sync=True)
    driven.close()
    assert driven.reopen(was_clean=True).offsets() == list(range(10))


def test_directories_are_made_listed_and_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b")
    FS.make_directory(path)
    FS.make_directory(path)
    for name in ("c", "a", "b"):
        FS.close(FS.open(f"{path}/{name}", filesystem.CREATE))
    assert FS.list_directory(path) == ["a", "b", "c"]
    assert FS.is_directory(path)
    assert not FS.is_directory(f"{path}/a")
    FS.sync_directory(path)
    for name in FS.list_directory(path):
        FS.unlink(f"{path}/{name}")
    FS.remove_directory(path)
    assert not FS.is_directory(path)


def test_a_file_larger_than_asked_for_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert filesystem.read_file(FS, str(path), max_bytes=3) == b"abc"
    with pytest.raises(ValueError, match="has 3 bytes, at most 2 are read"):
        filesystem.read_file(FS, str(path), max_bytes=2)
    with pytest.raises(FileNotFoundError):
        filesystem.read_file(FS, str(tmp_path / "missing"), max_bytes=2)


def test_a_file_is_replaced_by_sync_rename_and_directory_sync(tmp_path: Path) -> None:
    """Whatever a crash has left under the temporary name."""
    durable, fast = GateFileSystem(), GateFileSystem()
    (tmp_path / "file.tmp").write_bytes(b"a much longer leftover of a crash")
    filesystem.replace_file(durable, str(tmp_path / "file"), b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    filesystem.replace_file(fast, str(tmp_path / "file"), b"other", durable=False)
    done = [[call.operation for call in fs.calls if call.operation not in ("open", "write", "close")] for fs in (durable, fast)]
    assert done == [["unlink", "sync", "rename", "sync_directory"], ["rename"]]
    assert durable.synced == ["file.tmp", f"{tmp_path}/"]


def test_a_file_that_cannot_be_synced_leaves_the_old_one() -> None:
    fs = CrashFileSystem()
    filesystem.replace_file(fs, "/file", b"old")
    fs.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        filesystem.replace_file(fs, "/file", b"new")
    assert fs.content("/file") == b"old"


def test_free_bytes_are_those_of_the_device(tmp_path: Path) -> None:
    free = filesystem.OsFileSystem().free_bytes(str(tmp_path))
    assert 0 < free <= shutil.disk_usage(tmp_path).total
    with pytest.raises(FileNotFoundError):
        filesystem.OsFileSystem().free_bytes(str(tmp_path / "missing"))
    assert filesystem.OsFileSystem().total_bytes(str(tmp_path)) == shutil.disk_usage(tmp_path).total


MODES: Final = {DataPermissions.OWNER: (0o600, 0o700), DataPermissions.GROUP: (0o640, 0o750)}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make(fs: OsFileSystem, folder: Path) -> tuple[int, int, int]:
    """Modes of a file, and of the directory that is made for it with the one above."""
    fs.make_directory(str(folder / "a" / "b"))
    fs.close(fs.open(str(folder / "a" / "b" / "file"), CREATE))
    replace_file(fs, str(folder / "a" / "b" / "replaced"), b"x")
    assert mode(folder / "a" / "b" / "replaced") == mode(folder / "a" / "b" / "file")
    return mode(folder / "a" / "b" / "file"), mode(folder / "a" / "b"), mode(folder / "a")


@pytest.mark.parametrize(
    ("permissions", "mask", "modes"),
    [
        *((permissions, mask, modes) for permissions, modes in MODES.items() for mask in (0, 0o022, 0o077, 0o277)),
        (DataPermissions.UMASK, 0, (0o666, 0o777)),
        (DataPermissions.UMASK, 0o027, (0o640, 0o750)),
    ],
)
def test_what_is_made_is_for_whom_it_is_said_to_be_whatever_the_umask(
    tmp_path: Path, permissions: DataPermissions, mask: int, modes: tuple[int, int]
) -> None:
    """But where the umask is to decide, and there not of what is private."""
    with umask(mask):
        assert make(OsFileSystem(permissions), tmp_path) == (*modes, modes[1])
        replace_file(OsFileSystem(permissions), str(tmp_path / "secret"), b"x", private=True)
    assert mode(tmp_path / "secret") == 0o600


def test_without_anything_said_it_is_for_the_owner_alone(tmp_path: Path) -> None:
    with umask(0):
        assert make(OsFileSystem(), tmp_path) == (0o600, 0o700, 0o700)


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    for path, chosen in ((tmp_path / "a", 0o755), (tmp_path / "a" / "b", 0o751), (tmp_path / "a" / "b" / "file", 0o644)):
        path.chmod(chosen)
    fs = OsFileSystem()
    fs.make_directory(str(tmp_path / "a" / "b"))
    fs.close(fs.open(str(tmp_path / "a" / "b" / "file"), CREATE | os.O_TRUNC))
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path / "a" / "b" / "file")) == (0o755, 0o751, 0o644)


def test_errors_are_those_of_the_system(tmp_path: Path) -> None:
    fs = OsFileSystem()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        fs.open(str(tmp_path / "file"), CREATE | os.O_EXCL)
    with pytest.raises(FileExistsError):
        fs.make_directory(str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        fs.make_directory(str(tmp_path / "file" / "below"))
    with pytest.raises(FileNotFoundError):
        fs.open(str(tmp_path / "none" / "file"), CREATE)


def test_a_mount_that_knows_no_modes_gives_what_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.setattr(os, "chmod", refuse)
    with umask(0o077):
        assert make(OsFileSystem(DataPermissions.GROUP), tmp_path) == (0o600, 0o700, 0o700)


@pytest.mark.parametrize("permissions", [*MODES, None])
async def test_all_that_a_broker_makes_has_these_modes(tmp_path: Path, permissions: DataPermissions | None) -> None:
    file_mode, directory_mode = MODES[permissions or DataPermissions.OWNER]
    settings = {} if permissions is None else {"data_permissions": permissions}
    with umask(0):
        async with one_partition(tmp_path / "new" / "data", topic={"segment.bytes": "200"}, **settings) as broker:
            for _ in range(5):
                await broker.writer.append(PARTITION, value("x" * 50))
            await broker.writer.append(PARTITION, value("x"), acks=1)
    paths = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {path.suffix for path in paths} >= {".log", ".index", ".timeindex", ".snapshot", ".json"}
    wrong = {
        str(path): oct(mode(path))
        for path in paths
        if mode(path) != (directory_mode if path.is_dir() else 0o600 if path.name == ".lock" else file_mode)
    }
    assert not wrong
    assert any(path.name == f"{TOPIC}-0" for path in paths)


class Seconds:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_work_takes_as_long_as_its_bytes_allow_and_time_spent_on_it_is_not_saved_up() -> None:
    seconds = Seconds()
    throttle = Throttle(1000, seconds.clock, seconds.sleep)
    for _ in range(10):
        throttle.spend(250, lambda: None)
    assert seconds.now == pytest.approx(102.5)
    seconds.now += 50
    for _ in range(2):
        throttle.spend(100, lambda: None)
    assert sum(seconds.pauses) == pytest.approx(2.7)
    Throttle(0, seconds.clock, seconds.sleep).spend(10**12, lambda: None)
    assert sum(seconds.pauses) == pytest.approx(2.7), "without a limit nobody waits"


def test_a_long_pause_can_be_ended() -> None:
    seconds = Seconds()

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Throttle(1, seconds.clock, seconds.sleep).spend(3600, stop)
    assert seconds.pauses == [MAX_PAUSE_S]
