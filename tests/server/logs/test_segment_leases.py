"""Leases of segment files: what a reader of files has, and for how long."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from trio.testing import MockClock
from triolog.protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnknownTopicOrPartitionError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server import broker as door
from triolog.server.broker import Broker, LeasedPartition
from triolog.server.logs import gap_passes, segment_leases
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import LEASE_DIRECTORY

from tests.support.brokers import LARGE, PARTITION, TOPIC, actor_of, one_partition, records_from, until, value, values_from
from tests.support.damaged_batches import damage_batch
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS

SMALL: Final = {"segment.bytes": "300", "segment.index.bytes": "120", "index.interval.bytes": "1", "file.delete.delay.ms": "0"}
HOUR_MS: Final = 3_600_000


async def fill(broker: Broker, count: int) -> list[bytes]:
    """That many records, several to a segment; their values."""
    for number in range(count):
        await broker.writer.append(PARTITION, value(str(number)))
    return [str(number).encode() for number in range(count)]


def values_in(leased: LeasedPartition) -> list[bytes | None]:
    """What the first `size_bytes` of the leased files hold."""
    found: list[bytes | None] = []
    for segment in leased.segments:
        data = Path(leased.directory, segment.name).read_bytes()[: segment.size_bytes]
        for header, batch in iter_batches(data):
            found += [record.value for record in iter_records(batch, header)]
    return found


def leased(lease: segment_leases.Lease, partition: TopicPartition = PARTITION) -> LeasedPartition:
    found = lease.partitions[partition]
    assert isinstance(found, LeasedPartition)
    return found


async def test_leased_files_outlive_their_records_and_topic_without_later_appends(tmp_path: Path) -> None:
    async with one_partition(tmp_path, topic=SMALL) as broker:
        expected = await fill(broker, 20)
        taken = await broker.leases.take([PARTITION], HOUR_MS)
        lease = leased(taken)
        assert (lease.log_start_offset, lease.high_watermark, lease.last_stable_offset) == (0, 20, 20)
        assert len(lease.segments) > 3
        await broker.writer.append(PARTITION, value("later"))
        await broker.logs.delete_records(PARTITION, -1)
        await broker._manager.delete_doomed()
        assert await values_from(broker, offset=21) == []
        assert values_in(lease) == expected
        await broker.topics.delete(TOPIC)
        await broker._manager.delete_doomed()
        assert values_in(lease) == expected
        assert {path.suffix for path in Path(lease.directory).iterdir()} == {".log", ".index", ".timeindex"}
        await broker.leases.renew(taken.lease_id, 0)
        assert not Path(lease.directory).exists()
        assert len(broker.leases) == 0


async def test_a_lease_ends_when_its_time_is_over_unless_renewed(broker: Broker, mock_clock: MockClock) -> None:
    await fill(broker, 1)
    first, second = await broker.leases.take([PARTITION], 1), await broker.leases.take([PARTITION], 1)
    renewed = await broker.leases.renew(second.lease_id, HOUR_MS)
    mock_clock.jump(segment_leases.CHECK_S)
    await until(lambda: not Path(leased(first).directory).exists())
    assert len(broker.leases) == 1
    assert leased(renewed) is leased(second)
    assert values_in(leased(second)) == [b"0"]
    with pytest.raises(InvalidRequestError, match="it has ended, or the server was restarted"):
        await broker.leases.renew(first.lease_id, 1)


async def test_leases_do_not_outlive_a_restart_and_tools_do_not_see_them(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await fill(broker, 1)
        await broker.leases.take([PARTITION], HOUR_MS)
    found = read_directory(OsFileSystem(), str(tmp_path))
    assert (found.foreign, found.marked) == ((), ())
    assert (tmp_path / LEASE_DIRECTORY).exists()
    async with one_partition(tmp_path) as broker:
        assert not (tmp_path / LEASE_DIRECTORY).exists()
        assert await values_from(broker) == [b"0"]


async def test_each_partition_that_cannot_be_leased_says_why(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / LEASE_DIRECTORY).write_bytes(b"in the way")
    error = (await broker.leases.take([PARTITION], HOUR_MS)).partitions[PARTITION]
    assert isinstance(error, RequestError)
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "cannot link segments" in error.message
    await fill(broker, 1)
    assert await values_from(broker) == [b"0"]
    lease = await broker.leases.take([TopicPartition(TOPIC, 9), TopicPartition("no", 0)], HOUR_MS)
    assert [type(each) for each in lease.partitions.values()] == [UnknownTopicOrPartitionError] * 2


async def test_leases_have_a_longest_time_and_a_largest_number(tmp_path: Path) -> None:
    async with one_partition(tmp_path, max_lease_ms=5000) as broker:
        with pytest.raises(InvalidRequestError, match="lease_ms is 5001, at most max_lease_ms=5000"):
            await broker.leases.take([PARTITION], 5001)
        for _ in range(segment_leases.MAX_LEASES):
            lease = await broker.leases.take([], 5000)
        with pytest.raises(RequestError, match="1000 leases of segments exist"):
            await broker.leases.take([], 5000)
        await broker.leases.renew(lease.lease_id, 0)
        await broker.leases.take([], 5000)


async def test_a_lease_that_is_renewed_while_others_end_stays(
    tmp_path: Path, broker: Broker, fs: GateFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose caller is gone before it has it leaves nothing."""
    monkeypatch.setattr(segment_leases, "CHECK_S", float("inf"))
    await broker.writer.append(PARTITION, value("a"))
    async with held(fs.hold("link", ".log"), broker.leases.take, [PARTITION], HOUR_MS) as nursery:
        nursery.cancel_scope.cancel()
    assert len(broker.leases) == 0
    assert list((tmp_path / LEASE_DIRECTORY).rglob("*.log")) == []
    first = await broker.leases.take([PARTITION], HOUR_MS)
    second = await broker.leases.take([PARTITION], HOUR_MS)
    first.ends_at = second.ends_at = -float("inf")
    async with held(fs.hold("unlink", ".log", most=1), broker.leases.end_overdue):
        await broker.leases.renew(second.lease_id, HOUR_MS)
    assert len(broker.leases) == 1
    assert [Path(leased(each).directory).exists() for each in (first, second)] == [False, True]


