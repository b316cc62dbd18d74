"""The cleaner of a running server: with its process, beside appends and reads."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.errors import RequestError, UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.config import DataPermissions
from triolog.server.logs.cleaner import MOST_DEATHS, Cleaner
from triolog.server.logs.cleaner_process import (
    ChildProcess,
    CleanerFailedError,
    CleanerProcess,
    open_child_process,
    open_cleaner_process,
)
from triolog.server.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningResult
from triolog.server.storage.cleaner.selection import choose, plan_round
from triolog.server.storage.disk.checkpoints import CLEANER_OFFSET_FILE, read_cleaner_offsets
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.support.brokers import PARTITION, TOPIC, actor_of, records_from, running_broker, until
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS

SETTLED_S = 0.2
"""Without any task running for so long, nothing is on its way in a thread or a process either."""
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.1"}


@asynccontextmanager
async def compacted(directory: Path, *, enable: bool = False, **settings: Any) -> AsyncIterator[Broker]:
    """A broker with one compacted partition; its own cleaner is off unless `enable`."""
    settings = {"cleaner_enable": enable, "cleaner_backoff_ms": 10, "topic": COMPACTED} | settings
    async with running_broker(directory, **settings) as broker:
        if TOPIC not in broker.topics.names():
            await broker.topics.create(TOPIC)
        yield broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with compacted(tmp_path) as broker:
        yield broker


async def put(broker: Broker, key: int, value: int) -> int:
    answer = await broker.writer.append(PARTITION, [(START_MS, str(key).encode(), str(value).encode(), ())])
    return answer.base_offset


async def fill(broker: Broker, records: int = 200, keys: int = 7, start: int = 0) -> None:
    for number in range(start, start + records):
        await put(broker, number % keys, number)
    await until(lambda: recovered(broker))


def recovered(broker: Broker, partition: TopicPartition = PARTITION) -> bool:
    log = actor_of(broker, partition).log
    return log.recovery_point >= log.active.base_offset


async def state(broker: Broker) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in await records_from(broker)}


def cleaner_of(broker: Broker) -> Cleaner:
    return Cleaner(broker._manager, open_child_process)


def process_of(cleaner: CleanerProcess) -> trio.Process:
    assert isinstance(cleaner.child, ChildProcess)
    return cleaner.child.process


def job_of(broker: Broker, **settings: Any) -> CleaningJob:
    log = actor_of(broker).log
    return plan_round(log, drive(OsFileSystem(), choose(log, None, START_MS)), START_MS, map_bytes=1 << 20, **settings)


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.suffix in (".cleaned", ".swap")]


async def test_a_running_server_compacts_what_is_due(tmp_path: Path) -> None:
    async with compacted(tmp_path, enable=True) as broker:
        await fill(broker)
        before = await state(broker)
        end = actor_of(broker).log.active.base_offset
        await until(lambda: read_cleaner_offsets(OsFileSystem(), str(tmp_path)) == {PARTITION: end})
        assert await state(broker) == before
        assert len(await records_from(broker)) < 60
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("durability", ["os", "fsync"])
async def test_a_log_is_compacted_on_demand_up_to_its_end(tmp_path: Path, durability: str) -> None:
    """Unless its records are too young, or its topic is not compacted."""
    lazy = {**COMPACTED, "min.cleanable.dirty.ratio": "0.99", "segment.bytes": "1000000"}
    async with compacted(tmp_path, topic=lazy, durability=durability) as broker:
        for number in range(20):
            await put(broker, number % 2, number)
        assert not await cleaner_of(broker).clean_dirtiest(), "it is not dirty enough"
        await broker.topics.alter_configs(TOPIC, {"min.compaction.lag.ms": "60000"})
        assert await broker.logs.compact(PARTITION) == 0
        await broker.topics.alter_configs(TOPIC, {}, ["min.compaction.lag.ms"])
        assert await broker.logs.compact(PARTITION) == 1
        assert [record.value for record in await records_from(broker)] == [b"18", b"19"]
        assert await broker.logs.compact(PARTITION) == 0
        await put(broker, 0, 20)
        assert await broker.logs.compact(PARTITION) == 1
        assert [record.value for record in await records_from(broker)] == [b"19", b"20"]
        assert read_cleaner_offsets(OsFileSystem(), str(tmp_path)) == {PARTITION: 21}
        await broker.topics.alter_configs(TOPIC, {"cleanup.policy": "delete"})
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*cleanup\.policy"):
            await broker.logs.compact(PARTITION)
        assert not await cleaner_of(broker).clean_dirtiest()
    assert leftovers(tmp_path) == []


async def test_compacted_logs_are_not_compacted_again_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with compacted(tmp_path, data_permissions=DataPermissions.GROUP) as broker:
        await fill(broker)
        assert await cleaner_of(broker).clean_dirtiest()
        before = await records_from(broker)
        clean_up_to = actor_of(broker).log.active.base_offset
        files = [path for path in (tmp_path / f"{TOPIC}-0").iterdir() if path.is_file()]
        assert {path.suffix for path in files} >= {".log", ".index", ".timeindex"}
        assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    assert read_cleaner_offsets(OsFileSystem(), str(tmp_path)) == {PARTITION: clean_up_to}
    async with compacted(tmp_path) as broker:
        assert await records_from(broker) == before
        cleaner = cleaner_of(broker)
        await cleaner.load()
        assert cleaner.clean_up_to == {actor_of(broker).log: clean_up_to}
        assert not await cleaner.clean_dirtiest()
        (tmp_path / CLEANER_OFFSET_FILE).write_text("nonsense")
        cleaner = cleaner_of(broker)
        await cleaner.load()
        assert cleaner.clean_up_to == {}
        assert "cleaning compacted logs from their start" in caplog.text
        cleaner.clean_up_to[actor_of(broker).log] = 10_000
        assert await cleaner.clean_dirtiest()
        assert "not compacted" in caplog.text, "a checkpoint that is not in the log is reset"


async def test_appends_and_reads_go_on_during_a_round(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read lies between any two steps of the round. However many records are appended meanwhile: of what was inactive before
    each key has one record afterwards."""
    await fill(broker, 400)
    expected = await state(broker)
    inactive_until = actor_of(broker).log.active.base_offset
    done = False
    reads = 0

    async def append_and_read() -> None:
        nonlocal reads
        number = 400
        while not done:
            await put(broker, number % 7, number)
            expected[str(number % 7).encode()] = str(number).encode()
            number += 1
            assert await state(broker) == expected
            reads += 1

    async def next_after_a_read(process: CleanerProcess) -> CleanedGroup | CleaningResult:
        answer, before = await receive(process), reads
        await until(lambda: reads > before)
        return answer

    receive = CleanerProcess.next
    monkeypatch.setattr(CleanerProcess, "next", next_after_a_read)
    cleaner = cleaner_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_and_read)
        assert await cleaner.clean_dirtiest()
        done = True
    assert reads > 1
    assert await state(broker) == expected
    (clean_up_to,) = cleaner.clean_up_to.values()
    assert clean_up_to >= inactive_until
    records = await records_from(broker)
    assert Counter(record.key for record in records if record.offset < clean_up_to) == dict.fromkeys(expected, 1)
    behind = [record.offset for record in records if record.offset >= clean_up_to]
    assert behind == list(range(clean_up_to, actor_of(broker).log.log_end_offset))


