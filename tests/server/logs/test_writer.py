"""Offers of records: what is checked and enqueued on the spot, and what is left to those who wait. What a broker says of
itself in numbers, against what was done to it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints
from triolog.protocol.errors import CorruptRecordError, InvalidTopicError, RequestError, UnknownTopicOrPartitionError
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.broker import PARTITIONS_PER_TURN, Broker, FetchPartition, PendingProduce, statistics
from triolog.server.figures.prometheus import scrape
from triolog.server.listeners.native.described import statistics_map
from triolog.server.logs.writer import STEPS_PER_APPEND
from triolog.server.loop.turns import STEPS_PER_TURN
from triolog.server.partitions.disk import DURATION_BOUNDS_S, STEPS_PER_PROCEDURE, Durations
from triolog.server.storage.log.prepare import BYTES_PER_STEP, SMALL_BYTES, steps_of

from tests.server.partitions.test_partition import Answered, answered
from tests.support.brokers import (
    LARGE,
    PARTITION,
    TOPIC,
    actor_of,
    one_partition,
    running_broker,
    until,
    values_from,
    with_quick_writes,
)
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS, batch


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[None]]:
    """A task that does nothing but take its turns, and a list with an entry for each of them."""
    turns: list[None] = []

    async def take() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.lowlevel.checkpoint()
        turns.clear()
        yield turns
        nursery.cancel_scope.cancel()


def offer(broker: Broker, records: Any, partition: TopicPartition = PARTITION) -> Any:
    return broker.writer.offer(partition, records, -1, lambda _: None)


async def test_a_small_batch_is_checked_on_the_spot_as_by_those_who_wait(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        actor, records = actor_of(broker), batch(value=b"now")
        assert broker.writer._check_in_turn(actor, records) == await broker.writer.check(PARTITION, records)
        answers: Answered = []
        assert broker.writer.offer(PARTITION, records, -1, answers.append) is None
        assert answers == []
        await answered(answers, 1)
        assert await values_from(broker) == [b"now"]


@pytest.mark.parametrize(
    "records",
    [batch(value=bytes(200_000)), batch(value=bytes(200_000), compression_type=CompressionType.GZIP), batch() * 2],
    ids=["large", "large when it is unpacked", "two batches"],
)
async def test_what_is_not_small_and_plain_has_to_be_waited_for(tmp_path: Path, records: bytes) -> None:
    async with one_partition(tmp_path) as broker:
        await offer(broker, records)()
        await until(lambda: actor_of(broker).log.log_end_offset > 0)


async def test_damage_is_told_by_those_who_wait(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        records = bytearray(batch())
        records[-3] ^= 1
        work = offer(broker, records)
        with pytest.raises(CorruptRecordError, match=f"{TOPIC}-0: "):
            await work()


async def test_where_no_client_may_write_is_told_at_once(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        with pytest.raises(InvalidTopicError):
            offer(broker, batch(), TopicPartition("__consumer_offsets", 0))
        for missing in (TopicPartition("missing", 0), TopicPartition(TOPIC, 1), TopicPartition(TOPIC, -1)):
            with pytest.raises(UnknownTopicOrPartitionError):
                offer(broker, batch(), missing)


@pytest.mark.parametrize("size", [100, 15_000, 120_000])
async def test_many_batches_leave_others_their_turn(tmp_path: Path, size: int) -> None:
    """What would be one too many has to be waited for, and lets others have their turn; then it goes on."""
    records = batch(value=bytes(size))
    steps = steps_of(records) if len(records) > SMALL_BYTES else len(records) // BYTES_PER_STEP
    per_turn = (STEPS_PER_TURN - 1 - STEPS_PER_PROCEDURE) // (STEPS_PER_PROCEDURE + steps)
    async with one_partition(tmp_path) as broker:
        rounds = []
        for _ in range(3):
            checked = 0
            while (work := offer(broker, records)) is None:
                checked += 1
            rounds.append(checked)
            with assert_checkpoints():
                await work()
        assert rounds[0] <= per_turn + 1
        assert set(rounds[1:]) <= {per_turn, per_turn + 1}
        assert per_turn >= 4


@pytest.mark.parametrize("records", [batch(value=b"x"), [(None, None, b"x", ())]], ids=["a batch", "plain records"])
async def test_an_append_to_an_idle_partition_is_answered_without_a_turn_of_the_scheduler(tmp_path: Path, records: Any) -> None:
    async with one_partition(tmp_path, durability="os") as broker, turns_of_others() as turns:
        await with_quick_writes(broker).writer.append(PARTITION, records)  # which opens the file
        broker.disk.turns.begin()
        turns.clear()
        for offset in range(1, 5):
            assert (await broker.writer.append(PARTITION, records)).base_offset == offset
        assert turns == []
        assert await values_from(broker) == [b"x"] * 5


async def test_many_appends_leave_others_their_turn(tmp_path: Path) -> None:
    unindexed = {"index.interval.bytes": "1000000"}  # the files of indexes are opened in a thread
    async with one_partition(tmp_path, durability="os", topic=unindexed) as broker, turns_of_others() as turns:
        await with_quick_writes(broker).writer.append(PARTITION, batch())
        turns.clear()
        count = 4 * STEPS_PER_TURN // STEPS_PER_APPEND
        for _ in range(count):
            await broker.writer.append(PARTITION, batch())
        assert len(turns) >= 4
        assert len(turns) <= count // 8


async def test_records_that_expire_at_once_are_warned_of_there_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(tmp_path, topic={"retention.ms": "1000"}) as broker:
        with caplog.at_level(logging.WARNING):
            for timestamp in (START_MS - 1000, START_MS - 1001, START_MS - 1001):
                assert offer(broker, batch(timestamp)) is None
        warnings = [record.getMessage() for record in caplog.records if "retention.ms" in record.getMessage()]
        assert len(warnings) == 1
        assert str(START_MS - 1001) in warnings[0]


async def test_appends_and_fetches_are_counted_by_topic(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        for _ in range(3):
            await broker.writer.append(PARTITION, [(None, b"k", b"v" * 100, ())])
        await broker.reader.fetch([FetchPartition(PARTITION, 0, LARGE)], max_bytes=LARGE)
        told = await broker.statistics()
        (topic,) = told.topics
        size = actor_of(broker).log.size_in_bytes
        assert (topic.topic, topic.partitions, topic.records, topic.appended_records) == (TOPIC, 1, 3, 3)
        assert (topic.size_bytes, topic.appended_bytes, topic.fetched_bytes) == (size, size, size)
        (partition,) = told.partitions
        assert (partition.high_watermark, partition.log_end_offset, partition.segments) == (3, 3, 1)
        assert told.total.size_bytes == size


async def test_the_loss_window_is_what_is_not_on_the_device(tmp_path: Path) -> None:
    async with one_partition(tmp_path, durability="os") as broker:
        assert (await broker.statistics()).unsynced_records == 0
        await broker.writer.append(PARTITION, [(None, None, b"v", ())] * 5)
        told = await broker.statistics()
        assert told.unsynced_records == told.partitions[0].unsynced_records == 5
        assert told.total.unsynced_ms > 0


async def test_syncs_are_timed(tmp_path: Path) -> None:
    async with one_partition(tmp_path, durability="fsync") as broker:
        before = (await broker.statistics()).disk.syncs.count
        await broker.writer.append(PARTITION, [(None, None, b"v", ())])
        told = await broker.statistics()
        assert told.disk.syncs.count > before
        assert told.disk.syncs.seconds > 0
        assert told.unsynced_records == told.disk.failed_syncs == 0
        assert told.total.unsynced_ms == 0


async def test_a_lag_is_what_a_group_has_not_read_and_still_can(tmp_path: Path) -> None:
    async with one_partition(tmp_path, topic={"segment.bytes": "200"}) as broker:
        for number in range(10):
            await broker.writer.append(PARTITION, [(None, None, b"%d" % number, ())])
        await broker.offsets.commit("g", [(PARTITION, 4, None)])
        await broker.offsets.commit("behind", [(PARTITION, 0, None)])
        await broker.logs.delete_records(PARTITION, 2)
        told = await broker.statistics()
        assert [(each.group, each.topic_partition, each.offset, each.lag) for each in told.lags] == [
            ("behind", PARTITION, 0, 8),
            ("g", PARTITION, 4, 6),
        ]
        assert (told.group_count, told.total_lag, told.offset_count) == (2, 14, 2)


async def test_a_partition_that_is_offline_says_why(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        actor_of(broker).take_offline("a test wants it so")
        told = await broker.statistics()
        assert told.total.offline == 1
        assert "a test wants it so" in (told.partitions[0].error or "")


async def test_what_is_told_one_by_one_is_limited_and_totals_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_TOPICS", 2)
    monkeypatch.setattr(statistics, "MAX_PARTITIONS", 3)
    monkeypatch.setattr(statistics, "MAX_LAGS", 2)
    async with running_broker(tmp_path) as broker:
        for number in range(4):
            name = f"t{number}"
            await broker.topics.create(name, 2)
            await broker.writer.append(TopicPartition(name, 0), [(None, None, b"v", ())] * (number + 1))
            await broker.offsets.commit("g", [(TopicPartition(name, 0), 0, None)])
        told = await broker.statistics()
        assert len(told.partitions) == 3
        assert [topic.topic for topic in told.topics] == ["__consumer_offsets", "t0"]
        assert told.topic_count == 5
        assert told.total.partitions == 9
        assert [each.lag for each in told.lags] == [4, 3]
        assert told.total_lag == 10


async def test_directories_tell_their_space(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (directory,) = (await broker.statistics()).directories
        assert 0 < directory.free_bytes < directory.total_bytes
        assert directory.description.error is None


class Produce(PendingProduce):
    """One that nobody hears of."""

    is_answered = False

    def respond(self) -> None:
        self.is_answered = True

    def discard(self) -> None:
        raise AssertionError

    def note_refusal(self, slot: int, error: RequestError, *, by_log: bool) -> None:
        """What was refused is in `results`."""

    def met_bug(self, error: Exception) -> None:
        raise error


async def test_a_produce_to_many_partitions_leaves_room_at_the_device_for_others(tmp_path: Path) -> None:
    fs, count, offered = GateFileSystem(), 3 * PARTITIONS_PER_TURN, list[int]()
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create("many", count, {"durability": "fsync"})
        produce = Produce(SimpleNamespace(acks=-1), count, [None] * count)

        def offer_one(slot: int, partition: int) -> Any:
            offered.append(slot)
            records = batch(value=b"now") if slot % 50 else b"not a batch"
            return broker.writer.offer(TopicPartition("many", partition), records, -1, partial(produce.put, slot))

        async with trio.open_nursery() as nursery:
            with fs.hold("sync", ".log") as gate:
                nursery.start_soon(produce.offer_all, enumerate(range(count)), offer_one)
                await gate.reached()
                await trio.testing.wait_all_tasks_blocked(0.1)
                assert len(offered) == 2 * PARTITIONS_PER_TURN
                gate.release()
        await until(lambda: produce.is_answered)
        refused = [slot for slot, result in enumerate(produce.results) if isinstance(result, RequestError)]
        assert offered == list(range(count))
        assert refused == list(range(0, count, 50))


def test_durations_are_counted_in_their_class() -> None:
    durations = Durations()
    for seconds in (0.0, DURATION_BOUNDS_S[0], 0.0002, 11.0):
        durations.add(seconds)
    assert durations.counts[0] == 2
    assert durations.counts[1] == 1
    assert durations.counts[-1] == 1
    assert durations.count == 4
    copied = durations.copy()
    durations.add(0.0)
    assert copied.count == 4


async def test_what_groups_lose_and_what_keeps_the_logs_small_is_told(tmp_path: Path) -> None:
    keys = {"segment.bytes": "200", "retention.bytes": "200", "retention.hold.groups": "uplink"}
    keys |= {"retention.hold.max.bytes": "200", "disk.full.policy": "drop-oldest"}
    async with one_partition(tmp_path, topic=keys, log_max_bytes=10**9) as broker:
        for number in range(10):
            await broker.writer.append(PARTITION, [(None, None, b"%d" % number, ())])
        await broker.offsets.commit("uplink", [(PARTITION, 1, None)])
        await broker._manager.retention.run_pass()
        told = await broker.statistics()
        start = actor_of(broker).log.log_start_offset
        (dropped,) = [each.dropped for each in told.partitions if each.topic == TOPIC]
        assert (dropped.records, dropped.first_offset, dropped.end_offset) == (start - 1, 1, start)
        assert told.total.dropped_records == start - 1 > 0
        assert told.total.dropped_bytes == dropped.size_bytes > 0
        assert (told.log_bound.max_bytes, told.log_bound.is_refusing, told.log_bound.given_up_segments) == (10**9, False, 0)
        body = statistics_map(told, 0, ())
        entry = {"topic": TOPIC, "partition": 0, "records": start - 1, "first_offset": 1, "end_offset": start}
        assert body["dropped"] == [entry | {"size_bytes": dropped.size_bytes}]
        samples = (await scrape(broker, {})).decode()
        assert f'triolog_topic_dropped_records_total{{topic="{TOPIC}"}} {start - 1}.0' in samples
        assert f'triolog_dropped_end_offset{{partition="0",topic="{TOPIC}"}} {start}.0' in samples
        assert "triolog_log_max_bytes 1e+09" in samples
