"""The disk: hops, leases under a small budget, what cannot be read from the cache, and what is closed when."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.steps import STEPS_PER_PAUSE
from triolog.protocol.types import TopicPartition
from triolog.server.fake.faults.faults import DiskFaults
from triolog.server.fake.faults.rules import disk_rule_of
from triolog.server.loop.turns import STEPS_PER_TURN
from triolog.server.partitions.disk import READERS, WRITERS, Disk, OperationFailedError, WouldWaitError
from triolog.server.partitions.faulty_disk import FaultyFileSystem
from triolog.server.partitions.open_files import CLOSE_BACKLOG, DescriptorBudget
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Procedure, Read, Sync, Write
from triolog.server.storage.disk.filesystem import CREATE
from triolog.server.storage.errors import SnapshotExpiredError
from triolog.server.storage.indexes.index import OffsetIndex

from tests.support.brokers import PATIENCE_S, running_broker, until, value, values_from
from tests.support.counts import counts
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS


@asynccontextmanager
async def open_disk(fs: GateFileSystem, limit: int = 100) -> AsyncIterator[Disk]:
    """A disk with its closer, which leaves nothing open."""
    disk = Disk(fs, DescriptorBudget(limit))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.files.run_closer)
        try:
            yield disk
        finally:
            with trio.CancelScope(shield=True):
                await disk.files.close_all()
            nursery.cancel_scope.cancel()
    assert fs.open_paths == []


@pytest.fixture
async def disk(fs: GateFileSystem) -> AsyncIterator[Disk]:
    async with open_disk(fs) as disk:
        yield disk


def writable(path: Path) -> FileHandle:
    path.touch()
    return FileHandle(path=str(path), writable=True)


def stored(path: Path, data: bytes = b"0123456789") -> FileHandle:
    path.write_bytes(data)
    return FileHandle(path=str(path))


def reading(file: FileHandle, size: int = 10, position: int = 0) -> Generator[DiskOp, Any, bytes]:
    return bytes((yield Read(file, position, size)))


async def test_a_run_is_one_hop_in_another_thread_once_its_files_are_open(tmp_path: Path, fs: GateFileSystem) -> None:
    async with open_disk(fs) as disk:
        file = writable(tmp_path / "log")
        await disk.run([Write(file, 0, [b"a"])], [file])
        before = disk.statistics().hops
        await disk.run([Write(file, 1, [b"bc"]), Write(file, 3, [b"d", b"e"]), Sync(file)], [file])
        assert disk.statistics().hops == before + 1
        assert {call.thread for call in fs.calls}.isdisjoint({threading.current_thread().name})
    assert (tmp_path / "log").read_bytes() == b"abcde"


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_failed_run_names_the_operation_and_did_those_before(tmp_path: Path, fs: GateFileSystem, at_once: bool) -> None:
    fs.lets_write_at_once = at_once
    first, second = writable(tmp_path / "first"), writable(tmp_path / "second")
    async with open_disk(fs) as disk:
        await disk.run([Write(first, 0, [b"0"]), Write(second, 0, [b"0"])], [first, second])
        fs.fail("write", "second", number=errno.ENOSPC)
        failing = Write(second, 0, [b"2"])
        with pytest.raises(OperationFailedError, match=r"Write: .*No space") as raised:
            await disk.run([Write(first, 0, [b"1"]), failing, Write(first, 1, [b"3"])], [first, second])
        assert raised.value.operation is failing
        assert raised.value.cause.errno == errno.ENOSPC
        assert raised.value.__cause__ is raised.value.cause
        assert first.leases == second.leases == 0
    assert (tmp_path / "first").read_bytes() == b"1"


async def test_a_file_that_cannot_be_opened_is_an_os_error(tmp_path: Path, fs: GateFileSystem) -> None:
    good, bad = writable(tmp_path / "good"), FileHandle(path=str(tmp_path / "missing" / "bad"), writable=True)
    async with open_disk(fs) as disk:
        with pytest.raises(FileNotFoundError):
            await disk.run([Write(good, 0, [b"1"])], [good, bad])
        assert good.leases == bad.leases == 0
        with pytest.raises(SnapshotExpiredError, match="gone"):
            await disk.read(reading(FileHandle(path=str(tmp_path / "gone"))))
    assert (tmp_path / "good").read_bytes() == b""


async def test_work_that_has_begun_is_awaited_when_it_is_cancelled(tmp_path: Path, disk: Disk, fs: GateFileSystem) -> None:
    file = writable(tmp_path / "log")
    async with held(fs.hold("write"), disk.run, [Write(file, 0, [b"whole"])], [file]) as nursery:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        assert file.leases == 1
    assert (tmp_path / "log").read_bytes() == b"whole"


async def test_errors_of_a_driven_procedure_are_thrown_into_it(tmp_path: Path, disk: Disk, fs: GateFileSystem) -> None:
    file = writable(tmp_path / "log")

    def procedure() -> Generator[DiskOp, Any, str]:
        try:
            yield Write(file, 0, [b"x"])
        except OSError as exc:
            return f"saw {exc.errno}"
        return "saw nothing"

    fs.fail("write", number=errno.EIO)
    assert await disk.drive(procedure()) == f"saw {errno.EIO}"
    assert await disk.drive(procedure()) == "saw nothing"


@pytest.mark.parametrize("is_cached", [True, False])
async def test_a_read_takes_no_thread_if_it_is_cached_and_its_file_open(tmp_path: Path, is_cached: bool) -> None:
    fs = GateFileSystem(cached_reads=is_cached)
    file = stored(tmp_path / "log")
    async with open_disk(fs) as disk:
        assert await disk.read(reading(file)) == b"0123456789"
        before = disk.statistics()
        for _ in range(2):
            assert await disk.read(reading(file, 3, 4)) == b"456"
        after = disk.statistics()
        assert (after.hops == before.hops) is is_cached
        assert (after.cold_reads - before.cold_reads, after.cached_reads - before.cached_reads) == (
            (0, 2) if is_cached else (2, 0)
        )
        assert (fs.calls[-1].thread == threading.current_thread().name) is is_cached
        assert disk.is_cached(Read(file, 0, 10)) is is_cached


async def test_a_mount_without_nowait_is_asked_once_per_file(tmp_path: Path, fs: GateFileSystem) -> None:
    fs.refuses_nowait = True
    one, other = stored(tmp_path / "one"), stored(tmp_path / "other")
    async with open_disk(fs) as disk:
        for _ in range(4):
            assert await disk.read(reading(one)) == b"0123456789"
        assert fs.count("read_cached", "one") == 1
        await disk.read(reading(other))
        await disk.read(reading(other))
        assert fs.count("read_cached", "other") == 1


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only where the system has RWF_NOWAIT can it be taken away")
@pytest.mark.parametrize("is_known", [True, False])
async def test_without_nowait_reads_are_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool) -> None:
    asked = []

    def refuse(*arguments: object) -> int:
        asked.append(arguments)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    if is_known:
        monkeypatch.setattr(os, "preadv", refuse)
    else:
        monkeypatch.delattr(os, "RWF_NOWAIT")
    file = stored(tmp_path / "log")
    async with open_disk(GateFileSystem()) as disk:
        for _ in range(3):
            assert await disk.read(reading(file)) == b"0123456789"
        assert disk.statistics().cached_reads == 0
    assert len(asked) == is_known


async def test_no_more_reader_threads_than_the_limit(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    files = [stored(tmp_path / f"{number}.log") for number in range(READERS + 5)]
    async with open_disk(fs) as disk:
        async with trio.open_nursery() as nursery:
            with fs.hold("read") as gate:
                for file in files:
                    nursery.start_soon(disk.read, reading(file))
                await gate.reached(READERS)
                await trio.testing.wait_all_tasks_blocked()
                assert fs.count("read") == READERS
        assert fs.count("read") == READERS + 5


async def test_a_leased_file_stays_open_while_others_come_and_go(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    leased = stored(tmp_path / "held.log")
    async with open_disk(fs, limit=2) as disk:
        async with held(fs.hold("read", "held.log"), disk.read, reading(leased)):
            for number in range(10):
                await disk.read(reading(stored(tmp_path / f"{number}.log")))
                assert leased.fd is not None
                assert disk.budget.held <= 3
        assert leased.leases == 0


async def test_many_runs_under_a_tiny_budget_write_where_they_should(tmp_path: Path, fs: GateFileSystem) -> None:
    pairs = [(writable(tmp_path / f"{number}.log"), writable(tmp_path / f"{number}.index")) for number in range(12)]

    async def writer(pair: tuple[FileHandle, FileHandle], mark: bytes) -> None:
        for turn in range(15):
            await disk.run([Write(pair[0], turn, [mark]), Write(pair[1], turn, [mark])], pair)

    async with open_disk(fs, limit=1) as disk, trio.open_nursery() as nursery:
        for number, pair in enumerate(pairs):
            nursery.start_soon(writer, pair, bytes([65 + number]))
    for number in range(12):
        expected = bytes([65 + number]) * 15
        assert (tmp_path / f"{number}.log").read_bytes() == (tmp_path / f"{number}.index").read_bytes() == expected


async def test_closing_that_falls_behind_holds_up_those_who_open(tmp_path: Path, fs: GateFileSystem) -> None:
    done: list[int] = []

    async def reader() -> None:
        for number in range(4 * CLOSE_BACKLOG):
            await disk.read(reading(stored(tmp_path / f"{number}.log")))
            done.append(number)

    async with open_disk(fs, limit=1) as disk, trio.open_nursery() as nursery:
        with fs.hold("close") as gate:
            nursery.start_soon(reader)
            await gate.reached(2)
            await trio.testing.wait_all_tasks_blocked()
            assert len(done) < 4 * CLOSE_BACKLOG
            assert len(fs.open_paths) <= 2 * CLOSE_BACKLOG + 3
    assert len(done) == 4 * CLOSE_BACKLOG
    assert threading.current_thread().name not in {call.thread for call in fs.calls if call.operation == "close"}


async def test_a_released_file_is_closed_when_the_last_lease_goes(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    file = stored(tmp_path / "log")
    answers: list[bytes] = []

    async def reader() -> None:
        answers.append(await disk.read(reading(file)))

    async with open_disk(fs) as disk:
        async with held(fs.hold("read"), reader):
            disk.files.release([file], [])
            await trio.testing.wait_all_tasks_blocked()
            assert fs.open_paths == [file.path]
        assert file.fd is None
        assert disk.statistics().descriptors == 0
        assert answers == [b"0123456789"]


@pytest.mark.parametrize("operation", ["map", "open"])
async def test_a_released_file_that_is_read_later_is_open_as_long_as_that_takes(
    tmp_path: Path, disk: Disk, fs: GateFileSystem, operation: str
) -> None:
    """By readers of an older snapshot, one of which began before and one begins after."""
    path = tmp_path / "0.index"
    path.write_bytes(bytes(8))
    index = OffsetIndex(str(path), 0, 8)
    file, indexes = (index.file, [index]) if operation == "map" else (FileHandle(path=str(path)), [])

    async def read() -> None:
        assert bytes(await disk.read(index.mapped(1) if operation == "map" else reading(file))) == bytes(8)

    async with held(fs.hold(operation), read):
        disk.files.release([file], indexes)
    await read()
    assert (index.buffer, file.fd, disk.budget.held) == (None, None, 0)
    await until(lambda: fs.open_paths == [])


@pytest.mark.parametrize("who", ["the closer", "an opener"])
async def test_what_somebody_who_is_cancelled_was_to_close_is_closed_all_the_same(
    tmp_path: Path, fs: GateFileSystem, who: str
) -> None:
    """While it waits for a thread."""
    disk, busy = Disk(fs, DescriptorBudget(100)), stored(tmp_path / "busy.log")
    disk._threads.total_tokens = 1
    gone = [stored(tmp_path / f"{number}.log") for number in range(CLOSE_BACKLOG + 1)]
    for file in gone:
        await disk.drive(reading(file))
    async with held(fs.hold("open", busy.path), disk.drive, reading(busy)), trio.open_nursery() as nursery:
        disk.files.release(gone, [])
        if who == "the closer":
            nursery.start_soon(disk.files.run_closer)
        else:
            nursery.start_soon(disk.drive, reading(stored(tmp_path / "another.log")))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await disk.files.close_all()
    assert fs.open_paths == []


async def test_closing_all_waits_for_what_runs(tmp_path: Path, disk: Disk, fs: GateFileSystem) -> None:
    file = writable(tmp_path / "log")
    async with held(fs.hold("write"), disk.run, [Write(file, 0, [b"x"]), Sync(file)], [file]) as nursery:
        nursery.start_soon(disk.files.close_all)
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 2
        assert fs.open_paths == [file.path]
    assert fs.open_paths == []
    assert (tmp_path / "log").read_bytes() == b"x"


async def test_an_index_that_is_mapped_counts_until_it_is_evicted(tmp_path: Path, fs: GateFileSystem) -> None:
    indexes = []
    for number in range(5):
        path = tmp_path / f"{number}.index"
        path.write_bytes(bytes(8))
        indexes.append(OffsetIndex(str(path), 0, 8))
    async with open_disk(fs, limit=3) as disk:
        for index in indexes:
            await disk.read(index.mapped(1))
            assert index.buffer is not None
            assert sum(each.buffer is not None for each in indexes) == disk.budget.held <= 3


@pytest.mark.parametrize("operation", ["map", "open"])
async def test_a_file_that_many_open_or_map_counts_once(tmp_path: Path, disk: Disk, fs: GateFileSystem, operation: str) -> None:
    """Fifty readers of a hundred indexes filled a budget of 8,000, and from then on each took the others' maps away."""
    path = tmp_path / "0.index"
    path.write_bytes(bytes(10))
    index, file = OffsetIndex(str(path), 0, 8), FileHandle(path=str(path))
    async with trio.open_nursery() as nursery:
        with fs.hold(operation) as gate:
            for _ in range(5):
                nursery.start_soon(disk.read, index.mapped(1) if operation == "map" else reading(file))
            await gate.reached(5)
    assert disk.budget.held == 1
    await until(lambda: len(fs.open_paths) <= 1)


