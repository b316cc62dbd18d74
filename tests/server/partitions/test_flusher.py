"""Flushes and syncs of one log: one after the other, and what a device without room does to them."""

from __future__ import annotations

import errno
import threading
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.limits import KIB
from triolog.protocol.types import AppendResult, TopicPartition
from triolog.server.fake.faults.faults import DiskFaults
from triolog.server.fake.faults.rules import DiskRule
from triolog.server.loop.turns import Turns
from triolog.server.partitions import disk
from triolog.server.partitions.disk import MAX_BYTES
from triolog.server.partitions.faulty_disk import FaultyFileSystem
from triolog.server.partitions.flusher import flush
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Sync, Truncate, Write
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import AppendFailedError, LogOfflineError

from tests.server.partitions.test_disk import open_disk, writable
from tests.server.partitions.test_partition import Answered, answered, offsets, prepared, send
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, until, value, values_from
from tests.support.counts import seeds
from tests.support.gate_fs import GateFileSystem, held

LOG = "00000000000000000000.log"


def changes(fs: GateFileSystem, suffix: str = LOG) -> list[str]:
    """What was done to a file, in order."""
    return [
        call.operation for call in fs.calls if call.operation in ("write", "truncate", "sync") and call.path.endswith(suffix)
    ]


async def test_a_sync_of_a_group_waits_for_a_flush_beside_it_and_fails_with_it(tmp_path: Path, fs: GateFileSystem) -> None:
    """The kernel tells a failure to one sync of a descriptor: side by side, the group's would have succeeded."""
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, durability="os", topic={"flush.ms": "1", "flush.messages": "3"}) as broker:
        actor = actor_of(broker)
        async with held(fs.hold("sync", LOG, most=1), send, actor, answers):
            fs.fail("sync", LOG, number=errno.EIO)
            await send(actor, answers)
            await send(actor, answers)
            await until(lambda: len(answers) == 3 or actor._flusher.lock.statistics().tasks_waiting == 1)
            assert fs.count("sync", LOG) == 1
        await until(lambda: len(answers) == 3)
        assert isinstance(answers[-1], LogOfflineError)
        assert actor.log.recovery_point == 0
        assert fs.count("sync", LOG) == 1


