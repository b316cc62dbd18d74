from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from triolog.protocol.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.config import ConsumerConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import Consumer, open_consumer
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime
from triolog.tools.client.reading import Fetch, FetchedBatch, Reading

from tests.support.native_server import NativeServer

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def fill(server: NativeServer, count: int, partition: int = 0, batch: int = 3) -> None:
    """Append records whose timestamps are ten times their offsets."""
    log = server.logs["t"][partition]
    stop = log.high_watermark + count
    while log.high_watermark < stop:
        first = log.high_watermark
        log.append(build_batch([(offset * 10, None, b"%d" % offset, ()) for offset in range(first, min(first + batch, stop))]))
    server.appended()


@asynccontextmanager
async def consuming(server: NativeServer, **options: Any) -> AsyncIterator[Consumer]:
    async with connect(open_stream=server.open_stream) as client, open_consumer(client, **options) as consumer:
        yield consumer


async def offsets_of(consumer: Consumer) -> list[int]:
    return [record.offset async for _, record in consumer.records()]


async def test_everything_up_to_the_end_of_now(server: NativeServer, clock: MockClock) -> None:
    fill(server, 10)
    async with consuming(server, follow=False) as consumer:
        await consumer.assign(T0)
        assert await offsets_of(consumer) == list(range(10))
        assert consumer.position(T0) == 10
        assert consumer.high_watermark(T0) == 10
        assert await consumer.next_batch() is None


async def test_batches_and_partitions_of_a_topic(server: NativeServer, clock: MockClock) -> None:
    fill(server, 10)
    fill(server, 5, partition=1)
    async with consuming(server, follow=False) as consumer:
        await consumer.assign("t")
        assert consumer.assignment == [T0, T1]
        seen: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        async for batch in consumer:
            seen[batch.partition] += [record.offset for record in batch.records()]
    assert seen == {T0: list(range(10)), T1: list(range(5))}


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
async def test_ranges_by_offset_and_by_time(
    server: NativeServer, clock: MockClock, start: Any, end: Any, expected: range
) -> None:
    fill(server, 10)
    async with consuming(server, follow=False) as consumer:
        await consumer.assign([T0], start=start, end=end)
        assert await offsets_of(consumer) == list(expected)


async def test_following_waits_for_what_is_appended(server: NativeServer, clock: MockClock) -> None:
    fill(server, 2)
    async with consuming(server) as consumer:
        await consumer.assign(T0)
        records = consumer.records()
        assert [(await records.__anext__())[1].offset for _ in range(2)] == [0, 1]
        with trio.move_on_after(5) as scope:
            await records.__anext__()
        assert scope.cancelled_caught
        fill(server, 1)
        started = trio.current_time()
        assert (await records.__anext__())[1].offset == 2
        assert trio.current_time() - started < 0.5


async def test_seek_drops_what_was_fetched_ahead(server: NativeServer, clock: MockClock) -> None:
    fill(server, 10)
    async with consuming(server) as consumer:
        await consumer.assign("t")
        await consumer.next_batch()
        await wait_all_tasks_blocked()
        await consumer.seek(T0, AtOffset(7))
        assert consumer.position(T0) == 7
        batch = await consumer.next_batch()
        assert batch is not None
        assert [record.offset for record in batch.records()] == [7, 8]
        await consumer.seek(T0, AtTime(20))
        batch = await consumer.next_batch()
        assert batch is not None
        assert batch.records()[0].offset == 2


async def test_end_may_be_moved(server: NativeServer, clock: MockClock) -> None:
    fill(server, 10)
    async with consuming(server) as consumer:
        await consumer.assign(T0)
        await consumer.next_batch()
        await wait_all_tasks_blocked()
        await consumer.stop_at(T0, AtTime(50))
        assert await offsets_of(consumer) == [3, 4]
        await consumer.stop_at(T0, None)
        batch = await consumer.next_batch()
        assert batch is not None
        assert batch.records()[0].offset == 5


async def test_reading_ahead_is_bounded(server: NativeServer, clock: MockClock) -> None:
    fill(server, 1000, batch=1)
    batch_bytes = len(server.logs["t"][0].batches[0][2])
    async with consuming(server, prefetch_bytes=10 * batch_bytes, partition_max_bytes=4 * batch_bytes) as consumer:
        await consumer.assign(T0)
        await wait_all_tasks_blocked()
        fetches = sum(isinstance(request, m.FetchRequest) for request in server.requests)
        assert fetches == 3
        await consumer.stop_at(T0, LATEST)
        assert await offsets_of(consumer) == list(range(1000))


async def test_lost_connections_are_survived(server: NativeServer, clock: MockClock) -> None:
    fill(server, 30)
    drops = iter([None, "drop", None, "drop after", "drop"])
    server.faults.append(lambda request: next(drops, None) if isinstance(request, m.FetchRequest) else None)
    batch_bytes = len(server.logs["t"][0].batches[0][2])
    async with consuming(server, follow=False, partition_max_bytes=batch_bytes) as consumer:
        await consumer.assign(T0)
        assert await offsets_of(consumer) == list(range(30))
    assert server.connections == 4