async def test_a_map_of_a_file_that_was_replaced_meanwhile_is_not_kept(tmp_path: Path, disk: Disk, fs: GateFileSystem) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(bytes(16))
    index = OffsetIndex(str(path), 0, 16)
    index.tail = index.tail._replace(entries=2)
    async with held(fs.hold("map"), disk.read, index.mapped(1)):
        await disk.drive(index.replace(index.empty_tail(), b""))
    assert index.buffer is None


async def test_a_procedure_is_done_at_once_or_waits_at_its_operation(tmp_path: Path, disk: Disk, fs: GateFileSystem) -> None:
    file = stored(tmp_path / "log")
    with pytest.raises(WouldWaitError) as raised:
        disk.try_read(reading(file))
    assert raised.value.operation == Read(file, 0, 10)
    assert await disk.read(reading(file)) == b"0123456789"
    assert disk.try_read(reading(file, 3, 4)) == b"456"
    fs.fail("read_cached", number=errno.EIO)
    with pytest.raises(OSError, match="log"):
        disk.try_read(reading(file))


async def test_a_procedure_that_works_for_long_would_wait_when_its_turn_is_over(disk: Disk) -> None:
    def working(pauses: int) -> Generator[DiskOp | None, Any, str]:
        for _ in range(pauses):
            yield None
        return "done"

    fit = STEPS_PER_TURN // STEPS_PER_PAUSE - 1
    assert disk.try_read(working(fit)) == "done"
    with pytest.raises(WouldWaitError) as raised:
        disk.try_read(working(1))
    assert raised.value.operation is None
    assert await disk.read(working(10 * fit)) == "done"