async def test_a_file_that_was_opened_again_remembers_its_failed_sync(tmp_path: Path, fs: GateFileSystem) -> None:
    """A descriptor of before the failure would be told, a new one is not."""
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        log = actor_of(broker).log
        fs.fail("sync", LOG, number=errno.ENOSPC)
        await broker.writer.append(PARTITION, value("a"), acks=1)
        await until(lambda: log.active.log.failed_sync is not None)
        broker.disk.files.release([log.active.log], [])
        await broker.writer.append(PARTITION, value("b"))
        assert changes(fs) == ["write", "sync", "write", "write", "sync"]
        assert await values_from(broker) == [b"a", b"b"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_an_append_whose_sync_has_no_space_is_refused_only(tmp_path: Path, fs: GateFileSystem, number: int) -> None:
    path = tmp_path / "topic-0" / LOG
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        log = actor_of(broker).log
        await broker.writer.append(PARTITION, value("before"))
        size = path.stat().st_size
        fs.fail("sync", LOG, number=number)
        with pytest.raises(AppendFailedError, match=r"Nothing of the append is stored\. Free space"):
            await broker.writer.append(PARTITION, value("refused"))
        assert (log.offline, log.log_end_offset, log.high_watermark, path.stat().st_size) == (None, 1, 1, size)
        assert await values_from(broker) == [b"before"]
        assert (await broker.writer.append(PARTITION, value("after"))).base_offset == 1
        assert await values_from(broker) == [b"before", b"after"]
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_records_answered_before_a_sync_without_space_are_written_again(tmp_path: Path) -> None:
    """Nothing below the recovery point is."""
    written: list[tuple[int, int]] = []

    class Noting(GateFileSystem):
        def write(self, fd: int, buffers: Any, position: int) -> None:
            if self._path(fd).endswith(LOG):
                written.append((position, sum(map(len, buffers))))
            super().write(fd, buffers, position)

    fs = Noting()
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        log = actor_of(broker).log
        await broker.writer.append(PARTITION, value("a"))
        fs.fail("sync", LOG, number=errno.ENOSPC)
        await broker.writer.append(PARTITION, value("b"), acks=1)
        await until(lambda: log.active.log.failed_sync == errno.ENOSPC)
        assert (log.offline, log.log_end_offset, log.high_watermark) == (None, 2, 1)
        await until(lambda: log.high_watermark == 2)
        assert changes(fs) == ["write", "sync", "write", "sync", "write", "sync"]
        assert await values_from(broker) == [b"a", b"b"]
    size = written[0][1]
    assert written == [(0, size), (size, size), (size, size)]


async def test_a_log_that_reads_back_differently_after_a_failed_sync_goes_offline(tmp_path: Path, fs: GateFileSystem) -> None:
    """The kernel may drop a page that it could not write; reading gives what the device has."""
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        log = actor_of(broker).log
        await broker.writer.append(PARTITION, value("a"))
        size = log.active.size
        fs.fail("sync", LOG, number=errno.ENOSPC)
        await broker.writer.append(PARTITION, value("b"), acks=1)
        await until(lambda: log.active.log.failed_sync is not None)
        with (tmp_path / "topic-0" / LOG).open("r+b") as file:
            file.seek(size)
            file.write(bytes(size))
        await until(lambda: log.offline is not None)
        with pytest.raises(LogOfflineError, match=r"did not accept are lost.*position"):
            await broker.writer.append(PARTITION, value("c"))
    async with one_partition(tmp_path, durability="fsync") as broker:
        assert await values_from(broker) == [b"a"]


async def test_a_synced_record_that_a_failed_sync_took_along_is_not_served(tmp_path: Path, fs: GateFileSystem) -> None:
    """The next append is refused and taken back, so nothing is written again: what shares its page is checked all the same."""
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        log = actor_of(broker).log
        for text in ("a", "b"):
            await broker.writer.append(PARTITION, value(text))
        fs.fail("sync", LOG, number=errno.ENOSPC)
        with pytest.raises(AppendFailedError, match="Nothing of the append is stored"):
            await broker.writer.append(PARTITION, value("refused"))
        with (tmp_path / "topic-0" / LOG).open("r+b") as file:
            file.seek(log.active.size - 5)
            file.write(bytes(5))
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with one_partition(tmp_path, durability="fsync") as broker:
        first, *covering = await values_from(broker)
        assert (first, covering) == (b"a", [bytes(6)]), "the control batch that covers the gap, and nothing else"
        [found] = await broker.gaps.of(TOPIC)
        assert [each.gap[:2] for each in found.gaps] == [(1, 2)]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", "lost .index"])
async def test_a_roll_whose_sync_has_no_space_is_tried_again(tmp_path: Path, fs: GateFileSystem, suffix: str) -> None:
    """Unless an index reads back differently."""
    is_lost, suffix = " " in suffix, suffix.split()[-1]
    topic = {"segment.bytes": "400", "index.interval.bytes": "0"}
    async with one_partition(tmp_path, fs=fs, durability="fsync", topic=topic) as broker:
        for text in ("a" * 80, "b" * 80):
            await broker.writer.append(PARTITION, value(text))
        fs.fail("sync", f"00000000000000000000{suffix}", number=errno.ENOSPC)
        with pytest.raises(AppendFailedError, match="starting a new segment"):
            await broker.writer.append(PARTITION, value("c" * 80))
        assert actor_of(broker).log.offline is None
        if is_lost:
            index = tmp_path / "topic-0" / f"00000000000000000000{suffix}"
            with index.open("r+b") as file:
                file.write(bytes(index.stat().st_size))
            with pytest.raises(LogOfflineError, match=r"did not accept are lost"):
                await broker.writer.append(PARTITION, value("d" * 80))
            return
        result = await broker.writer.append(PARTITION, value("d" * 80))
        assert (result.base_offset, len(actor_of(broker).log.segments)) == (2, 2)
        done = [operation for operation in changes(fs, f"00000000000000000000{suffix}") if operation != "truncate"]
        assert done[-1] == "sync"
        assert done[-2] == ("sync" if suffix == ".log" else "write")


async def test_a_producer_snapshot_whose_sync_has_no_space_is_written_again(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync", topic={"segment.bytes": "200"}) as broker:
        await broker.writer.append(PARTITION, value("a" * 80))
        fs.fail("sync", ".snapshot", number=errno.ENOSPC)
        with pytest.raises(AppendFailedError):
            await broker.writer.append(PARTITION, value("b" * 80))
        assert (await broker.writer.append(PARTITION, value("c" * 80))).base_offset == 1
        done = [(call.operation, Path(call.path).name) for call in fs.calls if call.operation in ("write", "rename", "sync")]
        name = "00000000000000000001.snapshot"
        written = [("write", f"{name}.tmp"), ("rename", f"{name}.tmp")]
        assert [each for each in done if name in each[1]] == [*written, ("sync", name), *written, ("sync", name)]


async def test_nothing_is_appended_while_a_flush_in_the_background_writes_again(tmp_path: Path, fs: GateFileSystem) -> None:
    """What the kernel is asked to forget was read before: an append in between would be forgotten with it."""
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, durability="group:1") as broker:
        actor = actor_of(broker)
        with fs.hold("read", LOG, most=1) as gate:
            fs.fail("sync", LOG, number=errno.ENOSPC)
            await send(actor, answers)
            await gate.reached()
            await send(actor, answers)
            await until(lambda: actor.statistics().waiting_commands == 1)
            assert changes(fs) == ["write", "sync"]
        await until(lambda: actor.log.recovery_point == 2)
        assert changes(fs)[:5] == ["write", "sync", "write", "sync", "write"]
        assert len(await values_from(broker)) == 2


async def test_a_flush_on_request_ends_the_loss_window(tmp_path: Path, mock_clock: MockClock) -> None:
    async with one_partition(tmp_path, durability="os") as broker:
        actor = actor_of(broker)
        await broker.writer.append(PARTITION, value("a"))
        mock_clock.jump(5)
        await actor.perform(flush)
        mock_clock.jump(5)
        assert actor.statistics().unsynced_ms == 0
        await broker.writer.append(PARTITION, value("b"))
        mock_clock.jump(3)
        assert actor.statistics().unsynced_ms == pytest.approx(3000)
        assert actor.statistics().longest_unsynced_ms == pytest.approx(5000)


async def test_deleting_records_makes_what_is_not_synced_no_younger(tmp_path: Path, mock_clock: MockClock) -> None:
    """The recovery point follows the log start offset, and nothing was synced (simulation, seed 1011)."""
    async with one_partition(tmp_path, durability="os") as broker:
        for text in "ab":
            await broker.writer.append(PARTITION, value(text))
        mock_clock.jump(5)
        await broker.logs.delete_records(PARTITION, 1)
        assert actor_of(broker).log.recovery_point == 1
        assert actor_of(broker).statistics().unsynced_ms == pytest.approx(5000)


async def test_after_a_roll_the_loss_window_begins_with_the_new_segment(tmp_path: Path, mock_clock: MockClock) -> None:
    async with one_partition(tmp_path, durability="os", topic={"segment.bytes": "150"}) as broker:
        actor = actor_of(broker)
        for text in "abc":
            await broker.writer.append(PARTITION, value(text * 5))
            mock_clock.jump(7)
        last = actor.log.active.base_offset
        assert last > 0
        await until(lambda: actor.log.recovery_point == last)
        assert actor.statistics().unsynced_ms == pytest.approx(7000 * (actor.log.log_end_offset - last))
        assert actor.statistics().longest_unsynced_ms >= 7000


async def test_under_fsync_the_loss_window_is_what_was_answered_before_its_sync(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        actor = actor_of(broker)
        await broker.writer.append(PARTITION, value("a"))
        assert actor.statistics().longest_unsynced_ms == 0
        with fs.hold("sync", LOG) as gate:
            await broker.writer.append(PARTITION, value("b"), acks=1)
            await gate.reached()
            assert actor.statistics().unsynced_ms > 0
        await until(lambda: actor.log.recovery_point == 2)
        await broker.writer.append(PARTITION, value("c"))
        assert actor.statistics().unsynced_ms == 0
        assert actor.statistics().longest_unsynced_ms > 0


def put(actor: PartitionActor, answers: Answered, *, count: int = 1, size: int = 5) -> None:
    for _ in range(count):
        assert actor.try_append(prepared(actor, size=size), -1, answers.append)


async def test_the_appends_of_a_turn_are_answered_at_its_end_without_the_task(tmp_path: Path) -> None:
    """Those outside of a turn are done by the task; the first opens the file, in a thread."""
    answers: Answered = []
    async with one_partition(tmp_path, durability="os") as broker:
        actor = actor_of(broker)
        put(actor, answers)
        assert answers == []
        await answered(answers, 1)
        with broker.disk.gathering:
            put(actor, answers, count=50)
            assert len(answers) == 1
        assert offsets(answers) == list(range(51))
        assert (actor.statistics().groups, actor.statistics().appends) == (2, 51)
        assert len(await values_from(broker)) == 51


@pytest.mark.parametrize(
    ("durability", "topic", "size"),
    [("fsync", {}, 5), ("os", {"flush.messages": "2"}, 5), ("os", {"segment.bytes": "2000"}, 900), ("os", {}, MAX_BYTES // 2)],
    ids=["it is synced", "the second one is synced", "the third one rolls", "it is large"],
)
async def test_the_task_does_long_work_in_order(tmp_path: Path, durability: str, topic: dict[str, str], size: int) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, durability=durability, topic=topic) as broker:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)
        with broker.disk.gathering:
            put(actor, answers, count=3, size=size)
        assert len(answers) == 1
        with broker.disk.gathering:
            put(actor, answers)
        await answered(answers, 5)
        assert offsets(answers) == [0, 1, 2, 3, 4]
        assert len(await values_from(broker)) == 5


async def test_with_fsync_a_turn_gathers_one_group_for_the_task_and_puts_nothing_off(tmp_path: Path) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, durability="fsync") as broker:
        actor = actor_of(broker)
        with broker.disk.gathering:
            put(actor, answers, count=3)
            assert not broker.disk.gathering.writers
        await answered(answers, 3)
        assert (actor.statistics().groups, actor.statistics().appends) == (1, 3)


async def test_a_command_that_waits_for_its_turn_is_not_overtaken(tmp_path: Path) -> None:
    answers: Answered = []
    seen: list[int] = []
    async with one_partition(tmp_path, durability="os") as broker, trio.open_nursery() as nursery:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)

        def look(log: Any) -> Any:
            seen.append(log.log_end_offset)
            return
            yield

        with broker.disk.gathering:
            put(actor, answers, count=2)
            nursery.start_soon(actor.perform, look)
        await trio.testing.wait_all_tasks_blocked()
        with broker.disk.gathering:
            put(actor, answers)
        assert (offsets(answers), seen) == ([0, 1, 2, 3], [3])


