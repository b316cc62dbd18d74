"""The disk: hops, leases under a small budget, what cannot be read from the cache, and what is closed when."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.records.steps import STEPS_PER_PAUSE
from triolog.server.loop.turns import STEPS_PER_TURN
from triolog.server.partitions.disk import READERS, Disk, OperationFailedError, WouldWaitError
from triolog.server.partitions.open_files import CLOSE_BACKLOG, DescriptorBudget
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Read, Sync, Write
from triolog.server.storage.errors import SnapshotExpiredError
from triolog.server.storage.indexes.index import OffsetIndex

from tests.support.brokers import until
from tests.support.gate_fs import GateFileSystem, held


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
        assert answers == [b"0123456789"]


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
