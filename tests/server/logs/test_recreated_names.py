"""What is kept by a topic's name (committed offsets, staged records, checkpoints, gaps that were told) belongs to its id."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import InvalidRequestError, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.cleaner_process import open_child_process
from triolog.server.logs.compaction import Scrub
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.log.gaps import NO_FILE, OffsetGap
from triolog.server.storage.lookups.fetch import fetch_batches

from tests.server.logs.test_recreated_topics import CHECKPOINTS, fill_and_trim
from tests.server.logs.test_scrub import SMALL, fill
from tests.server.stages.test_stage_commits import APPLICATION, stage
from tests.support.brokers import LARGE, PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem, held
from tests.support.transactions import committed_offset

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
OFFSETS_LOG = f"{OFFSETS_TOPIC}-0/00000000000000000000.log"


async def commit(broker: Broker, group: str, offset: int) -> None:
    assert await broker.offsets.commit(group, [(PARTITION, offset, None)]) == [None]


async def recreate(broker: Broker) -> None:
    await broker.topics.delete(TOPIC)
    await broker.topics.create(TOPIC)


async def test_committed_offsets_that_could_not_be_taken_back_are_not_inherited(tmp_path: Path, fs: GateFileSystem) -> None:
    """As after a kill or a power cut between the deletion and the tombstones."""
    async with one_partition(tmp_path, fs=fs) as broker:
        await commit(broker, "group", 5)
        fs.fail("write", OFFSETS_LOG)
        await recreate(broker)
        assert await committed_offset(broker, "group", PARTITION) == -1
        assert broker._manager.holds.committed is not None
        assert broker._manager.holds.committed("group", PARTITION) is None
    async with one_partition(tmp_path) as broker:
        assert await committed_offset(broker, "group", PARTITION) == -1
        assert await broker.offsets.fetch("group", None) == []
        await commit(broker, "other", 2)
        await until(lambda: broker.reader.snapshot(OFFSETS).log_end_offset == 3)  # what is left is taken back later
        assert await committed_offset(broker, "other", PARTITION) == 2
    async with one_partition(tmp_path) as broker:
        assert await committed_offset(broker, "other", PARTITION) == 2


async def test_a_deletion_takes_back_no_offset_of_the_topic_that_follows(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await commit(broker, "group", 5)
        async with held(fs.hold("write", OFFSETS_LOG), commit, broker, "another", 1) as nursery:
            nursery.start_soon(broker.topics.delete, TOPIC)
            await until(lambda: TOPIC not in broker.topics.names() and not broker._manager.changes._going)
            await broker.topics.create(TOPIC)
            nursery.start_soon(commit, broker, "group", 2)
            await until(lambda: actor_of(broker, OFFSETS).statistics().waiting_commands == 2)
        assert await committed_offset(broker, "group", PARTITION) == 2
        assert await committed_offset(broker, "another", PARTITION) == -1


async def test_a_read_that_was_under_way_never_reads_the_next_topic(tmp_path: Path) -> None:
    """Its files are opened by name, perhaps when the name is that of others."""
    async with one_partition(tmp_path) as broker:
        await broker.writer.append(PARTITION, value("old"))
        snapshot = broker.reader.snapshot(PARTITION)
        await recreate(broker)
        await broker.writer.append(PARTITION, value("new"))
        fetched = drive(OsFileSystem(), fetch_batches(snapshot, 0, LARGE, min_one_batch=True))
        assert b"old" in bytes(fetched.records)
        assert await values_from(broker) == [b"new"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_records_that_were_staged_for_a_deleted_topic_are_not_committed_to_another(
    tmp_path: Path, restarts: bool
) -> None:
    async with one_partition(tmp_path) as broker:
        share = await stage(broker, "1", "old")
        if not restarts:
            await recreate(broker)
            with pytest.raises(InvalidRequestError, match="has nothing staged"):
                await broker.stage_commits.commit(APPLICATION, 0, [share])
    async with one_partition(tmp_path) as broker:
        if restarts:
            await recreate(broker)
        with pytest.raises(InvalidRequestError, match="has nothing staged"):
            await broker.stage_commits.commit(APPLICATION, 0, [share])
        again = await stage(broker, "1", "new")
        assert (await broker.stage_commits.commit(APPLICATION, 0, [again])).by_this_call
        assert await values_from(broker) == [b"new"]


async def test_a_topic_that_is_recreated_while_a_commit_is_checked_refuses_it(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        share = await stage(broker, "1", "old")
        refused: list[RequestError] = []

        async def commit_staged() -> None:
            try:
                await broker.stage_commits.commit(APPLICATION, 0, [share])
            except RequestError as exc:
                refused.append(exc)

        async with held(fs.hold("sync", broker.stage_commits.stages.file_name("1", PARTITION)), commit_staged):
            await recreate(broker)
        assert "has nothing staged" in refused[0].message
        assert (await broker.stage_commits.commit(APPLICATION, 1, [await stage(broker, "1", "new", version=1)])).by_this_call
        assert await values_from(broker) == [b"new"]


async def test_a_deletion_removes_the_topic_from_every_checkpoint(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await fill_and_trim(broker, tmp_path)
        await broker.topics.create(f"{TOPIC}s", 1)
        await broker._manager.log_directories.write_checkpoints()
        await broker.topics.delete(TOPIC)
        assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " in (tmp_path / name).read_text()] == []
        assert f"{TOPIC}s 0 0" in (tmp_path / CHECKPOINTS[0]).read_text()


async def test_a_gap_and_damage_of_the_next_topic_are_told_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gap = OffsetGap(3, 6, NO_FILE)
    async with running_broker(tmp_path, topic=SMALL) as broker:
        scrub, passes = Scrub(broker._manager, open_child_process), broker.gaps.passes
        with trio.fail_after(60), caplog.at_level(logging.ERROR):
            for count in (1, 2):
                await fill(broker)
                path = Path(actor_of(broker).log.segments.first.log.path)
                data = bytearray(path.read_bytes())
                data[200] ^= 1
                path.write_bytes(data)
                for _ in range(2):
                    await scrub.run_pass()
                    passes.passed("client", PARTITION, [gap])
                assert scrub.statistics().damages == count
                assert passes.counts().passed == {TOPIC: count}
                await broker.topics.delete(TOPIC)
        assert len([record for record in caplog.records if "are damaged" in record.getMessage()]) == 2
