"""The reserve of the whole disk: who gives up what, who is refused, and that it is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode, OffsetOutOfRangeError, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import AppendResult, TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.disk_guard import FLOOR, MOST_FRUITLESS
from triolog.server.partitions.backpressure import FILE_BLOCK_BYTES
from triolog.server.storage.log.derived_files import NOTHING_DROPPED, Dropped

from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock, batch
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
async def guarded(directory: Path, device: ShrinkingDevice, segment_bytes: int = 5 * SIZE) -> AsyncIterator[Broker]:
    """A filled broker with a reserve."""
    topic = {"segment.bytes": str(segment_bytes)}
    async with running_broker(directory, fs=device, topic=topic, disk_reserve_bytes=RESERVE) as broker:
        await fill(broker)
        yield broker


@pytest.fixture
def device() -> ShrinkingDevice:
    return ShrinkingDevice(RESERVE)


def starts(broker: Broker) -> list[int]:
    return [actor_of(broker, partition).log.log_start_offset for partition in (LOGS, AUDIT, ORDERS)]


async def test_old_segments_free_the_reserve(tmp_path: Path, device: ShrinkingDevice, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path, device) as broker:
        guard = broker._manager.guard
        await guard.check()
        assert starts(broker) == [0, 0, 0]
        device.free = RESERVE - 6 * SIZE
        await guard.check()
        assert starts(broker) == [10, 0, 0], "two segments of five records make up for six"
        assert device.free == RESERVE + 4 * SIZE, "unlinked at once, whatever file.delete.delay.ms says"
        assert "2 oldest segments" in caplog.text
        with pytest.raises(OffsetOutOfRangeError):
            await values_from(broker, LOGS)
        device.free = RESERVE - 15 * SIZE
        await guard.check()
        assert starts(broker) == [20, 5, 0]
        (described,) = broker.directories.describe()
        assert (described.free_bytes, described.is_refusing, described.given_up_segments) == (device.free, False, 5)
        assert (described.reserve_bytes, described.given_up_bytes) == (RESERVE, 25 * SIZE)
        await broker.writer.append(ORDERS, value("x"))


@pytest.mark.parametrize("is_retention", [False, True])
async def test_a_check_during_a_deletion_awaits_its_space(tmp_path: Path, device: ShrinkingDevice, is_retention: bool) -> None:
    """By another check, or by retention, which takes the segments out that the guard has chosen, between its look and its
    deed: no append is refused because retention was quicker."""
    async with guarded(tmp_path, device) as broker:
        guard = broker._manager.guard
        await guard.check()
        device.free = RESERVE - (4 if is_retention else 6) * SIZE
        if is_retention:
            await broker.topics.alter_configs("logs", {"retention.bytes": str(20 * SIZE)})
        gate = (
            device.hold("rename", "log-start-offset-checkpoint.tmp") if is_retention else device.hold("unlink", ".log.deleted")
        )
        async with held(gate, broker.logs.apply_retention if is_retention else guard.check) as nursery:
            nursery.start_soon(guard.check)
            for _ in range(20):  # thread hops, in which a second look would see how much is missing
                await trio.to_thread.run_sync(int)
        (described,) = broker.directories.describe()
        assert (described.is_refusing, device.free) == (False, RESERVE + (1 if is_retention else 4) * SIZE)
        assert starts(broker) == [5 if is_retention else 10, 0, 0]


async def test_what_retention_has_taken_out_goes_before_anything_is_given_up(tmp_path: Path, device: ShrinkingDevice) -> None:
    """A minute of `file.delete.delay.ms` cost records that nobody else had to lose."""
    async with guarded(tmp_path, device) as broker:
        await broker.logs.delete_records(AUDIT, 10)
        assert await broker.logs.apply_retention() == 2
        device.free = RESERVE - 6 * SIZE
        await broker._manager.guard.check()
        assert device.free == RESERVE + 4 * SIZE
        assert starts(broker) == [0, 10, 0]
        (described,) = broker.directories.describe()
        assert (described.is_refusing, described.given_up_segments) == (False, 0)


async def test_appends_without_space_fail(tmp_path: Path, device: ShrinkingDevice, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, fs=device, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders")
        await broker._manager.changes.create("__consumer_offsets", 1, {}, internal=True)
        await broker.writer.append(ORDERS, value("before"))
        guard = broker._manager.guard
        device.free = RESERVE - 1
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
        device.free = RESERVE
        await guard.check()
        assert (await broker.writer.append(ORDERS, value("after"))).base_offset == 1
        assert not broker.directories.describe()[0].is_refusing
    said = [record.levelname for record in caplog.records if "disk_reserve_bytes" in record.getMessage()]
    assert said == ["ERROR", "WARNING"], "one line for each change"


async def test_the_active_segment_stays_and_appends_are_refused(tmp_path: Path, device: ShrinkingDevice) -> None:
    async with guarded(tmp_path, device) as broker:
        device.free = 0
        for _ in range(2):
            await broker._manager.guard.check()
        assert starts(broker) == [20, 20, 0]
        for partition in (LOGS, ORDERS):
            with pytest.raises(RequestError, match="bytes left"):
                await broker.writer.append(partition, value("x"))


async def test_segments_that_free_nothing_are_not_given_up_for_ever(tmp_path: Path, device: ShrinkingDevice) -> None:
    """Hard links of a backup keep the space."""
    device.gives_back = False
    async with guarded(tmp_path, device, SIZE) as broker:
        device.free = RESERVE - 1
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
    async with running_broker(tmp_path, topic=settings, log_max_bytes=25 * SIZE) as broker:
        assert starts(broker) == [20, 20, 0]
        await broker._manager.guard.check()
        for partition in (LOGS, ORDERS):
            with pytest.raises(RequestError, match=f"all logs together have {35 * SIZE} bytes, at log_max_bytes={25 * SIZE}"):
                await broker.writer.append(partition, value("x"))
        assert (await broker.statistics()).log_bound.is_refusing
        await broker.logs.delete_records(ORDERS, 15)
        await broker.topics.delete("logs")
        await broker._manager.retention.run_pass()
        await broker._manager.guard.check()
        assert not (await broker.statistics()).log_bound.is_refusing
    said = [record.levelname for record in caplog.records if "all logs together: " in record.getMessage()]
    assert said == ["ERROR", "WARNING"]


async def test_a_transaction_ends_though_there_is_no_room_for_appends(tmp_path: Path, device: ShrinkingDevice) -> None:
    async with running_broker(tmp_path, fs=device, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders")
        producer = await TransactionalProducer.start(broker, "bookings")
        await producer.produce(ORDERS, "x")
        device.free = 0
        await broker._manager.guard.check()
        with pytest.raises(RequestError, match="bytes left"):
            await producer.produce(ORDERS, "y")
        await producer.commit()
        assert actor_of(broker, ORDERS).log.last_stable_offset == 2


async def test_an_append_on_its_way_when_the_space_ends_is_refused(tmp_path: Path, device: ShrinkingDevice) -> None:
    """It has passed the door before anybody looked."""
    async with running_broker(tmp_path, fs=device, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders")
        prepared = await broker.writer.check(ORDERS, value("x"))
        device.free = RESERVE // FLOOR + FILE_BLOCK_BYTES
        await broker._manager.guard.check()
        answers: list[object] = []
        await actor_of(broker, ORDERS).append(prepared, -1, answers.append)
        await until(lambda: len(answers) == 1)
        (refused,) = answers
        assert isinstance(refused, RequestError)
        assert refused.code is ErrorCode.POLICY_VIOLATION
        assert "no space for" in refused.message
        device.free = RESERVE
        await actor_of(broker, ORDERS).append(prepared, -1, answers.append)
        await until(lambda: len(answers) == 2)
        assert isinstance(answers[1], AppendResult), "it asks for a look"


async def test_segments_that_roll_quickly_do_not_outrun_the_reserve(tmp_path: Path, fs: GateFileSystem) -> None:
    """The small files beside their logs take more blocks than the logs do. With a grant that no check renews."""
    keys = {"segment.bytes": "1024", "index.interval.bytes": "0"}
    async with running_broker(tmp_path, fs=fs, disk_reserve_bytes=RESERVE) as broker:
        await broker.topics.create("orders", 1, keys)
        await broker._manager.guard.check()
        room, before = broker._manager.disk.rooms.of(str(tmp_path)), taken_bytes(tmp_path)

        async def fill() -> None:
            for number in range(1000):
                record = (START_MS + number, b"key", bytes(600), ())
                records = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=number)
                await broker.writer.append(ORDERS, records)

        async with trio.open_nursery() as nursery:
            with fs.hold("free_bytes"):
                room.grant(RESERVE, ask_below=-inf, is_exhausted=False)
                nursery.start_soon(fill)
                await until(lambda: room.wanted_bytes > 0)
                assert taken_bytes(tmp_path) - before <= RESERVE
                nursery.cancel_scope.cancel()
        assert len(actor_of(broker, ORDERS).log.segments) > 20


def taken_bytes(folder: Path) -> int:
    """Of the device: whole blocks, directories included."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