THREE: Final = [(START_MS, None, b"value", ())] * 3
REFUSE: Final = {"gap.policy": "refuse"}


@asynccontextmanager
async def damaged(directory: Path, **topic: str) -> AsyncIterator[door.Broker]:
    """Offsets 0 to 8 in three batches, of which recovery took the middle one."""
    async with one_partition(directory) as broker:
        for _ in range(3):
            await broker.writer.append(PARTITION, THREE)
    assert damage_batch(directory, f"{TOPIC}-0", 1) == (3, 6)
    async with one_partition(directory) as broker:
        await broker.topics.alter_configs(TOPIC, topic)
        yield broker


async def fetched(broker: door.Broker, offset: int, client: str = "consumer", **view: bool | None) -> list[int]:
    """The base offsets of what a client is answered; nothing where it is refused."""
    asked = [door.FetchPartition(PARTITION, offset, LARGE)]
    answers = await broker.reader.fetch(asked, max_bytes=LARGE, view=door.ReaderView(**view))  # type: ignore[arg-type]
    door.note_gaps(broker.gaps.passes, client, "127.0.0.1", answers)
    [answer] = answers
    return [] if answer.fetched is None else [int.from_bytes(answer.fetched.records[:8], "big")]


async def commit(broker: door.Broker, group: str, offset: int) -> None:
    assert await broker.offsets.commit(group, [(PARTITION, offset, None)]) == [None]


