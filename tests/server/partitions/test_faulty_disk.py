"""A file system that fails as it is asked to, and dies in the middle."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from triolog.server.fake.faults.faults import DiskFaults
from triolog.server.fake.faults.rules import disk_rule_of
from triolog.server.partitions.disk import Disk
from triolog.server.partitions.faulty_disk import FaultyFileSystem
from triolog.server.storage.disk.diskops import FileHandle, Procedure, Sync, Write
from triolog.server.storage.disk.filesystem import CREATE

from tests.support.brokers import PATIENCE_S


@pytest.fixture
def faults() -> DiskFaults:
    return DiskFaults()


@pytest.fixture
def fs(faults: DiskFaults) -> FaultyFileSystem:
    return FaultyFileSystem(faults)


def written(fs: FaultyFileSystem, path: Path, data: bytes = b"0123456789") -> int:
    fd = fs.open(str(path), CREATE)
    fs.write(fd, [data], 0)
    return fd


def test_rules_fail_writes_syncs_and_reads(fs: FaultyFileSystem, faults: DiskFaults, tmp_path: Path) -> None:
    fd = written(fs, tmp_path / "0.log")
    faults.add(disk_rule_of({"effect": "full", "path": "*.log"}))
    with pytest.raises(OSError, match="No space"):
        fs.write(fd, [b"x"], 10)
    faults.clear()
    for operation, call in {"sync": lambda: fs.sync(fd), "read": lambda: fs.read(fd, 1, 0)}.items():
        faults.add(disk_rule_of({"effect": "error", "operation": operation}))
        with pytest.raises(OSError, match="Input/output"):
            call()
        assert operation != "read" or fs.read_cached(fd, 1, 0) is None
        faults.clear()
    assert fs.read(fd, 4, 2) == b"2345"
    fs.close(fd)


def test_after_a_crash_nothing_reaches_the_directory(fs: FaultyFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    fd = written(fs, path)
    fs.crash()
    with pytest.raises(OSError, match="crashed"):
        fs.write(fd, [b"lost"], 10)
    fs.truncate(fd, 0)
    fs.rename(str(path), str(tmp_path / "moved"))
    fs.unlink(str(path))
    fs.make_directory(str(tmp_path / "new"))
    other = fs.open(str(tmp_path / "checkpoint"), CREATE)
    fs.write(other, [b"lost"], 0)
    fs.sync(other)
    fs.close(other)
    fs.close(fd)
    assert sorted(os.listdir(tmp_path)) == ["0.log"]
    assert path.read_bytes() == b"0123456789"


def test_a_torn_write_loses_unsynced_bytes_only(fs: FaultyFileSystem, faults: DiskFaults, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    fd = written(fs, path)
    fs.sync(fd)
    fs.write(fd, [b"abc"], 10)
    synced = written(fs, tmp_path / "1.log")
    fs.sync(synced)
    faults.add(disk_rule_of({"effect": "torn", "seed": 5}))
    fs.crash()
    fs.close(fd)
    fs.close(synced)
    assert fs.tear() == [str(path)]
    assert b"0123456789abc".startswith(path.read_bytes())
    assert 10 <= path.stat().st_size < 13


def test_a_write_delayed_beyond_the_crash_is_lost(fs: FaultyFileSystem, faults: DiskFaults, tmp_path: Path) -> None:
    path, fired = tmp_path / "0.log", threading.Event()
    fd = written(fs, path)
    faults.add(disk_rule_of({"effect": "delay", "operation": "write", "delay_ms": 3_600_000}))
    faults.watch(fired.set)
    with ThreadPoolExecutor(1) as device:
        write = device.submit(fs.write, fd, [b"lost"], 10)
        assert fired.wait(PATIENCE_S)
        fs.crash()
        with pytest.raises(OSError, match="crashed"):
            write.result(PATIENCE_S)
    fs.close(fd)
    assert path.read_bytes() == b"0123456789"


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_procedure_in_memory_takes_no_thread(faults: DiskFaults, tmp_path: Path, in_memory: bool) -> None:
    """In memory, unless a fault may hold it up, and in any case after a crash."""
    fs = FaultyFileSystem(faults, in_memory=in_memory)
    disk = Disk(fs)

    def write(name: str) -> Procedure[None]:
        file = FileHandle(path=str(tmp_path / name), writable=True, create_bytes=1)
        yield Write(file, 0, [b"x"])
        yield Sync(file)

    async def hops(name: str) -> int:
        before = disk.statistics().hops
        await disk.drive(write(name))
        return disk.statistics().hops - before

    assert (await hops("a.index") == 0) is in_memory
    slow = faults.add(disk_rule_of({"effect": "delay", "operation": "sync", "delay_ms": 1}))
    assert await hops("b.index") == 3, "opened, written, synced"
    assert slow.fired == 1
    faults.clear()
    fs.crash()
    assert await hops("c.index") == 0
    await disk.files.close_all()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.index", "b.index"]