DAY_MS: Final = 86_400_000
HELD: Final = {
    "retention.hold.groups": "uplink",
    "retention.ms": "1",
    "segment.bytes": str(5 * SIZE),
    "file.delete.delay.ms": "0",
}


@asynccontextmanager
async def held_topic(
    directory: Path, clock: Clock, records: int = 20, *, fs: GateFileSystem | None = None, reserve: int = 0, **topic: str
) -> AsyncIterator[Broker]:
    """Segments of five records that are a day old, which retention is to take. The clock stands still while the broker runs:
    after a jump it would suspend retention by time."""
    clock.advance(DAY_MS)
    keys = HELD | {key.replace("_", "."): text for key, text in topic.items()}
    async with running_broker(directory, clock=clock, fs=fs, disk_reserve_bytes=reserve) as broker:
        if TOPIC not in broker.topics.names():
            await broker.topics.create(TOPIC, 1, keys)
            for number in range(records):
                await broker.writer.append(PARTITION, value(f"{number:010d}"))
        yield broker


async def commit(broker: Broker, offset: int, group: str = "uplink", partition: TopicPartition = PARTITION) -> None:
    assert await broker.offsets.commit(group, [(partition, offset, None)]) == [None]


async def retain(broker: Broker) -> int:
    await broker._manager.retention.run_pass()
    return actor_of(broker).log.log_start_offset


