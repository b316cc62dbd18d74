"""The reserve of the whole disk: who gives up what, who is refused, and that it is seen."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode, OffsetOutOfRangeError, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.disk_guard import FLOOR, MOST_FRUITLESS
from triolog.server.partitions.room import FILE_BLOCK_BYTES
from triolog.server.storage.log.append import AppendResult

from tests.support.brokers import actor_of, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, batch
from tests.support.transactions import TransactionalProducer

SIZE: Final = len(batch(value=b"0" * 10))
RESERVE: Final = 1_000_000
pytestmark = pytest.mark.usefixtures("mock_clock")
"""Time stands still: no maintenance beside these tests."""
LOGS, ORDERS, AUDIT = TopicPartition("logs", 0), TopicPartition("orders", 0), TopicPartition("audit", 0)


class ShrinkingDevice(GateFileSystem):
    """A device of RESERVE bytes whose free space grows by what is unlinked."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free: int | None = free
        self.gives_back = True

    def unlink(self, path: str) -> None:
        size = self.file_size(path) or 0
        super().unlink(path)
        if self.gives_back and path.endswith(".log.deleted"):
            assert self.free is not None
            self.free += size


async def fill(broker: Broker) -> None:
    """Five segments of five records: `logs` and `audit` may lose theirs, those of `logs` are older, `orders` may not."""
    await broker.topics.create("logs", 1, {"disk.full.policy": "drop-oldest"})
    await broker.topics.create("audit", 1, {"disk.full.policy": "drop-oldest"})
    await broker.topics.create("orders", 1)
    for partition, timestamp in ((LOGS, START_MS - 2), (AUDIT, START_MS - 1), (ORDERS, START_MS - 1000)):
        for number in range(25):
            await broker.writer.append(partition, value(f"{number:010d}", timestamp))


@asynccontextmanager
async def guarded(directory: Path, fs: ShrinkingDevice, segment_bytes: int = 5 * SIZE) -> AsyncIterator[Broker]:
    """A filled broker with a reserve."""
    topic = {"segment.bytes": str(segment_bytes)}
    async with running_broker(directory, fs=fs, topic=topic, disk_reserve_bytes=RESERVE) as broker:
        await fill(broker)
        yield broker


@pytest.fixture
def fs() -> ShrinkingDevice:
    return ShrinkingDevice(RESERVE)


def starts(broker: Broker) -> list[int]:
    return [actor_of(broker, partition).log.log_start_offset for partition in (LOGS, AUDIT, ORDERS)]


async def test_oldest_segments_free_the_reserve(tmp_path: Path, fs: ShrinkingDevice, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path, fs) as broker:
        guard = broker._manager.guard
        await guard.check()
        assert starts(broker) == [0, 0, 0]
        fs.free = RESERVE - 6 * SIZE
        with caplog.at_level(logging.WARNING):
            await guard.check()
        assert starts(broker) == [10, 0, 0], "two segments of five records make up for six"
        assert fs.free == RESERVE + 4 * SIZE, "unlinked at once, whatever file.delete.delay.ms says"
        assert "2 oldest segments" in caplog.text
        with pytest.raises(OffsetOutOfRangeError):
            await values_from(broker, LOGS)
        fs.free = RESERVE - 15 * SIZE
        await guard.check()
        assert starts(broker) == [20, 5, 0]
        (described,) = broker.directories.describe()
        assert (described.free_bytes, described.is_refusing, described.given_up_segments) == (fs.free, False, 5)
        assert (described.reserve_bytes, described.given_up_bytes) == (RESERVE, 25 * SIZE)
        await broker.writer.append(ORDERS, value("x"))