async def test_a_long_read_from_the_cache_lets_others_have_their_turn(tmp_path: Path) -> None:
    async with open_disk(GateFileSystem()) as disk:
        file = stored(tmp_path / "log")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        def read_often() -> Generator[DiskOp, Any, int]:
            for _ in range(6400):
                yield Read(file, 0, 10)
            return turns

        await disk.read(reading(file))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            assert await disk.read(read_often()) >= 90
            nursery.cancel_scope.cancel()


@pytest.fixture
def faults() -> DiskFaults:
    return DiskFaults()


@pytest.fixture
def faulty(faults: DiskFaults) -> FaultyFileSystem:
    return FaultyFileSystem(faults)


def written(faulty: FaultyFileSystem, path: Path, data: bytes = b"0123456789") -> int:
    fd = faulty.open(str(path), CREATE)
    faulty.write(fd, [data], 0)
    return fd


def test_rules_fail_writes_syncs_and_reads(faulty: FaultyFileSystem, faults: DiskFaults, tmp_path: Path) -> None:
    fd = written(faulty, tmp_path / "0.log")
    faults.add(disk_rule_of({"effect": "full", "path": "*.log"}))
    with pytest.raises(OSError, match="No space"):
        faulty.write(fd, [b"x"], 10)
    faults.clear()
    for operation, call in {"sync": lambda: faulty.sync(fd), "read": lambda: faulty.read(fd, 1, 0)}.items():
        faults.add(disk_rule_of({"effect": "error", "operation": operation}))
        with pytest.raises(OSError, match="Input/output"):
            call()
        assert operation != "read" or faulty.read_cached(fd, 1, 0) is None
        faults.clear()
    assert faulty.read(fd, 4, 2) == b"2345"
    faulty.close(fd)