async def test_what_a_group_has_not_committed_is_held_and_without_a_commit_all_of_it(tmp_path: Path, clock: Clock) -> None:
    async with held_topic(tmp_path, clock) as broker:
        assert await retain(broker) == 0
        await commit(broker, 20, group="display")
        assert await retain(broker) == 0, "another group's commits do not count"
        await commit(broker, 12)
        assert await retain(broker) == 10
        assert len(await values_from(broker, offset=10)) == 10
        await commit(broker, 20)
        holds = broker._manager.holds
        holds.committed, known = None, holds.committed
        assert await retain(broker) == 10, "nothing goes before the offsets are known"
        holds.committed = known
        assert await retain(broker) == 20
        assert actor_of(broker).log.derived.dropped == NOTHING_DROPPED


async def test_the_group_that_is_furthest_behind_counts(tmp_path: Path, clock: Clock) -> None:
    async with held_topic(tmp_path, clock, retention_hold_groups="uplink,display") as broker:
        await commit(broker, 20)
        assert await retain(broker) == 0
        await commit(broker, 5, group="display")
        assert await retain(broker) == 5
        await broker.groups.delete("display")
        assert await retain(broker) == 5, "a group that is deleted has committed nothing"
        await broker.topics.alter_configs(TOPIC, {"retention.hold.groups": "uplink"}, [])
        assert await retain(broker) == 20


async def test_a_hold_outlives_a_restart_and_the_retention_of_offsets(tmp_path: Path, clock: Clock) -> None:
    async with held_topic(tmp_path, clock) as broker:
        await commit(broker, 12)
        await commit(broker, 1, group="display")
    clock.advance(30 * DAY_MS)
    async with held_topic(tmp_path, clock) as broker:
        assert await broker.groups.expire() == 1, "that of the group which nobody waits for"
        assert await retain(broker) == 10
        await broker.topics.alter_configs(TOPIC, {}, ["retention.hold.groups"])
        assert await broker.groups.expire() == 1
        assert await retain(broker) == 20


