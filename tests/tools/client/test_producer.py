"""What only the producer for trio does: it waits beside other tasks, and is cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked
from triolog.protocol.errors import RequestError, RequestTimedOutError
from triolog.protocol.native import messages as m
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.errors import ClosedError
from triolog.tools.client.producer import Producer, SentRecord, open_producer

from tests.support.native_server import NativeServer

from .doors import faults_on

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def producing(server: NativeServer, **options: Any) -> AsyncIterator[Producer]:
    async with connect(open_stream=server.open_stream) as client, open_producer(client, **options) as producer:
        yield producer


async def committed(server: NativeServer) -> list[bytes | None]:
    async with connect(open_stream=server.open_stream) as client:
        async with open_consumer(client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer:
            await consumer.assign(T0)
            return [record.value async for _, record in consumer.records()]


async def test_linger_bounds_the_wait_for_company_and_flush_ends_it(server: NativeServer, clock: MockClock) -> None:
    async with producing(server, linger_ms=200) as producer:
        started = trio.current_time()
        await (await producer.send("t", b"a"))
        assert 0.2 <= trio.current_time() - started < 0.3
        before = await producer.send("t", b"before", partition=0)
        await producer.flush()
        assert before.is_done
        after = producer.send_nowait("t", b"after", partition=0)
        assert not after.is_done


async def test_one_request_of_a_partition_is_in_flight_and_others_overtake_it(server: NativeServer, clock: MockClock) -> None:
    release = trio.Event()
    faults_on(server, m.ProduceRequest, release)
    async with producing(server, linger_ms=0) as producer:
        held = await producer.send("t", b"0", partition=0)
        await wait_all_tasks_blocked()
        behind = [await producer.send("t", b"%d" % number, partition=0) for number in range(1, 5)]
        await (await producer.send("t", b"other", partition=1))
        assert not held.is_done
        release.set()
        for future in behind:
            await future
        assert sum(isinstance(one, m.ProduceRequest) for one in server.requests) == 3, "what came meanwhile went together"
    assert server.logs["t"][0].values() == [b"%d" % number for number in range(5)]


async def test_what_would_wait_is_refused_by_send_nowait(server: NativeServer, clock: MockClock) -> None:
    release = trio.Event()
    faults_on(server, m.ProduceRequest, release)
    async with producing(server, linger_ms=0, buffer_bytes=1000) as producer:
        with pytest.raises(trio.WouldBlock):
            producer.send_nowait("t", b"its topic is not known")
        for _ in range(4):
            await producer.send("t", bytes(200), partition=0)
        with pytest.raises(trio.WouldBlock):
            producer.send_nowait("t", bytes(200), partition=0)
        release.set()


async def test_cancelled_send_has_taken_nothing(server: NativeServer, clock: MockClock) -> None:
    hold = trio.Event()
    faults_on(server, m.MetadataRequest, hold)
    async with producing(server) as producer:
        with trio.move_on_after(1):
            await producer.send("t", b"cancelled while the topic is looked up")
        hold.set()
        await producer.send("t", b"before", partition=0)
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send("t", b"cancelled", partition=0)
        with trio.move_on_after(0.001):
            await (await producer.send("t", b"awaiting is cancelled", partition=0))
    assert server.logs["t"][0].values() == [b"before", b"awaiting is cancelled"]


async def test_a_server_that_cannot_be_asked_for_a_topic_is_said(server: NativeServer, clock: MockClock) -> None:
    async with producing(server, max_block_ms=2000) as producer:
        server.is_down = True
        server.kill()
        with pytest.raises(RequestTimedOutError, match="the partitions of topic 't' could not be asked"):
            await producer.send("t", b"a")


async def test_a_transaction_whose_end_is_unknown_is_left_behind_for_another_epoch(
    server: NativeServer, clock: MockClock
) -> None:
    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            server.is_down = True
            server.kill()

    async with producing(server, transactional_id="x", max_block_ms=2_000, delivery_timeout_ms=1_000) as producer:
        with pytest.raises(RequestError):
            await fail(producer)
        server.is_down = False
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert server.transactional["x"][1] == 1


async def test_a_cancelled_block_aborts(server: NativeServer, clock: MockClock) -> None:
    async with producing(server, transactional_id="x") as producer:
        with trio.CancelScope() as scope:
            async with producer.transaction():
                await (await producer.send("t", b"a", partition=0))
                scope.cancel()
                await trio.lowlevel.checkpoint()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert [one.commit for one in server.requests if isinstance(one, m.EndTransactionRequest)] == [False, True]


async def test_a_closed_producer_abandons_what_waits_for_a_producer_id(server: NativeServer, clock: MockClock) -> None:
    faults_on(server, m.InitProducerRequest, *["drop"] * 1000)
    sent: list[SentRecord] = []

    async def fail() -> None:
        async with producing(server) as producer:
            sent.append(await producer.send("t", b"a", partition=0))
            await trio.sleep(1)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    with pytest.raises(ClosedError):
        sent[0].value()


@pytest.mark.parametrize("kind", [m.ProduceRequest, m.EndTransactionRequest])
async def test_a_cancelled_commit_leaves_room_for_the_next_transaction(
    server: NativeServer, clock: MockClock, kind: type[Any]
) -> None:
    faults_on(server, kind, trio.Event())
    async with producing(server, transactional_id="x") as producer:
        with trio.move_on_after(1) as scope:
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert scope.cancelled_caught
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
