"""The seam to the operating system, with and without what Linux offers."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.config import LogConfig
from triolog.server.storage.disk import filesystem
from triolog.server.system import block_devices
from triolog.server.system.block_devices import file_system_type, lies_in_memory

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


def test_without_fdatasync_the_whole_file_is_synced_and_without_fallocate_it_has_its_length(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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
