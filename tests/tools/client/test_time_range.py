"""Both consumers read a range of times of a real broker. The naive answer is the filter of everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import InvalidRequestError
from triolog.protocol.types import TimeRange, TopicPartition
from triolog.server.embedded import BlockingBroker

from .doors import Door

START_MS = 1_700_000_000_000
TIMES = [(number * 37) % 50 for number in range(120)]
"""Out of order, every time more than once."""
T0 = TopicPartition("t", 0)


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[BlockingBroker]:
    with BlockingBroker(tmp_path, durability="os") as running:
        running.create_topic("t", 2, {"retention.ms": "-1", "segment.bytes": "1000"})
        for offset, time in enumerate(TIMES):
            running.append("t", [(START_MS + time, None, b"%d" % offset, ())])
        yield running


def offsets_of(start: int, end: int) -> list[int]:
    return [offset for offset, time in enumerate(TIMES) if start <= time < end]


def times(start: int, end: int) -> TimeRange:
    return TimeRange(START_MS + start, START_MS + end)


@pytest.mark.parametrize("options", [{}, {"follow": False}, {"partition_max_bytes": 1}, {"isolation": "read_committed"}])
async def test_a_consumer_reads_exactly_the_range_and_it_is_explained(
    timed: BlockingBroker, door: Door, options: dict[str, Any]
) -> None:
    async with door.client(timed.native) as client, door.consumer(client, **options) as consumer:
        for start, end in ((10, 13), (0, 50), (49, 90), (90, 95), (7, 7)):
            await consumer.assign("t", times=times(start, end))
            found = [(partition, record.offset) async for partition, record in consumer.records()]
            assert found == [(T0, offset) for offset in offsets_of(start, end)]
        await consumer.assign(T0, times=times(10, 13))
        assert [record.offset async for _, record in consumer.records()] == offsets_of(10, 13)
        assert consumer.position(T0) == len(TIMES)
        await consumer.assign(T0, times=TimeRange(start=START_MS + 40))
        assert [record.offset async for _, record in consumer.records()] == offsets_of(40, 50)
        await consumer.assign("t", times=times(3, 2))
        with pytest.raises(InvalidRequestError, match=r"t-[01]: end_timestamp"):
            await consumer.next_batch()
        admin = door.admin(client)
        walk = await admin.explain(T0, times(10, 13), with_segments=True)
        assert walk["answer"]["offset"] <= offsets_of(10, 13)[0]
        assert len(walk["log_segments"]) == walk["segment_count"]
        assert walk["log_segments"][0]["max_timestamp"] >= walk["log_segments"][0]["least_timestamp"] >= START_MS
        walk = await admin.explain(T0, TimeRange(end=START_MS + 1))
        assert walk["asked"]["start_timestamp"] == 0
        assert "log_segments" not in walk