async def test_a_client_is_told_and_counted_once_for_a_range(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with damaged(tmp_path) as broker:
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                assert await fetched(broker, 4) == [6]
            assert await fetched(broker, 0, "another") == [0]
            assert await fetched(broker, 7, "behind it") == [6]
        assert broker.gaps.passes.counts() == gap_passes.GapCounts({TOPIC: 2}, {}, {})
        told = [record.getMessage() for record in caplog.records if "skips gap" in record.message]
        assert told == [
            f"{PARTITION}: client {client!r} at 127.0.0.1 skips gap offsets 3 to 5, which was lost to corruption"
            for client in ("consumer", "another")
        ]
        monkeypatch.setattr(gap_passes, "MAX_REMEMBERED", 2)
        for client in ("a", "b", "a", "c", "a", "b"):
            await fetched(broker, 3, client)
        assert broker.gaps.passes.counts().passed == {TOPIC: 2 + 4}, "a, b, c, and b again"
        assert len(broker.gaps.passes._told) == 2


async def test_a_refused_client_is_told_once_how_to_continue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with damaged(tmp_path) as broker:
        assert await fetched(broker, 3, "before") == [6]
        await broker.topics.alter_configs(TOPIC, REFUSE)
        for _ in range(3):
            assert await fetched(broker, 3) == []
        assert await fetched(broker, 3, "by itself", skip_gaps=False) == []
        assert broker.gaps.passes.counts() == gap_passes.GapCounts({TOPIC: 1}, {TOPIC: 1}, {})
        [told] = [record.message for record in caplog.records if "is refused" in record.message]
        assert f"`triolog gaps accept {TOPIC} 0 3`" in told
        in_the_way = tmp_path / f"{TOPIC}-0" / "quarantine-checkpoint.tmp"
        in_the_way.mkdir()
        with pytest.raises(RequestError, match=r"^KAFKA_STORAGE_ERROR.*offset 3 is accepted: .* try again"):
            await broker.gaps.accept(PARTITION, 3)
        assert await fetched(broker, 3) == []
        in_the_way.rmdir()
        assert (await broker.gaps.accept(PARTITION, 3))[:2] == (3, 6)
        assert await fetched(broker, 3) == [6]


async def test_a_group_is_counted_that_commits_across_a_range(tmp_path: Path) -> None:
    async with damaged(tmp_path) as broker:
        for group, offsets in {
            "across": (0, 3, 6, 0, 9),
            "out of it": (4, 9),
            "first behind": (6, 9),
            "backwards": (9, 0),
            "before": (0, 3, 5),
        }.items():
            for offset in offsets:
                await commit(broker, group, offset)
        assert broker.gaps.passes.counts().groups == {("across", TOPIC): 1, ("out of it", TOPIC): 1}
        await commit(broker, "at the stop", 0)
        await commit(broker, "in a transaction", 0)
        for commits in (False, True):
            before = broker.gaps.passes.counts().groups
            producer = await broker.transactions.init_producer("t", 60_000)
            await broker.offsets.commit("in a transaction", [(PARTITION, 9, None)], transaction=("t", *producer))
            assert broker.gaps.passes.counts().groups == before
            await broker.transactions.end("t", *producer, commit=commits)
        assert broker.gaps.passes.counts().groups == before | {("in a transaction", TOPIC): 1}
    async with one_partition(tmp_path) as broker:
        assert broker.gaps.passes.counts().groups == {}, "a start commits nothing"
        await commit(broker, "at the stop", 9)
        assert broker.gaps.passes.counts().groups == {("at the stop", TOPIC): 1}


async def share_take(broker: door.Broker) -> tuple[list[tuple[int, int, int]], list[ErrorCode]]:
    key = door.ShareKey("sharers", broker.topics.id_of(TOPIC), 0)
    broker.shares.config_of = lambda _: door.ShareConfig(offset_reset=door.OffsetReset.EARLIEST)
    if broker.shares.read_summary(*key) is None:
        await broker.shares.initialize(*key)
    fetch = door.ShareFetch(
        group_id="sharers",
        member_id="m",
        partitions=[key],
        min_bytes=1,
        max_bytes=LARGE,
        max_records=100,
        batch_size=100,
        mode=door.AcquireMode.RECORD_LIMIT,
    )
    found, _ = await broker.share_fetches.take(fetch, is_last=True)
    errors = [each.error.code for each in found if each.error is not None]
    return [tuple(acquired) for each in found for acquired in each.acquired], errors


async def test_a_share_group_is_given_what_lies_behind_a_range_and_counted(tmp_path: Path) -> None:
    async with damaged(tmp_path) as broker:
        acquired, errors = await share_take(broker)
        assert ([each[:2] for each in acquired], errors) == ([(0, 8)], []), (
            "what is missing its member says, as behind compaction"
        )
        assert broker.gaps.passes.counts() == gap_passes.GapCounts({TOPIC: 1}, {}, {("sharers", TOPIC): 1})


async def test_a_share_group_stands_under_refuse_until_the_range_is_accepted(tmp_path: Path) -> None:
    async with damaged(tmp_path, **REFUSE) as broker:
        acquired, errors = await share_take(broker)
        assert ([each[:2] for each in acquired], errors) == ([(0, 2)], [])
        assert await share_take(broker) == ([], [ErrorCode.CORRUPT_MESSAGE])
        assert broker.gaps.passes.counts().refused == {TOPIC: 1}
        await broker.gaps.accept(PARTITION, 3)
        acquired, errors = await share_take(broker)
        assert ([each[:2] for each in acquired], errors) == ([(6, 8)], [])


@pytest.mark.parametrize("isolation", Isolation)
async def test_readers_and_lookups_by_time_pass_over_a_gap(tmp_path: Path, isolation: Isolation) -> None:
    async with damaged(tmp_path) as broker:
        found = await records_from(broker, view=door.ReaderView(isolation))
        assert [record.offset for record in found] == [0, 1, 2, 6, 7, 8]
        assert (await broker.reader.offset_for_time(PARTITION, START_MS, isolation)).offset == 0
        await broker.logs.delete_records(PARTITION, 4)
        assert (await broker.reader.offset_for_time(PARTITION, START_MS, isolation)).offset == 6
        assert (await broker.reader.offset_for_time(PARTITION, -2, isolation)).offset == 4
        assert [record.offset for record in await records_from(broker, offset=4, view=door.ReaderView(isolation))] == [6, 7, 8]


async def test_what_is_deleted_is_not_listed_and_what_is_not_there_is_refused(tmp_path: Path) -> None:
    async with damaged(tmp_path) as broker:
        [found] = await broker.gaps.of(TOPIC)
        assert [(each.gap[:2], each.size_bytes is not None) for each in found.gaps] == [((3, 6), True)]
        (tmp_path / f"{TOPIC}-0" / found.gaps[0].gap.file).unlink()
        [found] = await broker.gaps.of(TOPIC)
        assert [each.size_bytes for each in found.gaps] == [None]
        with pytest.raises(RequestError, match=f"{PARTITION}: no gap starts at offset 6"):
            await broker.gaps.accept(PARTITION, 6)
        with pytest.raises(RequestError, match="partitions 0 to 0"):
            await broker.gaps.accept(TopicPartition(TOPIC, 1), 3)
        await broker.logs.delete_records(PARTITION, 6)
        assert await broker.gaps.of(TOPIC) == []
        actor_of(broker).take_offline("a test says so")
        [found] = await broker.gaps.of(TOPIC)
        assert found.error is not None


async def test_damage_and_who_passes_over_it_are_in_the_statistics(tmp_path: Path) -> None:
    async with damaged(tmp_path, **REFUSE) as broker:
        await fetched(broker, 3)
        await fetched(broker, 3, skip_gaps=True)
        await commit(broker, "g", 0)
        await commit(broker, "g", 6)
        told = await broker.statistics()
        [topic] = [each for each in told.topics if each.topic == TOPIC]
        figures = (topic.gaps, topic.gap_records, topic.open_gaps, topic.gap_passes, topic.gap_refusals)
        assert figures == (1, 3, 1, 1, 1)
        assert told.group_gap_passes == {("g", TOPIC): 1}
        await broker.gaps.accept(PARTITION, 3)
        assert (await broker.statistics()).total.open_gaps == 0