@pytest.mark.parametrize("is_retention", [False, True])
async def test_a_check_beside_a_deletion_waits_for_its_space(tmp_path: Path, fs: ShrinkingDevice, is_retention: bool) -> None:
    """By another check, or by retention, which takes the segments out that the guard has chosen, between its look and its
    deed: no append is refused because retention was quicker."""
    async with guarded(tmp_path, fs) as broker:
        guard = broker._manager.guard
        await guard.check()
        fs.free = RESERVE - (4 if is_retention else 6) * SIZE
        if is_retention:
            await broker.topics.alter_configs("logs", {"retention.bytes": str(20 * SIZE)})
        gate = fs.hold("rename", "log-start-offset-checkpoint.tmp") if is_retention else fs.hold("unlink", ".log.deleted")
        async with held(gate, broker.logs.apply_retention if is_retention else guard.check) as nursery:
            nursery.start_soon(guard.check)
            for _ in range(20):  # thread hops, in which a second look would see how much is missing
                await trio.to_thread.run_sync(int)
        (described,) = broker.directories.describe()
        assert (described.is_refusing, fs.free) == (False, RESERVE + (1 if is_retention else 4) * SIZE)
        assert starts(broker) == [5 if is_retention else 10, 0, 0]


async def test_what_retention_has_taken_out_goes_before_anything_is_given_up(tmp_path: Path, fs: ShrinkingDevice) -> None:
    """A minute of `file.delete.delay.ms` cost records that nobody else had to lose."""
    async with guarded(tmp_path, fs) as broker:
        await broker.logs.delete_records(AUDIT, 10)
        assert await broker.logs.apply_retention() == 2
        fs.free = RESERVE - 6 * SIZE
        await broker._manager.guard.check()
        assert fs.free == RESERVE + 4 * SIZE
        assert starts(broker) == [0, 10, 0]
        (described,) = broker.directories.describe()
        assert (described.is_refusing, described.given_up_segments) == (False, 0)


