from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.tools.client.config import ConsumerConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import Consumer, open_consumer
from triolog.tools.client.procedures.topics import LATEST
from triolog.tools.client.reading import Fetch, FetchedBatch, Reading

from tests.support.native_server import NativeServer

from .doors import fill

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def consuming(server: NativeServer, **options: Any) -> AsyncIterator[Consumer]:
    async with connect(open_stream=server.open_stream) as client, open_consumer(client, **options) as consumer:
        yield consumer


async def offsets_of(consumer: Consumer) -> list[int]:
    return [record.offset async for _, record in consumer.records()]


async def test_reading_ahead_is_bounded(server: NativeServer, clock: MockClock) -> None:
    fill(server, 1000, size=1)
    batch_bytes = len(server.logs["t"][0].batches[0][2])
    async with consuming(server, prefetch_bytes=10 * batch_bytes, partition_max_bytes=4 * batch_bytes) as consumer:
        await consumer.assign(T0)
        await wait_all_tasks_blocked()
        fetches = sum(isinstance(request, m.FetchRequest) for request in server.requests)
        assert fetches == 3
        await consumer.stop_at(T0, LATEST)
        assert await offsets_of(consumer) == list(range(1000))


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
        assert [record.offset for record in batch.records()] == [0, 1, 2]


async def test_reading_ahead_is_bounded_while_a_partition_fails(server: NativeServer, clock: MockClock) -> None:
    fill(server, 1000, size=1)
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
