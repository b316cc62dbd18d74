"""Staging and commits when several things happen at once, or the disk and the log of commits refuse."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import MockClock
from triolog.protocol.errors import InvalidRequestError
from triolog.protocol.native import messages
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, StagedShare
from triolog.server.listeners.native import log_calls
from triolog.server.stages.stage_commits import RETRY_S
from triolog.server.stages.stage_files import find_staged, stage_name
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import AppendFailedError, LogOfflineError

from tests.server.stages.test_stage_commits import APPLICATION, OTHER, batch, decide, stage
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, values_from
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import Clock
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
    with pytest.raises(AppendFailedError, match="nothing of the append is stored"):
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
        with pytest.raises(LogOfflineError, match="the commits of staged records cannot be served"):
            await broker.stage_commits.commit(APPLICATION, 1, [share])
        with pytest.raises(LogOfflineError, match="cannot be served"):
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
