"""Leases of segment files: what a reader of files has, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from trio.testing import MockClock
from triolog.protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnknownTopicOrPartitionError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, LeasedPartition
from triolog.server.logs import segment_leases
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import LEASE_DIRECTORY

from tests.support.brokers import PARTITION, TOPIC, one_partition, until, value, values_from
from tests.support.gate_fs import GateFileSystem, held

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
    with pytest.raises(InvalidRequestError, match="it has ended, or the server was restarted; take a new one"):
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
    assert "its segments cannot be linked into" in error.message
    await fill(broker, 1)
    assert await values_from(broker) == [b"0"]
    lease = await broker.leases.take([TopicPartition(TOPIC, 9), TopicPartition("no", 0)], HOUR_MS)
    assert [type(each) for each in lease.partitions.values()] == [UnknownTopicOrPartitionError] * 2


async def test_leases_have_a_longest_time_and_a_largest_number(tmp_path: Path) -> None:
    async with one_partition(tmp_path, max_lease_ms=5000) as broker:
        with pytest.raises(InvalidRequestError, match="lease_ms is 5001, at most max_lease_ms=5000 is possible"):
            await broker.leases.take([PARTITION], 5001)
        for _ in range(segment_leases.MAX_LEASES):
            lease = await broker.leases.take([], 5000)
        with pytest.raises(RequestError, match="there are 1000 leases of segments, as many as there can be"):
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
