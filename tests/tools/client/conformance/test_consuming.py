from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from triolog.protocol.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.procedures.groups import CommittedOffset
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime

from tests.tools.client.test_consumer import batch, transactional

from ..doors import Served, fill

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


async def offsets_of(consumer: Any) -> list[int]:
    return [record.offset async for _, record in consumer.records()]


def offsets_in(found: Any) -> list[int]:
    return [record.offset for record in found.records()]


async def test_everything_up_to_the_end_of_now(served: Served) -> None:
    fill(served.server, 10)
    fill(served.server, 5, partition=1)
    async with served.consumer(follow=False) as consumer:
        await consumer.assign("t")
        assert consumer.assignment == [T0, T1]
        seen: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        async for found in consumer:
            seen[found.partition] += offsets_in(found)
        assert seen == {T0: list(range(10)), T1: list(range(5))}
        assert (consumer.position(T0), consumer.high_watermark(T0)) == (10, 10)
        assert await consumer.next_batch() is None


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (AtOffset(4), None, range(4, 10)),
        (AtOffset(4), AtOffset(7), range(4, 7)),
        (AtTime(40), AtTime(70), range(4, 7)),
        (AtTime(41), AtTime(71), range(5, 8)),
        (AtTime(41), AtTime(1000), range(5, 10)),
        (AtTime(1000), None, range(0)),
        (EARLIEST, AtOffset(2), range(2)),
        (LATEST, None, range(0)),
    ],
)
async def test_ranges_by_offset_and_by_time(served: Served, start: Any, end: Any, expected: range) -> None:
    fill(served.server, 10)
    async with served.consumer(follow=False, partition_max_bytes=200) as consumer:
        await consumer.assign([T0], start=start, end=end)
        assert await offsets_of(consumer) == list(expected)


async def test_following_waits_for_what_is_appended(served: Served) -> None:
    async with served.consumer(max_wait_ms=10) as consumer:
        await consumer.assign(T0, end=AtOffset(4))
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def append() -> None:
                for _ in range(2):
                    await trio.sleep(0.03)
                    fill(served.server, 2)

            assert await offsets_of(consumer) == [0, 1, 2, 3]


async def test_seeking_and_moving_the_end_drop_what_was_fetched_ahead(served: Served) -> None:
    fill(served.server, 10)
    async with served.consumer() as consumer:
        await consumer.assign(T0)
        await consumer.next_batch()
        await consumer.seek(T0, AtOffset(7))
        assert consumer.position(T0) == 7
        assert offsets_in(await consumer.next_batch()) == [7, 8]
        await consumer.seek(T0, AtTime(20))
        assert offsets_in(await consumer.next_batch()) == [2]
        await consumer.stop_at(T0, AtTime(50))
        assert await offsets_of(consumer) == [3, 4]
        await consumer.stop_at(T0, None)
        assert offsets_in(await consumer.next_batch())[0] == 5


async def test_lost_connections_are_survived(served: Served) -> None:
    fill(served.server, 30, size=1)
    served.faults_on(m.FetchRequest, None, "drop", None, "drop after", "drop")
    async with served.consumer(follow=False, partition_max_bytes=200) as consumer:
        await consumer.assign(T0)
        assert await offsets_of(consumer) == list(range(30))
    assert served.server.connections == 4


async def test_server_that_stays_away_is_an_error_after_the_retry_timeout(served: Served) -> None:
    fill(served.server, 3)
    async with served.consumer(retry_timeout_ms=60) as consumer:
        await consumer.assign(T0)
        assert offsets_in(await consumer.next_batch()) == [0, 1, 2]
        served.go_down()
        began = time.monotonic()
        with pytest.raises(ConnectionLostError):
            await consumer.next_batch()
        assert time.monotonic() - began >= 0.04


@pytest.mark.parametrize(
    ("offset_reset", "expected"), [("earliest", [5, 6, 7, 8, 9, 10]), ("latest", [10]), (None, OffsetOutOfRangeError)]
)
async def test_offset_that_retention_has_passed(served: Served, offset_reset: str | None, expected: Any) -> None:
    fill(served.server, 10, size=1)
    served.server.logs["t"][0].log_start_offset = 5
    async with served.consumer(offset_reset=offset_reset, max_wait_ms=10) as consumer:
        await consumer.assign(T0, start=AtOffset(2), end=AtOffset(11))
        if offset_reset is None:
            with pytest.raises(expected, match="offset 2, log has 5 to 10"):
                await consumer.next_batch()
            return
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def append() -> None:
                while not any(fetch.partitions[0].offset == 10 for fetch in served.requests(m.FetchRequest)):
                    await trio.sleep(0.001)
                fill(served.server, 1)

            assert await offsets_of(consumer) == expected