async def test_past_its_bounds_the_oldest_are_dropped(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    keys = {"disk_full_policy": "drop-oldest", "retention_hold_max_bytes": str(10 * SIZE)}
    async with held_topic(tmp_path, clock, **keys) as broker:
        await commit(broker, 2)
        assert await retain(broker) == 10
        assert actor_of(broker).log.derived.dropped == Dropped(8, 8 * SIZE, 2, 10)
    assert f"{PARTITION}: dropped 8 records ({8 * SIZE} bytes) at offsets 2 to 9" in caplog.text
    async with held_topic(tmp_path, clock) as broker:
        assert actor_of(broker).log.derived.dropped == Dropped(8, 8 * SIZE, 2, 10)


async def test_appends_past_its_bounds_await_a_commit(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with held_topic(tmp_path, clock, retention_hold_max_bytes=str(15 * SIZE)) as broker:
        guard = broker._manager.guard
        await commit(broker, 3)
        for _ in range(2):
            await guard.check()
        assert await retain(broker) == 0
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*uplink of retention\.hold\.groups committed offset 3"):
            await broker.writer.append(PARTITION, value("x"))
        await commit(broker, 5)
        await guard.check()
        assert (await broker.writer.append(PARTITION, value("x"))).base_offset == 20
    said = [record.levelname for record in caplog.records if "hold" in record.getMessage()]
    assert said == ["ERROR", "WARNING"], "one line for each change"


async def test_a_full_disk_takes_what_is_held_last_and_tells_it(
    tmp_path: Path, clock: Clock, fs: GateFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"disk_full_policy": "drop-oldest", "retention_ms": "-1"}
    async with held_topic(tmp_path, clock, fs=fs, reserve=RESERVE, **keys) as broker:
        freely = {"retention.hold.groups": "", "retention.ms": "-1", "disk.full.policy": "drop-oldest"}
        await broker.topics.create("plain", 1, HELD | freely)
        plain = TopicPartition("plain", 0)
        for number in range(20):
            await broker.writer.append(plain, value(f"{number:010d}"))
        await commit(broker, 7)
        guard, starts = broker._manager.guard, []
        for segments in (1, 3, 1):
            fs.free = RESERVE - segments * 5 * SIZE
            await guard.check()
            starts.append([actor_of(broker, each).log.log_start_offset for each in (PARTITION, plain)])
        assert starts == [[5, 0], [5, 15], [10, 15]]
        assert actor_of(broker).log.derived.dropped == Dropped(3, 3 * SIZE, 7, 10)
    assert "at offsets 7 to 9" in caplog.text


async def append(broker: Broker, count: int, text: str = "0" * 10) -> None:
    for _ in range(count):
        await broker.writer.append(ORDERS, value(text))


def keeping(size: int) -> dict[str, str]:
    """Configuration of a topic that is limited by size alone."""
    return {"retention.bytes": str(size), "retention.ms": "-1"}


async def test_retention_lets_segments_go_before_log_max_bytes_refuses_an_append(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topic={"segment.bytes": "5000"}, log_max_bytes=50_000) as broker:
        await broker.topics.create("orders", 1, keeping(10_000))
        await append(broker, 100, "0" * 1000)
        log = actor_of(broker, ORDERS).log
        assert log.log_end_offset == 100
        assert log.size_in_bytes <= 50_000
        assert log.log_start_offset > 0
        assert list((tmp_path / "orders-0").glob("*.deleted")) == [], "unlinked at once"
        await broker.topics.alter_configs("orders", {"retention.bytes": "-1"})
        with pytest.raises(RequestError, match="log_max_bytes"):
            await append(broker, 60, "0" * 1000)


async def test_retention_lets_segments_go_before_the_reserve_of_the_disk_refuses_an_append(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with running_broker(tmp_path, fs=fs, topic={"segment.bytes": str(5 * SIZE)}, disk_reserve_bytes=1000) as broker:
        await broker.topics.create("orders", 1, keeping(10 * SIZE))
        await append(broker, 30)
        fs.free = 900
        await broker._manager.guard.check()
        assert actor_of(broker, ORDERS).log.log_start_offset == 20
        assert list((tmp_path / "orders-0").glob("*.deleted")) == []


async def test_nothing_that_is_deleted_is_left_when_the_server_has_stopped(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topic={"segment.bytes": str(5 * SIZE)}) as broker:
        await broker.topics.create("orders", 1, keeping(5 * SIZE))
        await broker.topics.create("gone", 2)
        await append(broker, 30)
        assert await broker.logs.apply_retention() > 0
        await broker.topics.delete("gone")
        assert list((tmp_path / "orders-0").glob("*.deleted")) != []
        assert list(tmp_path.glob("gone-*-delete")) != []
    assert list((tmp_path / "orders-0").glob("*.deleted")) == []
    assert list(tmp_path.glob("gone-*")) == []


async def test_a_log_that_outgrows_its_retention_awaits_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.server.logs.log_retention.OUTGROWN_BYTES", 0)
    async with running_broker(tmp_path, topic={"segment.bytes": str(5 * SIZE)}) as broker:
        await broker.topics.create("orders", 1, keeping(20 * SIZE))
        retention, log = broker._manager.retention, actor_of(broker, ORDERS).log
        await append(broker, 45)
        assert (await retention.run_outgrown(), log.log_start_offset) == (0, 0), "twice retention.bytes and a segment"
        await append(broker, 1)
        assert (await retention.run_outgrown(), log.log_start_offset) == (5, 25)
        await broker.topics.alter_configs("orders", {"retention.bytes": "-1"})
        await append(broker, 100)
        assert await retention.run_outgrown() == 0
