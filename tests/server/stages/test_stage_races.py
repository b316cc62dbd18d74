"""Files of staged batches; staging and commits when several things happen at once, or a disk refuses."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import MockClock
from triolog.protocol.errors import CorruptRecordError, InvalidRequestError
from triolog.protocol.native import messages
from triolog.protocol.records.batch import check_batch, crc32c
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, StagedShare
from triolog.server.listeners.native import log_calls
from triolog.server.stages import stage_files
from triolog.server.stages.stage_commits import RETRY_S
from triolog.server.stages.stage_files import find_staged, stage_name
from triolog.server.storage.disk.checkpoints import random_uuid
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import STAGE_DIRECTORY
from triolog.server.storage.errors import AppendFailedError, LogOfflineError

from tests.server.stages.test_stage_commits import APPLICATION, OTHER, batch, decide, stage
from tests.support import logs
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, values_from
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TransactionalProducer

COMMITS_LOG: Final = "__stage_commits-0/00000000000000000000.log"


def file_of(broker: Broker) -> str:
    """The name of what task 1 stages for PARTITION."""
    return broker.stage_commits.stages.file_name("1", PARTITION)


def files_in(directory: Path) -> list[str]:
    return [path for _, path, _ in find_staged(OsFileSystem(), str(directory))]


async def test_a_connection_that_ends_while_it_stages_leaves_nothing_waiting(tmp_path: Path, fs: GateFileSystem) -> None:
    parts = tuple(messages.StagePartition(TOPIC, number, batch("a")) for number in range(2))
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        with fs.hold("write", file_of(broker)) as gate:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(await log_calls.stage(broker, messages.StageRequest(APPLICATION, 0, "1", parts)))
                await gate.reached()
                nursery.cancel_scope.cancel()
                gate.release()
        for partition in (PARTITION, OTHER):
            topic_id = uuid.UUID(bytes=broker.topics.id_of(TOPIC))
            file = broker.stage_commits.stages.find(stage_name(APPLICATION, 0), "1", partition, topic_id)
            assert file is not None
            assert file.last_write is not None
            assert file.last_write.is_set()
        await broker.stage_commits.abort(APPLICATION, 0)
        assert broker.stage_commits.stages.staged_bytes == 0
        assert files_in(tmp_path) == []


async def test_what_is_touched_while_other_leftovers_are_thrown_away_stays(broker: Broker, fs: GateFileSystem) -> None:
    stages = broker.stage_commits.stages
    shares = {name: await stage(broker, "1", name, application=name) for name in "ABC"}
    for left in stages._stages.values():
        left.touched = -float("inf")
    expired: list[int] = []

    async def expire() -> None:
        expired.append(await stages.expire())

    async with held(fs.hold("unlink", file_of(broker), most=1), expire):
        again = await stage(broker, "1", "more", application="B")
        assert (await broker.stage_commits.commit("C", 0, [shares["C"]])).by_this_call
    assert expired == [1]
    assert (await broker.stage_commits.commit("B", 0, [again])).by_this_call
    assert await values_from(broker) == [b"C", b"B", b"more"]


async def test_a_file_that_stays_counts_once_and_is_written_over(tmp_path: Path, broker: Broker, fs: GateFileSystem) -> None:
    await stage(broker, "1", "longer than the other")
    shares: list[StagedShare] = []

    async def stage_again() -> None:
        shares.append(await stage(broker, "1", "short"))

    async with held(fs.hold("unlink", file_of(broker)), broker.stage_commits.abort, APPLICATION, 0) as nursery:
        fs.fail("unlink", file_of(broker), number=errno.EIO)
        nursery.start_soon(stage_again)
        await until(lambda: len(broker.stage_commits.stages.names()) == 1)
    await broker.stage_commits.commit(APPLICATION, 0, shares)
    assert await values_from(broker) == [b"short"]
    assert broker.stage_commits.stages.staged_bytes == 0
    assert files_in(tmp_path) == []


async def test_a_directory_that_goes_while_a_file_is_made_in_it_is_made_again(tmp_path: Path) -> None:
    class Going(OsFileSystem):
        """Somebody deletes the last file, and so the directory, before the file can be opened."""

        left = 2

        def make_directory(self, path: str) -> None:
            super().make_directory(path)
            if path.endswith(stage_name(APPLICATION, 0)) and self.left:
                self.left -= 1
                Path(path).rmdir()

    async with one_partition(tmp_path, fs=Going()) as broker:
        assert (await broker.stage_commits.commit(APPLICATION, 0, [await stage(broker, "1", "a")])).by_this_call


class CountedName(str):
    """A name that counts how often it is compared with an equal or another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