def test_after_a_crash_nothing_reaches_the_directory(faulty: FaultyFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    fd = written(faulty, path)
    faulty.crash()
    with pytest.raises(OSError, match="crashed"):
        faulty.write(fd, [b"lost"], 10)
    faulty.truncate(fd, 0)
    faulty.rename(str(path), str(tmp_path / "moved"))
    faulty.unlink(str(path))
    faulty.make_directory(str(tmp_path / "new"))
    other = faulty.open(str(tmp_path / "checkpoint"), CREATE)
    faulty.write(other, [b"lost"], 0)
    faulty.sync(other)
    faulty.close(other)
    faulty.close(fd)
    assert sorted(os.listdir(tmp_path)) == ["0.log"]
    assert path.read_bytes() == b"0123456789"


def test_a_torn_write_loses_unsynced_bytes_only(faulty: FaultyFileSystem, faults: DiskFaults, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    fd = written(faulty, path)
    faulty.sync(fd)
    faulty.write(fd, [b"abc"], 10)
    synced = written(faulty, tmp_path / "1.log")
    faulty.sync(synced)
    faults.add(disk_rule_of({"effect": "torn", "seed": 5}))
    faulty.crash()
    faulty.close(fd)
    faulty.close(synced)
    assert faulty.tear() == [str(path)]
    assert b"0123456789abc".startswith(path.read_bytes())
    assert 10 <= path.stat().st_size < 13


def test_a_write_delayed_beyond_the_crash_is_lost(faulty: FaultyFileSystem, faults: DiskFaults, tmp_path: Path) -> None:
    path, fired = tmp_path / "0.log", threading.Event()
    fd = written(faulty, path)
    faults.add(disk_rule_of({"effect": "delay", "operation": "write", "delay_ms": 3_600_000}))
    faults.watch(fired.set)
    with ThreadPoolExecutor(1) as device:
        write = device.submit(faulty.write, fd, [b"lost"], 10)
        assert fired.wait(PATIENCE_S)
        faulty.crash()
        with pytest.raises(OSError, match="crashed"):
            write.result(PATIENCE_S)
    faulty.close(fd)
    assert path.read_bytes() == b"0123456789"


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_procedure_in_memory_takes_no_thread(faults: DiskFaults, tmp_path: Path, in_memory: bool) -> None:
    """In memory, unless a fault may hold it up, and in any case after a crash."""
    faulty = FaultyFileSystem(faults, in_memory=in_memory)
    disk = Disk(faulty)

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
    faulty.crash()
    assert await hops("c.index") == 0
    await disk.files.close_all()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.index", "b.index"]


def opened(number: int) -> FileHandle:
    """A handle that says it is open."""
    return FileHandle(path=f"{number}.log", fd=1000 + number)


def filled(limit: int) -> tuple[DescriptorBudget, list[FileHandle]]:
    budget = DescriptorBudget(limit)
    files = [opened(number) for number in range(limit)]
    for file in files:
        assert budget.admit(file) == []
        file.used = False
    return budget, files


def test_the_first_idle_file_goes_and_a_used_one_has_a_second_chance() -> None:
    budget, files = filled(3)
    files[0].used = True
    assert budget.admit(opened(3)) == [1001]
    assert files[1].fd is None
    assert not files[0].used
    assert budget.admit(opened(4)) == [1002]
    assert budget.admit(opened(5)) == [1000]
    assert budget.held == 3
    budget, files = filled(3)
    files[1].fd = None
    files[0].used = files[2].used = True
    assert budget.admit(opened(3)) == [], "what was closed elsewhere makes space"
    assert budget.held == 3


def test_leased_files_stay_and_the_limit_is_passed_by_as_many() -> None:
    budget, files = filled(3)
    for file in files:
        file.leases = 1
    newcomer = opened(3)
    assert budget.admit(newcomer) == []
    assert budget.held == 4
    for file in files:
        file.leases = 0
    assert len(budget.admit(opened(4))) == 2
    assert budget.held == 3


def test_an_idle_map_is_dropped_and_closes_nothing() -> None:
    budget = DescriptorBudget(1)
    index = OffsetIndex("0.index", 0, 80)
    index.buffer = b"map"
    assert budget.admit(index) == []
    index.used = False
    assert budget.admit(opened(1)) == []
    assert index.buffer is None
    assert budget.held == 1


def test_clearing_gives_each_descriptor_once() -> None:
    budget, files = filled(2)
    budget.limit = 9
    budget.admit(files[0])
    index = OffsetIndex("0.index", 0, 80)
    index.buffer = b"map"
    budget.admit(index)
    assert sorted(budget.clear()) == [1000, 1001]
    assert budget.held == 0
    assert index.buffer is None
    assert [file.fd for file in files] == [None, None]


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=60))
def test_open_files_are_never_more_than_the_limit_and_the_leases(limit: int, uses: list[tuple[int, bool]]) -> None:
    budget = DescriptorBudget(limit)
    files = [FileHandle(path=f"{number}.log") for number in range(12)]
    open_now: set[int] = set()
    for fresh, (number, is_leased) in enumerate(uses):
        file = files[number]
        if file.fd is None:
            file.fd = fresh
            open_now.add(fresh)
            closed = budget.admit(file)
            assert set(closed) <= open_now - {fresh}
            open_now -= set(closed)
            assert len(open_now) <= max(limit, sum(each.leases for each in files) + 1)
        file.used = True
        file.leases = int(is_leased)
        assert len(open_now) == budget.held == sum(each.fd is not None for each in files)


