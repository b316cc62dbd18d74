"""Flushes and syncs of one log: one after the other, and what a device without room does to them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock
from triolog.server.partitions.flusher import flush
from triolog.server.storage.errors import AppendFailedError, LogOfflineError

from tests.server.partitions.appending import Answered, send
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, until, value, values_from
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
        with pytest.raises(AppendFailedError, match=r"nothing of the append is stored; free space"):
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
        with pytest.raises(LogOfflineError, match=r"what the device did not take is lost.*position"):
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
        with pytest.raises(AppendFailedError, match="nothing of the append is stored"):
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
            with pytest.raises(LogOfflineError, match=r"what the device did not take is lost"):
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