async def test_a_reset_to_the_end_of_the_assignment_ends_the_reading(served: Served) -> None:
    fill(served.server, 10, size=1)
    served.server.logs["t"][0].log_start_offset = 5
    async with served.consumer(offset_reset="latest", max_wait_ms=10) as consumer:
        await consumer.assign(T0, start=AtOffset(2), end=AtOffset(10))
        with trio.fail_after(10):
            assert await offsets_of(consumer) == []


async def test_errors_are_raised_where_they_belong(served: Served) -> None:
    served.faults_on(m.FetchRequest, InvalidRequestError("no"))
    async with served.consumer() as consumer:
        for unknown in ("missing", TopicPartition("t", 9)):
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.assign(unknown)
        await consumer.assign(T0)
        with pytest.raises(InvalidRequestError, match="no"):
            await consumer.next_batch()
        for call in (consumer.commit, consumer.committed, consumer.seek_to_committed):
            with pytest.raises(InvalidRequestError, match="group="):
                await call()
    async with served.client() as client:
        async with served.door.consumer(client) as consumer:
            await consumer.assign(T0)
        with pytest.raises(ClosedError):
            await consumer.next_batch()


async def test_error_of_a_partition_that_may_pass_is_retried(served: Served) -> None:
    async with served.consumer() as consumer:
        await consumer.assign("t")
        missing = served.server.logs["t"].pop()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def come_back() -> None:
                await trio.sleep(0.03)
                served.server.logs["t"].append(missing)
                fill(served.server, 1, partition=1)

            assert offsets_in(await consumer.next_batch()) == [0]


async def test_error_of_a_partition_that_stays_is_raised_after_the_others_batches(served: Served) -> None:
    fill(served.server, 3)
    async with served.consumer(retry_timeout_ms=60) as consumer:
        await consumer.assign("t")
        served.server.logs["t"].pop()
        began = time.monotonic()
        assert offsets_in(await consumer.next_batch()) == [0, 1, 2]
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.next_batch()
        assert time.monotonic() - began >= 0.04


def fill_transactions(served: Served) -> None:
    """Offsets 0 to 4: a plain record, an aborted one, its marker, a plain one, one of an open transaction."""
    log = served.server.logs["t"][0]
    log.append(batch(0))
    log.append(transactional(0, 5))
    log.end_transaction(5, 0, commit=False)
    log.append(batch(0))
    log.append(transactional(0, 6))


async def test_a_committed_reader_ends_at_the_last_stable_offset(served: Served) -> None:
    fill_transactions(served)
    for isolation, expected in (("read_committed", [0, 3]), ("read_uncommitted", [0, 1, 3, 4])):
        async with served.consumer(follow=False, isolation=isolation) as consumer:
            await consumer.assign(T0)
            assert await offsets_of(consumer) == expected
            assert consumer.position(T0) == expected[-1] + 1


async def test_a_group_goes_on_where_it_committed(served: Served) -> None:
    fill_transactions(served)
    served.faults_on(m.CommitOffsetsRequest, "drop", "drop after")
    async with served.consumer(follow=False, group="g") as consumer:
        await consumer.assign([T0, T1])
        assert await consumer.committed() == {}
        await consumer.next_batch()
        assert consumer.positions() == {T0: 1, T1: 0}, "behind what was taken, not what was fetched"
        await consumer.commit()
        assert await consumer.committed() == {T0: CommittedOffset(1), T1: CommittedOffset(0)}
    async with served.consumer(follow=False, group="g") as consumer:
        await consumer.assign([T0, T1])
        assert await consumer.seek_to_committed() == {T0: 1, T1: 0}
        assert await offsets_of(consumer) == [1, 3, 4]
        await consumer.commit({T1: CommittedOffset(7, "note")})
        assert (await consumer.committed())[T1] == CommittedOffset(7, "note")
