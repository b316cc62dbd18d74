"""Small writes need no thread, as long as the device takes them at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from triolog.protocol.limits import KIB
from triolog.server.fake.faults.faults import DiskFaults
from triolog.server.fake.faults.rules import DiskRule
from triolog.server.loop.turns import Turns
from triolog.server.partitions import writes_at_once
from triolog.server.partitions.faulty_disk import FaultyFileSystem
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Sync, Truncate, Write
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.server.partitions.test_disk import open_disk, writable
from tests.support.gate_fs import GateFileSystem, held

FILE = FileHandle(path="log", writable=True)


def small(size: int = 1) -> list[DiskOp]:
    return [Write(FILE, 0, [bytes(size)])]


@pytest.mark.parametrize(
    ("operations", "suits"),
    [
        (small(), True),
        ([Write(FILE, 0, [b"a", b"bc"]), Write(FILE, 3, [b"d"])], True),
        (small(writes_at_once.MAX_BYTES), True),
        (small(writes_at_once.MAX_BYTES + 1), False),
        ([*small(writes_at_once.MAX_BYTES), *small()], False),
        ([*small(writes_at_once.SMALL_BYTES), *small(writes_at_once.SMALL_BYTES)], True),
        ([*small(), Sync(FILE)], False),
        ([Truncate(FILE, 0)], False),
    ],
)
def test_only_small_writes_that_nothing_is_forced_to_the_device_with(operations: list[DiskOp], suits: bool) -> None:
    assert writes_at_once.WritesAtOnce().suits(OsFileSystem(), operations) is suits


def test_larger_writes_are_left_to_threads_once_a_turn_is_full() -> None:
    turns = Turns()
    writes = writes_at_once.WritesAtOnce(turns)
    turns.begin()
    together = 0
    while writes.suits(OsFileSystem(), small(128 * KIB)):
        together += 1
    assert 8 <= together <= 32
    assert writes.suits(OsFileSystem(), small(writes_at_once.SMALL_BYTES))
    turns.begin()
    assert writes.suits(OsFileSystem(), small(128 * KIB))
    faults = DiskFaults()
    assert writes.suits(FaultyFileSystem(faults), small())
    faults.add(DiskRule(effect="delay", operation="write", delay_ms=1))
    assert not writes.suits(FaultyFileSystem(faults), small()), "it may take long"


def test_after_a_slow_write_threads_write_for_a_while_and_for_longer_when_it_happens_again() -> None:
    now_s = 100.0
    writes = writes_at_once.WritesAtOnce(clock=lambda: now_s)

    def write(seconds: float) -> None:
        nonlocal now_s
        assert writes.suits(OsFileSystem(), small())
        now_s += seconds
        writes.done()

    write(writes_at_once.SLOW_S / 2)
    pauses = []
    for _ in range(12):
        write(2 * writes_at_once.SLOW_S)
        since_s = now_s
        while not writes.suits(OsFileSystem(), small()):
            now_s += writes_at_once.FIRST_PAUSE_S / 2
        pauses.append(now_s - since_s)
    assert pauses[:4] == pytest.approx(
        [writes_at_once.FIRST_PAUSE_S * 2**power for power in range(4)], abs=writes_at_once.FIRST_PAUSE_S / 2
    )
    assert pauses[-1] == pytest.approx(writes_at_once.LONGEST_PAUSE_S, abs=writes_at_once.FIRST_PAUSE_S / 2)
    now_s += writes_at_once.LONGEST_PAUSE_S
    write(2 * writes_at_once.SLOW_S)
    now_s += writes_at_once.FIRST_PAUSE_S
    assert writes.suits(OsFileSystem(), small())


async def test_a_small_write_takes_no_hop_once_its_file_is_open(tmp_path: Path) -> None:
    fs = GateFileSystem()
    fs.lets_write_at_once = True
    async with open_disk(fs) as disk:
        file = writable(tmp_path / "log")
        await disk.run([Write(file, 0, [b"a"])], [file])
        before = disk.statistics()
        fs.calls.clear()
        await disk.run([Write(file, 1, [b"b"])], [file])
        after = disk.statistics()
        assert (after.hops, after.writes_at_once) == (before.hops, before.writes_at_once + 1)
        assert {call.thread for call in fs.calls} == {threading.current_thread().name}
    assert (tmp_path / "log").read_bytes() == b"ab"


async def test_beside_a_write_that_takes_long_a_small_one_gets_a_thread_too(tmp_path: Path) -> None:
    """What holds up one may hold up the other, and the loop with it."""
    fs = GateFileSystem()
    async with open_disk(fs) as disk:
        slow, quick = writable(tmp_path / "slow"), writable(tmp_path / "quick")
        for file in (slow, quick):
            await disk.run([Write(file, 0, [b"a"])], [file])
        async with held(fs.hold("sync", "slow"), disk.run, [Sync(slow)], [slow]):
            fs.lets_write_at_once = True
            before = disk.statistics()
            await disk.run([Write(quick, 1, [b"b"])], [quick])
            assert disk.statistics().writes_at_once == before.writes_at_once