async def test_server_that_stays_away_is_an_error_after_the_retry_timeout(server: NativeServer, clock: MockClock) -> None:
    fill(server, 3)
    async with consuming(server, retry_timeout_ms=5000) as consumer:
        await consumer.assign(T0)
        await wait_all_tasks_blocked()
        server.is_down = True
        server.kill()
        assert await consumer.next_batch() is not None, "what came before is handed out"
        started = trio.current_time()
        with pytest.raises(ConnectionLostError):
            await consumer.next_batch()
        assert 4 < trio.current_time() - started < 8


@pytest.mark.parametrize(("offset_reset", "expected"), [("earliest", [5, 6, 7, 8, 9, 10]), ("latest", [10])])
async def test_offset_that_retention_has_passed_is_reset(
    server: NativeServer, clock: MockClock, offset_reset: str, expected: list[int]
) -> None:
    fill(server, 10, batch=1)
    server.logs["t"][0].log_start_offset = 5
    async with consuming(server, offset_reset=offset_reset) as consumer:
        await consumer.assign(T0, start=AtOffset(2), end=AtOffset(11))
        await trio.sleep(1)
        fill(server, 1)
        assert await offsets_of(consumer) == expected


async def test_offset_out_of_range_is_raised_without_a_reset(server: NativeServer, clock: MockClock) -> None:
    async with consuming(server) as consumer:
        await consumer.assign(T0, start=AtOffset(5))
        with pytest.raises(OffsetOutOfRangeError, match="offset 5, log has 0 to 0"):
            await consumer.next_batch()


async def test_error_of_a_fetch_is_raised_where_batches_are_taken(server: NativeServer, clock: MockClock) -> None:
    error = InvalidRequestError("no")
    server.faults.append(lambda request: error if isinstance(request, m.FetchRequest) else None)
    async with consuming(server) as consumer:
        await consumer.assign(T0)
        with pytest.raises(InvalidRequestError, match="no"):
            await consumer.next_batch()


async def test_unknown_topic_is_said_by_assign(server: NativeServer, clock: MockClock) -> None:
    async with consuming(server) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.assign("missing")
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.assign(TopicPartition("t", 9))


async def test_cancelled_taking_loses_nothing(server: NativeServer, clock: MockClock) -> None:
    async with consuming(server) as consumer:
        await consumer.assign(T0)
        for _ in range(5):
            with trio.move_on_after(0.3):
                await consumer.next_batch()
        fill(server, 3)
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.next_batch()
        batch = await consumer.next_batch()
        assert batch is not None
        assert [record.offset for record in batch.records()] == [0, 1, 2]


async def test_closed_consumer_says_so(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client:
        async with open_consumer(client) as consumer:
            await consumer.assign(T0)
        with pytest.raises(ClosedError):
            await consumer.next_batch()


async def test_error_of_a_partition_that_may_pass_is_retried(server: NativeServer, clock: MockClock) -> None:
    fill(server, 3)
    async with consuming(server) as consumer:
        await consumer.assign(T0, end=AtOffset(3))
        logs = server.logs.pop("t")
        await trio.sleep(1)
        server.logs["t"] = logs
        assert await offsets_of(consumer) == [0, 1, 2]


async def test_error_of_a_partition_that_stays_is_raised_after_the_others_batches(
    server: NativeServer, clock: MockClock
) -> None:
    fill(server, 3)
    async with consuming(server, retry_timeout_ms=5000) as consumer:
        await consumer.assign("t")
        server.logs["t"].pop()
        started = trio.current_time()
        assert await consumer.next_batch() is not None
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.next_batch()
        assert 4 < trio.current_time() - started < 8


async def test_reading_ahead_is_bounded_while_a_partition_fails(server: NativeServer, clock: MockClock) -> None:
    fill(server, 1000, batch=1)
    batch_bytes = len(server.logs["t"][0].batches[0][2])
    async with consuming(server, prefetch_bytes=10 * batch_bytes, partition_max_bytes=4 * batch_bytes) as consumer:
        await consumer.assign("t")
        server.logs["t"].pop()
        await trio.sleep(600)
        assert repr(consumer) == "<Consumer of 2 partitions, 11 batches fetched>"


class InterruptedReading(Reading):
    """Ctrl-C is pressed when a batch is counted as read and is not handed on yet."""

    def accept(self, fetch: Fetch, response: m.FetchResponse) -> Iterator[FetchedBatch]:
        for batch in super().accept(fetch, response):
            signal.raise_signal(signal.SIGINT)
            yield batch


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_a_fetch_leaves_no_position_behind_a_batch_that_nobody_got() -> None:
    """trio.run takes signals only where no test's clock is."""
    taken = at = -1

    async def interrupted() -> None:
        nonlocal taken, at
        async with trio.open_nursery() as nursery:
            server = NativeServer(nursery, t=1)
            fill(server, 3)
            async with consuming(server) as consumer:
                consumer._reading = InterruptedReading(ConsumerConfig())
                await consumer.assign(T0)
                taken = 0
                try:
                    while (batch := await consumer.next_batch()) is not None:
                        taken = batch.next_offset
                finally:
                    at = consumer.position(T0)

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(interrupted)
    assert raised.group_contains(KeyboardInterrupt)
    assert taken == at