async def test_a_commit_of_many_tasks_compares_no_task_with_every_other(broker: Broker) -> None:
    share = await stage(broker, "1", "a")
    shares = [share._replace(task=CountedName(number)) for number in range(500)]
    CountedName.compared = 0
    with pytest.raises(InvalidRequestError, match="task '0' has nothing staged"):
        await broker.stage_commits.commit(APPLICATION, 0, shares)
    assert CountedName.compared < 10 * len(shares)


async def test_what_was_certainly_not_decided_can_be_thrown_away(broker: Broker, fs: GateFileSystem) -> None:
    await broker.stage_commits.commit(APPLICATION, 0, [])
    share = await stage(broker, "1", "a", version=1)
    fs.fail("write", COMMITS_LOG)
    with pytest.raises(AppendFailedError, match="Nothing of the append is stored"):
        await broker.stage_commits.commit(APPLICATION, 1, [share])
    await broker.stage_commits.abort(APPLICATION, 1)
    assert broker.stage_commits.stages.staged_bytes == 0
    assert (await broker.stage_commits.commit(APPLICATION, 1, [])).by_this_call


async def test_a_log_of_commits_that_refuses_is_not_asked_every_second(broker: Broker) -> None:
    await decide(broker, [await stage(broker, "1", "a")])
    commits = broker.stage_commits
    owner = commits.log.applications[APPLICATION]
    actor_of(broker, TopicPartition("__stage_commits", 0)).take_offline("a test wants it so")
    owner.retry_at = 0.0
    await commits.finish_overdue()
    assert owner.retry_at > trio.current_time() + RETRY_S / 2


@pytest.mark.parametrize("durability", ["os", "fsync"])
async def test_a_commit_is_not_taken_for_an_earlier_one_of_its_epoch(tmp_path: Path, durability: str) -> None:
    """Damage can take records out of the log of commits, and a backup may hold an older one than of the partitions."""
    async with one_partition(tmp_path, durability=durability) as broker:
        await broker.stage_commits.commit(APPLICATION, 0, [await stage(broker, "1", "a")])
        owner = broker.stage_commits.log.applications[APPLICATION]
        older = owner.value
        await broker.stage_commits.commit(APPLICATION, 1, [await stage(broker, "1", "b", version=1)])
        owner.value = older
        assert (await broker.stage_commits.commit(APPLICATION, 2, [await stage(broker, "1", "c", version=2)])).by_this_call
        assert (await broker.stage_commits.commit(APPLICATION, 3, [await stage(broker, "1", "d", version=3)])).by_this_call
        assert await values_from(broker) == [b"a", b"b", b"c", b"d"]
        assert len(actor_of(broker).log.producers.entries) == 2


async def test_nothing_is_forgotten_while_the_log_of_commits_cannot_be_read(tmp_path: Path, clock: Clock) -> None:
    """What is behind the damage may be newer than what was read: a decision that names files, or a later version."""
    async with one_partition(tmp_path, clock=clock) as broker:
        await broker.stage_commits.commit("other", 0, [])
        share = await stage(broker, "1", "a")
        await decide(broker, [share])
        await broker.stage_commits.commit("third", 0, [])
    log = tmp_path / COMMITS_LOG
    good = log.read_bytes()
    log.write_bytes(good[:-1] + b"?")
    async with one_partition(tmp_path, clock=clock, stage_commit_expiration_ms=1) as broker:
        for left in broker.stage_commits.stages._stages.values():
            left.touched = -float("inf")
        clock.advance(1000)
        commits = broker.stage_commits
        with pytest.raises(LogOfflineError, match="cannot serve the commits of staged records"):
            await broker.stage_commits.commit(APPLICATION, 1, [share])
        with pytest.raises(LogOfflineError, match="cannot serve"):
            broker.stage_commits.last_version(APPLICATION)
        assert (await commits.expire(), await commits.expire_stages()) == (0, 0)
        await commits.finish_overdue()
        assert await values_from(broker) == []
        assert len(files_in(tmp_path)) == 1
    log.write_bytes(good)
    async with one_partition(tmp_path, clock=clock) as broker:
        assert await values_from(broker) == [b"a"]
        assert broker.stage_commits.last_version("other") == 0