async def test_the_dirtiest_log_comes_first_or_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = TopicPartition("other", 0)
    async with compacted(tmp_path) as broker:
        await broker.topics.create("other")
        await fill(broker, 400)
        for number in range(100):
            await broker.writer.append(other, [(START_MS, b"k", str(number).encode() * 9, ())])
        await until(lambda: recovered(broker) and recovered(broker, other))
        cleaner = cleaner_of(broker)
        found = {each: choose(actor_of(broker, each).log, None, START_MS) for each in (PARTITION, other)}
        dirtiest = max(found, key=lambda each: drive(OsFileSystem(), found[each]).dirty_ratio)
        run_round = Cleaner._run_round
        tried: list[TopicPartition] = []

        async def fail(self: Cleaner, candidate: Any, job: CleaningJob) -> Any:
            tried.append(job.topic_partition)
            if job.topic_partition == dirtiest:
                raise CleanerFailedError("a bad sector", "disk")
            return await run_round(self, candidate, job)

        with monkeypatch.context() as patch:
            patch.setattr(Cleaner, "_run_round", fail)
            assert [await cleaner.clean_dirtiest() for _ in range(3)] == [False, True, False]
        assert tried[0] == dirtiest
        assert await cleaner.clean_dirtiest()
        assert len(cleaner.clean_up_to) == 2
        assert not await cleaner.clean_dirtiest()