async def test_appends_without_room_are_refused(tmp_path: Path, fs: ShrinkingDevice, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, fs=fs, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders")
        await broker._manager.changes.create("__consumer_offsets", 1, {}, internal=True)
        await broker.writer.append(ORDERS, value("before"))
        guard = broker._manager.guard
        fs.free = RESERVE - 1
        with caplog.at_level(logging.WARNING):
            await guard.check()
            await guard.check()
        with pytest.raises(RequestError, match=f"has {RESERVE - 1} bytes left, below disk_reserve_bytes={RESERVE}") as raised:
            await broker.writer.append(ORDERS, value("x"))
        assert raised.value.code is ErrorCode.POLICY_VIOLATION
        assert not raised.value.retriable, "a client says so at once"
        assert await values_from(broker, ORDERS) == [b"before"], "reads go on"
        assert broker._manager.topics.writable(TopicPartition("__consumer_offsets", 0)), "the server's own topics go on"
        await broker.topics.create("later")
        await guard.check()
        with pytest.raises(RequestError, match="bytes left"):
            await broker.writer.append(TopicPartition("later", 0), value("x"))
        assert broker.directories.describe()[0].is_refusing
        fs.free = RESERVE
        await guard.check()
        assert (await broker.writer.append(ORDERS, value("after"))).base_offset == 1
        assert not broker.directories.describe()[0].is_refusing
    said = [record.levelname for record in caplog.records if "disk_reserve_bytes" in record.getMessage()]
    assert said == ["ERROR", "WARNING"], "one line for each change"


async def test_the_active_segment_stays_and_appends_are_refused(tmp_path: Path, fs: ShrinkingDevice) -> None:
    async with guarded(tmp_path, fs) as broker:
        fs.free = 0
        for _ in range(2):
            await broker._manager.guard.check()
        assert starts(broker) == [20, 20, 0]
        for partition in (LOGS, ORDERS):
            with pytest.raises(RequestError, match="bytes left"):
                await broker.writer.append(partition, value("x"))


async def test_segments_that_free_nothing_are_not_given_up_for_ever(tmp_path: Path, fs: ShrinkingDevice) -> None:
    """Hard links of a backup keep the space."""
    fs.gives_back = False
    async with guarded(tmp_path, fs, SIZE) as broker:
        fs.free = RESERVE - 1
        for _ in range(MOST_FRUITLESS + 5):
            await broker._manager.guard.check()
        assert starts(broker) == [MOST_FRUITLESS, 0, 0]
        assert broker.directories.describe()[0].is_refusing


async def test_each_directory_has_its_own_reserve(tmp_path: Path) -> None:
    class TwoDevices(GateFileSystem):
        def free_bytes(self, path: str) -> int:
            return 0 if path.endswith("two") else RESERVE

    async with running_broker(tmp_path / "one", tmp_path / "two", fs=TwoDevices(), disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders", 2)
        await broker._manager.guard.check()
        await broker.writer.append(ORDERS, value("x"))
        with pytest.raises(RequestError, match="bytes left"):
            await broker.writer.append(TopicPartition("orders", 1), value("x"))


@pytest.mark.parametrize(("total", "reserve"), [(1 << 20, 10_485), (1 << 30, 10_737_418), (1 << 40, 64 << 20), (0, 0)])
async def test_the_default_reserve_is_1_percent_up_to_64_mib(tmp_path: Path, total: int, reserve: int) -> None:
    class Device(ShrinkingDevice):
        def total_bytes(self, path: str) -> int:
            return total

    topic = {"segment.bytes": str(5 * SIZE)}
    async with running_broker(tmp_path, fs=Device(0), topic=topic, disk_reserve_bytes=-1) as broker:
        (described,) = broker.directories.describe()
        assert described.reserve_bytes == reserve
        if not reserve:
            await fill(broker)
            await broker._manager.guard.check()
            assert (starts(broker), described.free_bytes) == ([0, 0, 0], None), "without a reserve nothing happens"


async def test_above_log_max_bytes_segments_go_or_appends_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"segment.bytes": str(5 * SIZE)}
    async with running_broker(tmp_path, topic=settings) as broker:
        await fill(broker)
    async with running_broker(tmp_path, topic=settings, log_max_bytes=60 * SIZE) as broker:
        assert starts(broker) == [15, 0, 0], "15 records are too many"
        assert broker._manager.guard.total.given_up_bytes == 15 * SIZE
    with caplog.at_level(logging.WARNING):
        async with running_broker(tmp_path, topic=settings, log_max_bytes=25 * SIZE) as broker:
            assert starts(broker) == [20, 20, 0]
            await broker._manager.guard.check()
            for partition in (LOGS, ORDERS):
                with pytest.raises(
                    RequestError, match=f"all logs together have {35 * SIZE} bytes, at log_max_bytes={25 * SIZE}"
                ):
                    await broker.writer.append(partition, value("x"))
            assert (await broker.statistics()).log_bound.is_refusing
            await broker.logs.delete_records(ORDERS, 15)
            await broker.topics.delete("logs")
            await broker._manager.retention.run_pass()
            await broker._manager.guard.check()
            assert not (await broker.statistics()).log_bound.is_refusing
    said = [record.levelname for record in caplog.records if "all logs together: " in record.getMessage()]
    assert said == ["ERROR", "WARNING"]


async def test_a_transaction_ends_though_there_is_no_room_for_appends(tmp_path: Path, fs: ShrinkingDevice) -> None:
    async with running_broker(tmp_path, fs=fs, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders")
        producer = await TransactionalProducer.start(broker, "bookings")
        await producer.produce(ORDERS, "x")
        fs.free = 0
        await broker._manager.guard.check()
        with pytest.raises(RequestError, match="bytes left"):
            await producer.produce(ORDERS, "y")
        await producer.commit()
        assert actor_of(broker, ORDERS).log.last_stable_offset == 2


async def test_an_append_on_its_way_when_the_space_ends_is_refused(tmp_path: Path, fs: ShrinkingDevice) -> None:
    """It has passed the door before anybody looked."""
    async with running_broker(tmp_path, fs=fs, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders")
        prepared = await broker.writer.check(ORDERS, value("x"))
        fs.free = RESERVE // FLOOR + FILE_BLOCK_BYTES
        await broker._manager.guard.check()
        answers: list[object] = []
        await actor_of(broker, ORDERS).append(prepared, -1, answers.append)
        await until(lambda: len(answers) == 1)
        (refused,) = answers
        assert isinstance(refused, RequestError)
        assert refused.code is ErrorCode.POLICY_VIOLATION
        assert "there is no room for" in refused.message
        fs.free = RESERVE
        await actor_of(broker, ORDERS).append(prepared, -1, answers.append)
        await until(lambda: len(answers) == 2)
        assert isinstance(answers[1], AppendResult), "it asks for a look"
