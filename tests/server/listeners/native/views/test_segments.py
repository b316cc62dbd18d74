"""The call `describe_segments` on a real broker: what it says of logs, and that it says it without looking at the disk."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import trio.testing
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import MAX_DESCRIBED_GAPS
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.listeners.native.described import describe_segments
from triolog.server.storage.log.gaps import OffsetGap

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer

SMALL: Final = {"segment.bytes": "2000", "index.interval.bytes": "1", "retention.ms": "-1"}


async def described(broker: Broker, *, from_offset: int = 0, **asked: Any) -> m.DescribeSegmentsPartitionResponse:
    request = m.DescribeSegmentsRequest((m.DescribeSegmentsPartition(*PARTITION, from_offset),), **asked)
    [answer] = (await describe_segments(broker, request)).partitions
    assert answer.error is None
    return answer


async def append(broker: Broker, numbers: range) -> None:
    """A batch of 500 bytes each: four of them fill a segment."""
    for number in numbers:
        await broker.writer.append(PARTITION, [(START_MS + number, b"key", b"v" * 420, ())])


async def test_segments_follow_each_other_and_add_up_to_the_log(fast_path: Path) -> None:
    async with one_partition(fast_path, topic=SMALL, durability="fsync") as broker:
        await append(broker, range(10))
        log = await described(broker)
        assert (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset) == (0, 10, 10, 10)
        assert (log.recovery_point, log.cleaned_up_to, log.left_out, log.waiting) == (10, -1, 0, None)
        assert log.segment_count == len(log.segments) > 2
        assert [first.next_offset for first in log.segments[:-1]] == [each.base_offset for each in log.segments[1:]]
        assert (log.segments[0].base_offset, log.segments[-1].next_offset) == (0, 10)
        assert sum(each.size_bytes for each in log.segments) == log.size_bytes
        assert [each.is_active for each in log.segments] == [False] * (len(log.segments) - 1) + [True]
        for each in log.segments:
            assert (each.least_timestamp, each.max_timestamp) == (START_MS + each.base_offset, START_MS + each.next_offset - 1)
            assert each.offset_index_entries <= each.next_offset - each.base_offset
            assert not each.is_cleaned
        assert log.segments[0].offset_index_entries > 0
        files = {int(path.stem): path.stat().st_size for path in (fast_path / f"{TOPIC}-0").glob("*.log")}
        assert files == {each.base_offset: each.size_bytes for each in log.segments}


async def test_times_of_what_was_there_before_the_start_are_not_known(fast_path: Path) -> None:
    async with one_partition(fast_path, topic=SMALL) as broker:
        await append(broker, range(10))
    async with one_partition(fast_path, topic=SMALL) as broker:
        first, *_, last = (await described(broker)).segments
        assert (first.least_timestamp, first.max_timestamp) == (-1, START_MS + first.next_offset - 1)
        assert last.max_timestamp == START_MS + 9


async def test_an_empty_log_has_one_empty_segment(fast_path: Path) -> None:
    async with one_partition(fast_path) as broker:
        [segment] = (await described(broker)).segments
        assert segment == m.DescribedSegment(0, 0, 0, is_active=True)


async def test_it_comes_in_pages_and_each_begins_where_it_is_asked_for(fast_path: Path) -> None:
    async with one_partition(fast_path, topic=SMALL) as broker:
        await append(broker, range(20))
        whole = await described(broker)
        pages, offset = [], 0
        while True:
            page = await described(broker, from_offset=offset, max_segments=2)
            pages += page.segments
            assert page.left_out == whole.segment_count - len(pages)
            if not page.left_out:
                break
            offset = page.segments[-1].next_offset
        assert tuple(pages) == whole.segments
        middle = whole.segments[1]
        assert (await described(broker, from_offset=middle.next_offset - 1)).segments[0] == middle
        assert (await described(broker, from_offset=10**9)).segments == whole.segments[-1:]
        none = await described(broker, max_segments=0)
        assert (none.segments, none.left_out, none.segment_count) == ((), whole.segment_count, whole.segment_count)


async def test_partitions_share_the_limit_and_fail_alone(fast_path: Path) -> None:
    async with one_partition(fast_path) as broker:
        await broker.topics.create("other", 3)
        actor_of(broker, TopicPartition("other", 1)).take_offline("a test says so")
        asked = [TopicPartition("nowhere", 0), *(TopicPartition("other", number) for number in range(3)), PARTITION]
        request = m.DescribeSegmentsRequest(tuple(m.DescribeSegmentsPartition(*each) for each in asked), max_segments=2)
        answers = (await describe_segments(broker, request)).partitions
        assert [each.topic_partition for each in answers] == asked
        assert [each.error and each.error.code for each in answers] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            None,
            ErrorCode.KAFKA_STORAGE_ERROR,
            None,
            None,
        ]
        assert [(len(each.segments), each.left_out) for each in answers if each.error is None] == [(1, 0), (1, 0), (0, 1)]


async def test_what_compaction_has_been_through_is_told(fast_path: Path) -> None:
    async with one_partition(fast_path, topic={**SMALL, "cleanup.policy": "compact"}) as broker:
        await append(broker, range(10))
        assert (await described(broker)).cleaned_up_to == -1
        assert await broker.logs.compact(PARTITION) == 1
        await append(broker, range(10, 12))
        log = await described(broker)
        assert log.cleaned_up_to == 10
        assert [each.is_cleaned for each in log.segments] == [each.next_offset <= 10 for each in log.segments]
        assert log.segments[-2:][0].is_cleaned > log.segments[-1].is_cleaned


async def test_aborted_transactions_and_open_ones_are_seen(fast_path: Path) -> None:
    async with one_partition(fast_path) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.produce(PARTITION, "taken back")
        await producer.abort()
        await producer.produce(PARTITION, "not decided")
        log = await described(broker)
        assert (log.last_stable_offset, log.high_watermark) == (2, 3)
        assert log.segments[0].transaction_index_entries == 1


async def test_gaps_are_told_from_the_offset_on_and_no_more_than_a_thousand(fast_path: Path) -> None:
    async with one_partition(fast_path) as broker:
        log = actor_of(broker).log
        log.gaps = tuple(OffsetGap(10 * slot, 10 * slot + 5, "-", 7, slot) for slot in range(MAX_DESCRIBED_GAPS + 2))
        log.changed()
        told = await described(broker)
        assert (len(told.gaps), told.gaps_left_out) == (MAX_DESCRIBED_GAPS, 2)
        assert told.gaps[1] == m.Gap(10, 15, None, -1, 7, 1)
        told = await described(broker, from_offset=15)
        assert (told.gaps[0].start_offset, told.gaps_left_out) == (20, 0)
        assert all(first.end_offset < second.start_offset for first, second in pairwise(told.gaps))


@pytest.mark.parametrize("segments", [4, 40])
async def test_nothing_is_read(fast_path: Path, segments: int) -> None:
    async with one_partition(fast_path, topic=SMALL) as broker:
        await append(broker, range(4 * segments))
        before = broker.disk.statistics()
        with trio.testing.assert_no_checkpoints():
            log = await described(broker)
        assert len(log.segments) >= segments
        after = broker.disk.statistics()
        for counted in ("hops", "cached_reads", "cold_reads", "descriptors"):
            assert getattr(after, counted) == getattr(before, counted)