async def test_a_killed_process_leaves_cleaned_files_only(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.cleaned` files are discarded; the log is as it was."""
    await fill(broker)
    before = await records_from(broker)
    cleaner = cleaner_of(broker)
    seen: list[str] = []
    receive = CleanerProcess.next

    async def kill_first(process: CleanerProcess) -> Any:
        if not seen:
            await receive(process)
            seen.extend(leftovers(tmp_path))
            os.kill(process_of(process).pid, signal.SIGKILL)
        return await receive(process)

    with monkeypatch.context() as patch:
        patch.setattr(CleanerProcess, "next", kill_first)
        assert not await cleaner.clean_dirtiest()
    assert seen
    assert all(name.endswith(".cleaned") for name in seen)
    assert leftovers(tmp_path) == []
    assert await records_from(broker) == before
    assert "was ended by signal 9" in caplog.text
    assert await cleaner.clean_dirtiest()
    assert cleaner.uncleanable == {}


async def test_a_process_ends_with_its_server_or_when_its_result_is_not_wanted(broker: Broker) -> None:
    """Its standard input ends: that is all that a killed server can say."""
    await fill(broker)
    with trio.fail_after(30):
        async with open_cleaner_process(job_of(broker), open_child_process) as process:
            assert isinstance(await process.next(), CleanedGroup)
            stdin = process_of(process).stdin
            assert stdin is not None
            await stdin.aclose()
            assert await process_of(process).wait() == 1
        async with open_cleaner_process(job_of(broker, max_bytes_per_second=1), open_child_process) as process:
            with trio.move_on_after(0.2):
                await process.next()
    assert process_of(process).returncode == -signal.SIGKILL


async def test_damage_is_said_and_the_partition_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with compacted(tmp_path) as broker:
        await fill(broker)
        path = Path(actor_of(broker).log.segments.first.log.path)
        content = bytearray(path.read_bytes())
        content[65] ^= 1
        path.write_bytes(content)
        cleaner = cleaner_of(broker)
        assert not await cleaner.clean_dirtiest()
        [reason] = cleaner.uncleanable.values()
        assert "CRC" in reason
        assert not await cleaner.clean_dirtiest()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{PARTITION} is off until the next start" in record.getMessage()
    assert "triolog verify" in record.getMessage()


async def test_a_log_is_given_up_after_some_deaths_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ["disk"] * MOST_DEATHS + ["died", "gone"] * (MOST_DEATHS - 1) + ["died"]
    failures = iter(kinds)

    async def fail(process: CleanerProcess) -> Any:
        raise CleanerFailedError("it failed", next(failures))

    monkeypatch.setattr(CleanerProcess, "next", fail)
    async with compacted(tmp_path) as broker:
        await fill(broker)
        cleaner = cleaner_of(broker)
        for left in reversed(range(len(kinds))):
            assert not await cleaner.clean_dirtiest()
            assert len(cleaner.uncleanable) == (left == 0)


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_topic_that_is_deleted_or_not_compacted_any_more_ends_the_round(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    receive = CleanerProcess.next
    await fill(broker)
    before = await records_from(broker)
    cleaner = cleaner_of(broker)

    async def change_first(process: CleanerProcess) -> Any:
        answer = await receive(process)
        if is_deleted:
            await broker.topics.delete(TOPIC)
        else:
            await broker.topics.alter_configs(TOPIC, {"cleanup.policy": "delete", "retention.ms": "-1"}, [])
        return answer

    monkeypatch.setattr(CleanerProcess, "next", change_first)
    assert not await cleaner.clean_dirtiest()
    assert cleaner.uncleanable == {}
    assert not await cleaner.clean_dirtiest()
    if is_deleted:
        with pytest.raises(UnknownTopicOrPartitionError):
            await records_from(broker)
    else:
        assert await records_from(broker) == before
        assert leftovers(tmp_path) == []


async def test_a_round_that_is_cancelled_while_the_log_adopts_it_loses_nothing(tmp_path: Path, fs: GateFileSystem) -> None:
    """The log takes it over all the same once that is enqueued, so its files must still be there."""
    async with compacted(tmp_path, fs=fs) as broker:
        await fill(broker)
        expected = await state(broker) | {b"1": b"1000"}
        async with trio.open_nursery() as nursery:
            with fs.hold("write", ".log") as gate:
                nursery.start_soon(put, broker, 1, 1000)
                await gate.reached()
                async with trio.open_nursery() as cleaning:
                    cleaning.start_soon(cleaner_of(broker).clean_dirtiest)
                    await until(lambda: actor_of(broker).statistics().waiting_commands == 1)
                    cleaning.cancel_scope.cancel()
                    with trio.CancelScope(shield=True):
                        await trio.testing.wait_all_tasks_blocked(SETTLED_S)
                    gate.release()
        assert await state(broker) == expected
    assert leftovers(tmp_path) == []
    async with compacted(tmp_path) as broker:
        assert await state(broker) == expected
