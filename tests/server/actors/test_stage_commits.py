"""Staging and committing through the broker's door: what is appended, what is refused, what is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from triolog.protocol.records.batch import with_producer
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, StagedShare
from triolog.server.storage.filesystem import OsFileSystem
from triolog.server.storage.stage_files import find_staged, stage_name

from tests.support.brokers import PARTITION, TOPIC, one_partition, value, values_from
from tests.support.logs import START_MS

OTHER: Final = TopicPartition(TOPIC, 1)
APPLICATION: Final = "query"


def batch(*texts: str) -> bytes:
    return build_batch([(START_MS, None, text.encode(), ()) for text in texts])


async def stage(
    broker: Broker,
    task: str,
    *texts: str,
    version: int = 0,
    partition: TopicPartition = PARTITION,
    application: str = APPLICATION,
) -> StagedShare:
    """Stage one batch; answers what a commit names of the task and the partition."""
    write = broker.announce_stage(application, version, task, partition, batch(*texts))
    return StagedShare(task, partition, await broker.stage(write))


async def test_staged_records_are_seen_when_they_are_committed_and_not_before(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await stage(broker, "1", "a", "b")
        share = await stage(broker, "1", "c")
        assert await values_from(broker) == []
        committed = await broker.commit_stage(APPLICATION, 0, [share])
        assert committed.by_this_call
        assert await values_from(broker) == [b"a", b"b", b"c"]
        [place] = committed.partitions
        assert (place.base_offset, place.end_offset) == (0, 3)
        assert broker.last_commit(APPLICATION) == 0


async def test_a_version_is_committed_once_and_asking_again_is_answered_the_same(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        share = await stage(broker, "1", "a")
        first = await broker.commit_stage(APPLICATION, 0, [share])
        again = await broker.commit_stage(APPLICATION, 0, [share])
        other = await stage(broker, "1.1", "a")
        third = await broker.commit_stage(APPLICATION, 0, [other])
        assert (first.by_this_call, again.by_this_call, third.by_this_call) == (True, False, False)
        assert first.partitions == again.partitions == third.partitions
        assert await values_from(broker) == [b"a"]
        assert broker._coordinators.stage_commits.stages.staged_bytes == 0


async def test_the_last_commit_is_remembered_over_a_restart(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        first = await broker.commit_stage(APPLICATION, 7, [await stage(broker, "1", "a", version=7)])
    async with one_partition(tmp_path) as broker:
        assert broker.last_commit(APPLICATION) == 7
        again = await broker.commit_stage(APPLICATION, 7, [])
        assert again == (False, first.partitions)
        assert await values_from(broker) == [b"a"]


async def test_a_decided_commit_is_carried_out_from_where_it_was_cut_off(tmp_path: Path) -> None:
    """Only the rest is appended: what is there is found by the producer id, behind the offset of the decision."""
    async with one_partition(tmp_path) as broker:
        for text in "abc":
            share = await stage(broker, "1", text)
        commits = broker._coordinators.stage_commits
        await commits._topic.ensure()
        async with commits._turn(APPLICATION) as owner:
            commits.stages.held.add(stage_name(APPLICATION, 0))
            await commits._decide(owner, 0, [share])
            assert owner.value is not None
            [file] = [path for _, path, _ in find_staged(OsFileSystem(), str(tmp_path))]
            size, producer_id = len(batch("a")), owner.value.producer_id
            await broker.append(PARTITION, with_producer(Path(file).read_bytes()[:size], producer_id, 0, 0))
        await broker.append(PARTITION, value("x"))
        assert await values_from(broker) == [b"a", b"x"]
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [b"a", b"x", b"b", b"c"]
        assert list(find_staged(OsFileSystem(), str(tmp_path))) == []
        [place] = (await broker.commit_stage(APPLICATION, 0, [share])).partitions
        assert (place.base_offset, place.end_offset) == (0, 4)
