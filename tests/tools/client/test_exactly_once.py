"""Idempotent and transactional producers on a real server, over connections that are cut between a write and its answer."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.connection import Client, connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.producer import open_producer

from .doors import QUICK, RETRIES, Door, WrappedStream

T0 = TopicPartition("t", 0)


@pytest.fixture
def three() -> Iterator[BlockingBroker]:
    """Topic t with three partitions; `os` durability, as nothing crashes."""
    with BlockingBroker(config={"retention.ms": "-1"}) as running:
        running.create_topic("t", 3)
        yield running


class CutStream(WrappedStream):
    """A connection that breaks when an answer has arrived, before anybody has seen it."""

    def __init__(self, stream: trio.SocketStream, source: random.Random) -> None:
        super().__init__(stream)
        self.answers_left = source.randrange(2, 6)  # the first one is to hello

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = await super().receive_some(max_bytes)
        self.answers_left -= 1
        if not self.answers_left:
            await self.aclose()
            raise trio.BrokenResourceError("cut")
        return data


class Cutter:
    """Opens streams that are cut; counts them."""

    def __init__(self, broker: BlockingBroker, seed: int) -> None:
        self.broker = broker
        self.source = random.Random(seed)
        self.opened = 0

    async def open_stream(self) -> trio.abc.Stream:
        self.opened += 1
        return CutStream(await trio.open_tcp_stream(*self.broker.native), self.source)


@asynccontextmanager
async def cut_client(cutter: Cutter) -> AsyncIterator[Client]:
    async with connect(open_stream=cutter.open_stream, config=QUICK) as client:
        yield client


async def values(three: BlockingBroker, partition: int = 0, **options: Any) -> list[int]:
    async with connect(*three.native) as client, open_consumer(client, follow=False, **options) as consumer:
        await consumer.assign(TopicPartition("t", partition))
        return [int(record.value or b"") async for _, record in consumer.records()]


@pytest.mark.parametrize("seed", range(2))
async def test_answers_that_are_cut_off_leave_no_duplicates_and_no_other_order(three: BlockingBroker, seed: int) -> None:
    cutter = Cutter(three, seed)
    async with cut_client(cutter) as client:
        async with open_producer(client, linger_ms=0, batch_bytes=300, **RETRIES) as producer:
            sent = []
            for number in range(300):
                sent.append(await producer.send("t", b"%d" % number, partition=number % 3))
                if cutter.source.random() < 0.1:
                    await producer.flush()
    assert cutter.opened > 5
    for partition in range(3):
        assert await values(three, partition) == list(range(partition, 300, 3))
    assert [record.value().offset for record in sent] == [number // 3 for number in range(300)]


@pytest.mark.parametrize("seed", range(2))
async def test_transactions_over_cut_connections_are_seen_whole_and_once(three: BlockingBroker, seed: int) -> None:
    cutter = Cutter(three, seed)
    expected = []
    async with cut_client(cutter) as client, open_producer(client, transactional_id="x", linger_ms=0, **RETRIES) as producer:
        for number in range(15):
            transaction = producer.transaction()
            await transaction.begin()
            for step in range(3):
                await producer.send("t", b"%d" % (number * 3 + step), partition=0)
            await transaction.send_offsets("g", {T0: number})
            if number % 3 == 2:
                await transaction.abort()
            else:
                await transaction.commit()
                expected += [number * 3 + step for step in range(3)]
    assert cutter.opened > 5
    assert await values(three, isolation=Isolation.READ_COMMITTED) == expected
    async with connect(*three.native) as client, open_consumer(client, group="g") as consumer:
        await consumer.assign(T0)
        assert (await consumer.committed())[T0].offset == 13


async def test_reading_and_writing_in_transactions_copies_each_record_once(three: BlockingBroker, door: Door) -> None:
    """Read, write and commit the position in one transaction; every second one aborts and is done again."""
    for number in range(10):
        three.append("t", [b"%d" % number], partition=0)
    async with door.client(three.native) as client, door.producer(client, transactional_id="copier") as producer:
        for attempt in range(30):
            reading = {"follow": False, "group": "g", "isolation": "read_committed", "max_bytes": 1}
            async with door.consumer(client, **reading) as consumer:
                await consumer.assign(T0)
                await consumer.seek_to_committed()
                batch = await consumer.next_batch()
                if batch is None:
                    break
                transaction = producer.transaction()
                await transaction.begin()
                for record in batch.records():
                    await producer.send("t", record.value, partition=1)
                await transaction.send_offsets("g", {T0: batch.next_offset})
                await (transaction.abort() if attempt % 2 else transaction.commit())
    assert await values(three, 1, isolation=Isolation.READ_COMMITTED) == list(range(10))


async def test_a_committed_follower_is_woken_by_the_commit(three: BlockingBroker, door: Door) -> None:
    async with door.client(three.native) as client, door.producer(client, transactional_id="x", linger_ms=0) as producer:
        async with door.consumer(client, isolation="read_committed", max_wait_ms=600_000) as consumer:
            await consumer.assign(T0)
            with trio.fail_after(30):
                async with producer.transaction():
                    await (await producer.send("t", b"1", partition=0))
                batch = await consumer.next_batch()
                assert [record.value for record in batch.records()] == [b"1"]


async def test_a_transaction_that_the_server_never_heard_of_ends_either_way(three: BlockingBroker, door: Door) -> None:
    async with door.client(three.native) as client:
        async with door.producer(client, transactional_id="x", linger_ms=60_000) as producer:
            async with producer.transaction():
                await producer.send("t", b"0", partition=0)
            transaction = producer.transaction()
            for flushes in (False, True):
                await transaction.begin()
                await producer.send("t", b"1", partition=0)
                if flushes:
                    await producer.flush()
                await transaction.abort()
            async with producer.transaction() as transaction:
                await transaction.send_offsets("g", {})
            async with producer.transaction():
                await producer.send("t", b"3", partition=0)
    assert await values(three, isolation=Isolation.READ_COMMITTED) == [0, 3]