SLACK = 2 * WRITERS + READERS + 2 * CLOSE_BACKLOG
"""Files with leases, and evicted ones that wait to be closed or are being closed."""


@pytest.mark.merge
async def test_a_thousand_partitions_live_on_sixty_four_descriptors(tmp_path: Path) -> None:
    partitions = [TopicPartition("many", number) for number in range(counts(1000))]
    topic = {"index.interval.bytes": "1", "segment.index.bytes": "240"}
    for restarted in (False, True):
        fs = GateFileSystem()
        before = len(os.listdir("/proc/self/fd"))
        async with running_broker(tmp_path, fs=fs, durable=False, topic=topic) as broker:
            broker.disk.budget.limit = 64
            if not restarted:
                await broker.topics.create("many", len(partitions))
            assert len(os.listdir("/proc/self/fd")) - before <= SLACK
            for turn in range(3 * restarted, 3 * restarted + 3):
                async with trio.open_nursery() as nursery:
                    for partition in partitions:
                        nursery.start_soon(broker.writer.append, partition, value(f"{partition} {turn}"))
                assert broker.disk.statistics().descriptors <= 64 + SLACK
            for partition in partitions:
                expected = [f"{partition} {turn}".encode() for turn in range(3 * restarted + 3)]
                assert await values_from(broker, partition) == expected
                assert await broker.reader.offset_for_time(partition, START_MS) == (START_MS, 0, 0)
                assert broker.disk.statistics().descriptors <= 64 + SLACK
                assert len(os.listdir("/proc/self/fd")) - before <= 64 + SLACK
        assert fs.open_paths == []