async def test_many_commits_share_their_memory(tmp_path: Path, fs: GateFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        commits = broker.stage_commits
        commits._appending.total_tokens = 1
        first = await stage(broker, "1", "a", application="A")
        second = await stage(broker, "1", "b", application="B", partition=OTHER)
        async with held(
            fs.hold("write", f"{PARTITION}/00000000000000000000.log"), broker.stage_commits.commit, "A", 0, [first]
        ) as nursery:
            nursery.start_soon(broker.stage_commits.commit, "B", 0, [second])
            await until(lambda: commits._appending.statistics().tasks_waiting == 1)
        assert (await values_from(broker), await values_from(broker, OTHER)) == ([b"a"], [b"b"])


async def test_a_long_commit_holds_up_no_transaction(tmp_path: Path, fs: GateFileSystem, mock_clock: MockClock) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        producer = await TransactionalProducer.start(broker, timeout_ms=5000)
        await producer.produce(OTHER, "late")
        await decide(broker, [await stage(broker, "1", "a")])
        broker.stage_commits.log.applications[APPLICATION].retry_at = 0.0
        with fs.hold("write", f"{PARTITION}/00000000000000000000.log") as gate:
            mock_clock.jump(2)
            await gate.reached()
            mock_clock.jump(5)
            await until(lambda: broker._manager.topics.actor(OTHER).snapshot().last_stable_offset == 2)
        await until(lambda: broker._manager.topics.actor(PARTITION).snapshot().high_watermark == 1)
        assert await values_from(broker) == [b"a"]


NAME: Final = stage_files.stage_name("query", 7)
PATH: Final = f"/data/{STAGE_DIRECTORY}/{NAME}/{stage_files.file_name('task', TopicPartition('t', 0), None)}"
NOTHING: Final = stage_files.StagedBytes(0, 0)
TWO: Final = logs.batch(START_MS, START_MS)


@pytest.fixture
def device() -> CrashFileSystem:
    made = CrashFileSystem()
    made.make_directory("/data")
    return made


def read(device: CrashFileSystem, start: int, end: int, **options: int) -> stage_files.StagedChunk:
    settings = {"producer_id": 9, "producer_epoch": 3, "next_record": 0, "first_record": 0, "max_bytes": 10**6} | options
    return stage_files.read_stamped(device, PATH, start, end, **settings)


def test_batches_come_one_behind_the_other_with_size_and_crc_of_all(device: CrashFileSystem) -> None:
    first = stage_files.append_staged(device, PATH, NOTHING, [TWO])
    second = stage_files.append_staged(device, PATH, first, [TWO, TWO])
    assert second == stage_files.measure_staged(device, PATH) == (3 * len(TWO), crc32c(TWO * 3))
    assert stage_files.append_staged(device, PATH, None, [TWO]) == (4 * len(TWO), crc32c(TWO * 4))
    assert list(stage_files.find_staged(device, "/data")) == [(NAME, PATH, 4 * len(TWO))]
    assert stage_files.check_staged(device, PATH, stage_files.measure_staged(device, PATH), "it") == (8, len(TWO))


def test_a_write_that_fails_leaves_the_file_as_it_was(device: CrashFileSystem) -> None:
    staged = stage_files.append_staged(device, PATH, NOTHING, [TWO])
    device.fail_next("write", errno.ENOSPC, after_bytes=10)
    with pytest.raises(OSError, match="No space"):
        stage_files.append_staged(device, PATH, staged, [TWO])
    assert stage_files.measure_staged(device, PATH) == staged
    stage_files.append_staged(device, PATH, staged, [TWO] * 2)
    assert stage_files.append_staged(device, PATH, NOTHING, [TWO]) == stage_files.measure_staged(device, PATH), (
        "what lies where nothing should is written over"
    )


def test_names_tell_versions_and_tasks_apart_and_hide_what_they_are_made_of() -> None:
    assert stage_files.stage_name("query", 1) != stage_files.stage_name("query", 11) != stage_files.stage_name("query1", 1)
    assert stage_files.version_of(stage_files.stage_name("../..", 11)) == 11
    assert (stage_files.version_of("else"), stage_files.version_of("x-y")) == (None, None)
    ids = (None, random_uuid(), random_uuid())
    places = [(TopicPartition("t", number), topic_id) for number in range(2) for topic_id in ids]
    names = {stage_files.file_name(task, *place) for task in ("a", "a/b") for place in places}
    assert len(names) == 12
    assert not any("/" in name for name in names)
    assert sum(name.startswith(stage_files.task_prefix("a")) for name in names) == 6


def test_another_size_or_crc_is_refused_and_a_batch_that_is_cut_off_whatever_its_crc(device: CrashFileSystem) -> None:
    with pytest.raises(InvalidRequestError, match="it is not staged"):
        stage_files.check_staged(device, PATH, NOTHING, "it")
    stage_files.append_staged(device, PATH, NOTHING, [TWO])
    with pytest.raises(InvalidRequestError, match=r"it has .* bytes staged, the commit names 5"):
        stage_files.check_staged(device, PATH, stage_files.StagedBytes(5, 0), "it")
    with pytest.raises(CorruptRecordError, match="names 0x00000005"):
        stage_files.check_staged(device, PATH, stage_files.StagedBytes(len(TWO), 5), "it")
    staged = stage_files.append_staged(device, PATH, NOTHING, [TWO, TWO[:-1]])
    with pytest.raises(CorruptRecordError, match=f"cut off at {len(TWO)} of {2 * len(TWO) - 1} bytes"):
        stage_files.check_staged(device, PATH, staged, "it")


def test_batches_are_read_with_a_producer_and_the_sequences_of_their_records(device: CrashFileSystem) -> None:
    """Which start again behind the largest."""
    size, _ = stage_files.append_staged(device, PATH, NOTHING, [TWO] * 5)
    chunk = read(device, 0, size, next_record=10, max_bytes=2 * len(TWO))
    assert (chunk.position, chunk.next_record) == (2 * len(TWO), 14)
    rest = read(device, chunk.position, size, next_record=chunk.next_record, first_record=16)
    assert (rest.position, rest.next_record) == (size, 20)
    headers = [header for header, _ in (*chunk.batches, *rest.batches)]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(9, 3)}
    assert [header.base_sequence for header in headers] == [10, 12, 16, 18]
    for header, data in chunk.batches:
        check_batch(memoryview(data), header)
    late = read(device, 0, 2 * len(TWO), next_record=2**31 - 2, first_record=0)
    assert [header.base_sequence for header, _ in late.batches] == [2**31 - 2, 0]


