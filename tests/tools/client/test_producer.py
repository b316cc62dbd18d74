"""What only the producer for trio does: it waits beside other tasks, and is cancelled. Both appenders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked
from triolog.protocol.errors import InvalidRecordError, InvalidRequestError, RequestError, RequestTimedOutError
from triolog.protocol.native import messages as m
from triolog.protocol.native.messages import ProduceRequest
from triolog.protocol.types import CompressionType, Isolation, TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.appender import Appender, AppendResult, ExpectedOffsetError
from triolog.tools.client.blocking import PlainRecord
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.producer import Producer, SentRecord, open_producer

from tests.support.native_server import NativeServer
from tests.tools.client.doors import RETRIES, Served, faults_on

T0 = TopicPartition("t", 0)


def appended(base_offset: int, end_offset: int) -> AppendResult:
    return AppendResult(base_offset, end_offset - 1, -1, 0)


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
        with pytest.raises(RequestTimedOutError, match="could not get the partitions of topic 't'"):
            await producer.send("t", b"a")


async def test_a_transaction_of_unknown_end_leads_to_another_epoch(server: NativeServer, clock: MockClock) -> None:
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
async def test_a_cancelled_commit_is_no_obstacle(server: NativeServer, clock: MockClock, kind: type[Any]) -> None:
    faults_on(server, kind, trio.Event())
    async with producing(server, transactional_id="x") as producer:
        with trio.move_on_after(1) as scope:
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert scope.cancelled_caught
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]


@asynccontextmanager
async def appending(served: Served, **options: Any) -> AsyncIterator[Any]:
    async with served.client() as client:
        yield served.door.appender(client, **RETRIES | options)


async def test_an_append_goes_where_it_is_expected_or_nowhere(served: Served) -> None:
    async with appending(served, compression_type=CompressionType.GZIP) as appender:
        assert await appender.append("t", [b"a", b"b"], expected_offset=0) == appended(0, 2)
        with pytest.raises(ExpectedOffsetError) as caught:
            await appender.append("t", [b"c"], expected_offset=1)
        assert caught.value.log_end_offset == 2
        assert await appender.append("t", [PlainRecord(5, b"k", b"c")], expected_offset=2) == appended(2, 3)
        assert await appender.append("t", [b"d"], partition=1) == appended(0, 1)
        with pytest.raises(InvalidRequestError, match="no records"):
            await appender.append("t", [])
    records = served.server.logs["t"][0].records()
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert (records[2].timestamp, records[2].key) == (5, b"k")
    assert len(served.server.logs["t"][0].producers) == 1


@pytest.mark.parametrize("outcome", ["drop", "drop after"])
async def test_a_lost_answer_is_no_refusal(served: Served, outcome: str) -> None:
    served.faults_on(ProduceRequest, outcome, outcome, None)
    async with appending(served) as appender:
        assert await appender.append("t", [b"a"], expected_offset=0) == appended(0, 1)
        assert await appender.append("t", [b"b"], expected_offset=1) == appended(1, 2)
    assert served.values() == [b"a", b"b"]


async def test_who_gave_up_begins_as_another_producer(served: Served) -> None:
    served.faults_on(ProduceRequest, "drop after", InvalidRecordError("no"), None)
    async with appending(served, delivery_timeout_ms=0) as appender:
        with pytest.raises(ConnectionLostError):
            await appender.append("t", [b"a"], expected_offset=0)
        with pytest.raises(InvalidRecordError):
            await appender.append("t", [b"b"], expected_offset=1)
        assert await appender.append("t", [b"c"], expected_offset=1) == appended(1, 2)
    assert served.values() == [b"a", b"c"]


async def test_a_cancelled_append_leaves_no_hole_in_the_sequence(server: NativeServer, clock: MockClock) -> None:
    held = [trio.Event()]
    server.faults.append(lambda request: held.pop() if isinstance(request, ProduceRequest) and held else None)
    async with connect(open_stream=server.open_stream) as client:
        appender = Appender(client)
        with trio.move_on_after(1) as waiting:
            await appender.append("t", [b"a"], expected_offset=0)
        assert waiting.cancelled_caught
        assert await appender.append("t", [b"b"], expected_offset=1) == appended(1, 2)


async def test_many_who_count_lose_nothing(broker: BlockingBroker) -> None:
    """Each adds 1 to the last number that it has seen; whoever was too late reads again."""
    host, port = broker.native
    losses = 0

    async def count(times: int) -> None:
        nonlocal losses
        async with connect(host, port) as client:
            appender = Appender(client)
            end = 0
            while times:
                try:
                    await appender.append("t", [b"%d" % (end + 1)], expected_offset=end)
                    times, end = times - 1, end + 1
                except ExpectedOffsetError as exc:
                    losses += 1
                    end = exc.log_end_offset

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(count, 15)
    assert [int(record.value or b"") for record in broker.fetch("t")] == list(range(1, 61))
    assert losses > 0
