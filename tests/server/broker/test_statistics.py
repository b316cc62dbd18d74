"""What a broker says of itself in numbers, against what was done to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import FetchPartition, statistics
from triolog.server.figures.prometheus import scrape
from triolog.server.listeners.native.described import statistics_map
from triolog.server.partitions.disk import DURATION_BOUNDS_S, Durations

from tests.support.brokers import LARGE, PARTITION, TOPIC, actor_of, one_partition, running_broker


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