def test_a_batch_whose_bytes_changed_is_never_given_a_new_crc(device: CrashFileSystem) -> None:
    size, _ = stage_files.append_staged(device, PATH, NOTHING, [TWO[:-1] + b"?"])
    with pytest.raises(CorruptRecordError, match="carries CRC"):
        read(device, 0, size)
    with pytest.raises(CorruptRecordError, match="no whole batch at 0"):
        read(device, 0, size - 1)


def test_wanted_batches_are_copied_as_they_are_from_several_files(device: CrashFileSystem) -> None:
    other, target = f"{PATH}2", f"{PATH}3"
    size, _ = stage_files.append_staged(device, PATH, NOTHING, [TWO] * 150)
    more, _ = stage_files.append_staged(device, other, NOTHING, [logs.batch(START_MS)] * 3)
    sources = [(PATH, size), (other, more - len(logs.batch(START_MS)))]
    staged, count = stage_files.copy_staged(device, sources, target, lambda number: number != 4)
    assert count == 149 * 2 + 2
    assert staged == stage_files.measure_staged(device, target)
    assert staged.size_bytes == 149 * len(TWO) + 2 * len(logs.batch(START_MS))
    assert stage_files.check_staged(device, target, staged, "it").records_count == count
    assert stage_files.copy_staged(device, sources, f"{PATH}4", lambda number: False) == (NOTHING, 0)
    with pytest.raises(CorruptRecordError, match="no whole batches up to"):
        stage_files.copy_staged(device, [(PATH, size - 1)], f"{PATH}5", lambda number: True)


def test_what_was_synced_is_on_the_device_and_after_a_failed_sync_once_it_is_named_as_doubtful(device: CrashFileSystem) -> None:
    staged = stage_files.append_staged(device, PATH, NOTHING, [TWO])
    device.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        stage_files.sync_staged(device, "/data", NAME, [PATH])
    stage_files.sync_staged(device, "/data", NAME, [PATH])
    assert device.durable_content(PATH) == b""
    stage_files.sync_staged(device, "/data", NAME, [PATH], {PATH: staged})
    assert device.durable_content(PATH) == TWO
    with pytest.raises(CorruptRecordError, match="no longer has the staged bytes"):
        stage_files.sync_staged(device, "/data", NAME, [PATH], {PATH: stage_files.StagedBytes(len(TWO), 5)})
    stage_files.append_staged(device, PATH, staged, [TWO])
    stage_files.sync_staged(device, "/data", NAME, [PATH])
    assert device.durable_content(PATH) == TWO * 2


def test_an_empty_directory_goes_with_its_last_file(device: CrashFileSystem) -> None:
    other = f"{PATH}2"
    for path in (PATH, other):
        stage_files.append_staged(device, path, NOTHING, [TWO])
    stage_files.unlink_staged(device, [PATH, f"{PATH}3"])
    assert list(stage_files.find_staged(device, "/data")) == [(NAME, other, len(TWO))]
    stage_files.unlink_staged(device, [other])
    assert device.list_directory(f"/data/{STAGE_DIRECTORY}") == []
    assert list(stage_files.find_staged(device, "/elsewhere")) == []