async def test_a_write_at_the_end_of_a_turn_that_fails_is_taken_back_and_answered(tmp_path: Path, fs: GateFileSystem) -> None:
    answers: Answered = []
    fs.lets_write_at_once = True
    async with one_partition(tmp_path, durability="os", fs=fs) as broker:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)
        size = Path(actor.log.active.log.path).stat().st_size
        fs.fail("write", ".log", after_bytes=7)
        with broker.disk.gathering:
            put(actor, answers, count=2)
        with broker.disk.gathering:
            put(actor, answers)
        await answered(answers, 4)
        assert [type(answer) for answer in answers[1:3]] == [AppendFailedError] * 2
        assert answers[1].code is ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(answers) == [0, 1]
        assert Path(actor.log.active.log.path).stat().st_size == 2 * size


async def test_an_unhandled_exception_at_the_end_of_a_turn_takes_that_log_offline_only(tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    answers: Answered = []
    async with one_partition(tmp_path, durability="os") as broker:
        actor = actor_of(broker)
        put(actor, answers)
        await answered(answers, 1)
        with broker.disk.gathering:
            actor.try_append(prepared(actor), -1, broken)
            put(actor, answers)
        await answered(answers, 2)
        assert actor.log.offline is not None
        assert isinstance(answers[1], LogOfflineError)
        await broker.topics.create("beside")
        assert (await broker.writer.append(TopicPartition("beside", 0), value("x"))).base_offset == 0


@pytest.mark.parametrize("seed", seeds(60))
async def test_any_interleaving_gives_offsets_in_the_order_of_sending(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    answers: list[tuple[int, AppendResult | RequestError]] = []
    changes: list[int] = []
    sent = 0
    durability, topic = random.choice([("os", {}), ("os", {"flush.messages": "7"}), ("fsync", {}), ("group:1", {})])
    async with one_partition(tmp_path, durability=durability, topic={"segment.bytes": "4000", **topic}) as broker:
        actor = actor_of(broker)

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                append = prepared(actor, size=random.choice([1, 100, 1000]))
                assert actor.try_append(append, random.choice([-1, 1]), partial(note, sent))
                sent += 1

        def note(number: int, answer: AppendResult | RequestError) -> None:
            answers.append((number, answer))

        def look(log: Any) -> Any:
            changes.append(log.log_end_offset)
            return
            yield

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                match random.randrange(5):
                    case 0:
                        send(random.randrange(4))
                    case 1:
                        nursery.start_soon(actor.perform, look)
                    case 2:
                        await trio.lowlevel.checkpoint()
                    case _:
                        with broker.disk.gathering:
                            send(random.randrange(6))
            await until(lambda: len(answers) == sent)
        assert {number: answer.base_offset for number, answer in answers if isinstance(answer, AppendResult)} == {
            number: number for number in range(sent)
        }
        assert changes == sorted(changes)
        # With acks=1 an append is answered when it is written, and readable only when it is synced.
        await until(lambda: actor.log.high_watermark == sent)
        assert len(await values_from(broker)) == sent


FILE = FileHandle(path="log", writable=True)


def small(size: int = 1) -> list[DiskOp]:
    return [Write(FILE, 0, [bytes(size)])]


@pytest.mark.parametrize(
    ("operations", "suits"),
    [
        (small(), True),
        ([Write(FILE, 0, [b"a", b"bc"]), Write(FILE, 3, [b"d"])], True),
        (small(disk.MAX_BYTES), True),
        (small(disk.MAX_BYTES + 1), False),
        ([*small(disk.MAX_BYTES), *small()], False),
        ([*small(disk.SMALL_BYTES), *small(disk.SMALL_BYTES)], True),
        ([*small(), Sync(FILE)], False),
        ([Truncate(FILE, 0)], False),
    ],
)
def test_only_small_writes_that_nothing_is_forced_to_the_device_with(operations: list[DiskOp], suits: bool) -> None:
    assert disk.WritesAtOnce().suits(OsFileSystem(), operations) is suits


def test_larger_writes_are_left_to_threads_once_a_turn_is_full() -> None:
    turns = Turns()
    writes = disk.WritesAtOnce(turns)
    turns.begin()
    together = 0
    while writes.suits(OsFileSystem(), small(128 * KIB)):
        together += 1
    assert 8 <= together <= 32
    assert writes.suits(OsFileSystem(), small(disk.SMALL_BYTES))
    turns.begin()
    assert writes.suits(OsFileSystem(), small(128 * KIB))
    faults = DiskFaults()
    assert writes.suits(FaultyFileSystem(faults), small())
    faults.add(DiskRule(effect="delay", operation="write", delay_ms=1))
    assert not writes.suits(FaultyFileSystem(faults), small()), "it may take long"


def test_after_a_slow_write_threads_write_for_a_while_and_for_longer_when_it_happens_again() -> None:
    now_s = 100.0
    writes = disk.WritesAtOnce(clock=lambda: now_s)

    def write(seconds: float) -> None:
        nonlocal now_s
        assert writes.suits(OsFileSystem(), small())
        now_s += seconds
        writes.done()

    write(disk.SLOW_S / 2)
    pauses = []
    for _ in range(12):
        write(2 * disk.SLOW_S)
        since_s = now_s
        while not writes.suits(OsFileSystem(), small()):
            now_s += disk.FIRST_PAUSE_S / 2
        pauses.append(now_s - since_s)
    assert pauses[:4] == pytest.approx([disk.FIRST_PAUSE_S * 2**power for power in range(4)], abs=disk.FIRST_PAUSE_S / 2)
    assert pauses[-1] == pytest.approx(disk.LONGEST_PAUSE_S, abs=disk.FIRST_PAUSE_S / 2)
    now_s += disk.LONGEST_PAUSE_S
    write(2 * disk.SLOW_S)
    now_s += disk.FIRST_PAUSE_S
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
