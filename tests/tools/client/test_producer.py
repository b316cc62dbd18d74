from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked
from triolog.protocol.errors import (
    InvalidRecordError,
    InvalidRequestError,
    RecordTooLargeError,
    RequestError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from triolog.protocol.native import messages as m
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import CompressionType
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.errors import BufferFullError, ClosedError, DeliveryTimedOutError
from triolog.tools.client.producer import SentRecord, open_producer
from triolog.tools.client.sending.partitioner import partition_for_key

from tests.support.native_server import Fault, NativeServer


def produces(server: NativeServer) -> list[m.ProduceRequest]:
    return [request for request in server.requests if isinstance(request, m.ProduceRequest)]


def on_produce(*outcomes: Any) -> Fault:
    """Faults for the first produce requests, one each; None is no fault."""
    left = list(outcomes)
    return lambda request: left.pop(0) if isinstance(request, m.ProduceRequest) and left else None


def on_partition(make: Callable[[], RequestError], times: int) -> Fault:
    left = [make() for _ in range(times)]
    return lambda part: left.pop() if isinstance(part, m.ProducePartition) and left else None


def without_repetitions(values: list[bytes | None]) -> list[bytes | None]:
    return list(dict.fromkeys(values))


async def test_awaited_record_tells_where_it_is(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        first = await producer.send("t", b"a", key=b"k", timestamp_ms=11, partition=1, headers=[("h", b"v")])
        second = await producer.send("t", b"b", timestamp_ms=12, partition=1)
        assert await first == ("t", 1, 0, 11)
        assert await second == ("t", 1, 1, 12)
        assert await second == ("t", 1, 1, 12), "may be awaited again"
    assert [(r.timestamp, r.key, r.value, r.headers) for r in server.logs["t"][1].records()] == [
        (11, b"k", b"a", (("h", b"v"),)),
        (12, None, b"b", ()),
    ]
    assert len(produces(server)) == 1


async def test_leaving_the_block_flushes(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client, linger_ms=60_000) as producer:
        futures = [await producer.send("t", b"%d" % number, partition=0) for number in range(10)]
        assert not any(future.is_done for future in futures)
    assert [future.value().offset for future in futures] == list(range(10))
    assert server.logs["t"][0].values() == [b"%d" % number for number in range(10)]


async def test_linger_bounds_the_wait_for_company(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client, linger_ms=200) as producer:
        started = trio.current_time()
        await (await producer.send("t", b"a"))
        assert 0.2 <= trio.current_time() - started < 0.3


async def test_keyed_records_go_where_kafka_sends_them(server: NativeServer, clock: MockClock) -> None:
    server.logs["keyed"] = [type(server.logs["t"][0])() for _ in range(7)]
    keys = [b"key-%d" % number for number in range(50)]
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        for key in keys:
            await producer.send("keyed", key, key=key)
    for partition, log in enumerate(server.logs["keyed"]):
        assert log.values() == [key for key in keys if partition_for_key(key, 7) == partition]


@pytest.mark.parametrize("compression_type", CompressionType)
async def test_batches_are_compressed_as_configured(
    server: NativeServer, clock: MockClock, compression_type: CompressionType
) -> None:
    async with connect(open_stream=server.open_stream) as client:
        async with open_producer(client, compression_type=compression_type) as producer:
            await producer.send("t", b"value" * 100, partition=0)
    ((_, _, batch),) = server.logs["t"][0].batches
    assert batch[22] & 7 == compression_type
    assert [record.value for record in iter_records(batch)] == [b"value" * 100]


async def test_one_request_of_a_partition_is_in_flight_and_others_overtake_it(server: NativeServer, clock: MockClock) -> None:
    release = trio.Event()
    server.faults.append(on_produce(release))
    async with connect(open_stream=server.open_stream) as client, open_producer(client, linger_ms=0) as producer:
        held = await producer.send("t", b"0", partition=0)
        await wait_all_tasks_blocked()
        behind = [await producer.send("t", b"%d" % number, partition=0) for number in range(1, 5)]
        await (await producer.send("t", b"other", partition=1))
        assert not held.is_done
        release.set()
        for future in behind:
            await future
        assert len(produces(server)) == 3, "what came meanwhile went together"
    assert server.logs["t"][0].values() == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("outcome", ["drop", "drop after"])
async def test_lost_connection_is_retried_in_order(server: NativeServer, clock: MockClock, outcome: str) -> None:
    server.faults.append(on_produce(None, outcome, None, outcome, outcome))
    expected = [b"%d" % number for number in range(60)]
    async with connect(open_stream=server.open_stream) as client:
        async with open_producer(client, linger_ms=0, batch_bytes=200) as producer:
            for value in expected:
                await producer.send("t", value, partition=0)
                await trio.sleep(0.001)
    assert without_repetitions(server.logs["t"][0].values()) == expected
    assert server.connections == 4


async def test_server_that_comes_back_gets_everything(server: NativeServer, clock: MockClock) -> None:
    expected = [b"%d" % number for number in range(50)]
    async with connect(open_stream=server.open_stream) as client, open_producer(client, linger_ms=1) as producer:
        for number, value in enumerate(expected):
            if number == 20:
                server.is_down = True
                server.kill()
            if number == 40:
                await trio.sleep(7)
                server.is_down = False
            await producer.send("t", value, partition=0)
            await trio.sleep(0.01)
    assert without_repetitions(server.logs["t"][0].values()) == expected


async def test_retriable_error_of_a_partition_is_retried(server: NativeServer, clock: MockClock) -> None:
    server.faults.append(on_partition(lambda: UnknownTopicOrPartitionError("not yet"), 3))
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        future = await producer.send("t", b"a", partition=0)
        assert (await future).offset == 0
        assert len(produces(server)) == 4
        await producer.send("t", b"b")
    lookups = [request for request in server.requests if isinstance(request, m.MetadataRequest)]
    assert len(lookups) == 2, "the partitions are asked for again"


async def test_error_that_is_final_is_raised_by_its_records_alone(server: NativeServer, clock: MockClock) -> None:
    server.faults.append(on_partition(lambda: InvalidRecordError("bad"), 1))
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        bad = await producer.send("t", b"bad", partition=0)
        with pytest.raises(InvalidRecordError, match="bad"):
            await bad
        assert (await (await producer.send("t", b"good", partition=0))).offset == 0


async def test_delivery_timeout_ends_retries(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client:
        async with open_producer(client, delivery_timeout_ms=3000) as producer:
            await producer.send("t", b"a", partition=0)
            await producer.flush()
            server.is_down = True
            server.kill()
            started = trio.current_time()
            future = await producer.send("t", b"b", partition=0)
            with pytest.raises(DeliveryTimedOutError, match="t-0 was not acknowledged within delivery_timeout_ms=3000"):
                await future
            assert 3 <= trio.current_time() - started < 4
            assert producer.buffered_bytes == 0


async def test_full_buffer_makes_send_wait_and_nothing_is_lost(server: NativeServer, clock: MockClock) -> None:
    release = trio.Event()
    server.faults.append(on_produce(release))
    taken = 0
    async with connect(open_stream=server.open_stream) as client:
        async with open_producer(client, linger_ms=0, buffer_bytes=5000) as producer:

            async def send_all() -> None:
                nonlocal taken
                for number in range(100):
                    await producer.send("t", number.to_bytes(4, "big") + bytes(200), partition=0)
                    taken += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_all)
                await wait_all_tasks_blocked()
                assert 0 < taken < 100
                assert producer.buffered_bytes <= 5000
                with pytest.raises(trio.WouldBlock):
                    producer.send_nowait("t", bytes(200), partition=0)
                release.set()
    numbers = [int.from_bytes((value or b"")[:4], "big") for value in server.logs["t"][0].values()]
    assert numbers == list(range(100))


async def test_full_buffer_is_an_error_after_max_block_ms(server: NativeServer, clock: MockClock) -> None:
    server.faults.append(on_produce(trio.Event()))
    async with connect(open_stream=server.open_stream) as client:
        producing = open_producer(client, linger_ms=0, buffer_bytes=1000, max_block_ms=2000, delivery_timeout_ms=9000)
        async with producing as producer:
            for _ in range(4):
                await producer.send("t", bytes(200), partition=0)
            with pytest.raises(BufferFullError, match="928 of 1000 bytes wait for their acknowledgement"):
                await producer.send("t", bytes(200))
            server.kill()


async def test_cancelled_send_has_taken_nothing(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        await producer.send("t", b"before", partition=0)
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send("t", b"cancelled", partition=0)
        with trio.move_on_after(0.001):
            await (await producer.send("t", b"awaiting is cancelled", partition=0))
    assert server.logs["t"][0].values() == [b"before", b"awaiting is cancelled"]


async def test_cancelling_while_the_topic_is_looked_up_leaves_the_producer_whole(
    server: NativeServer, clock: MockClock
) -> None:
    hold = trio.Event()
    server.faults.append(lambda request: hold if isinstance(request, m.MetadataRequest) else None)
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        with trio.move_on_after(1):
            await producer.send("t", b"cancelled")
        hold.set()
        await producer.send("t", b"sent", partition=0)
    assert server.logs["t"][0].values() == [b"sent"]


async def test_flush_waits_for_what_was_sent_before_it_only(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client, linger_ms=60_000) as producer:
        before = await producer.send("t", b"before", partition=0)
        await producer.flush()
        assert before.value().offset == 0
        after = producer.send_nowait("t", b"after", partition=0)
        assert not after.is_done


async def test_leaving_by_an_exception_abandons_what_is_unsettled(server: NativeServer, clock: MockClock) -> None:
    futures: list[SentRecord] = []
    async with connect(open_stream=server.open_stream) as client:
        with contextlib.suppress(KeyError):
            async with open_producer(client, linger_ms=60_000) as producer:
                futures.append(await producer.send("t", b"a"))
                raise KeyError
        with pytest.raises(ClosedError, match="closed before the record was acknowledged"):
            await futures[0]
        with pytest.raises(ClosedError, match="the producer is closed"):
            await producer.send("t", b"b")


async def test_without_acks_records_have_no_offset(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client, acks=0) as producer:
        future = await producer.send("t", b"a", timestamp_ms=5, partition=0)
        assert await future == ("t", 0, -1, 5)
        await client.metadata(m.MetadataRequest())
    assert server.logs["t"][0].values() == [b"a"]


async def test_unknown_topic_and_partition_are_said_at_once(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("missing", b"a")
        with pytest.raises(trio.WouldBlock):
            producer.send_nowait("t", b"a")
        with pytest.raises(InvalidRequestError, match="partition 2 of t, which has 0 to 1"):
            await producer.send("t", b"a", partition=2)


async def test_lookup_of_a_topic_survives_a_lost_connection(server: NativeServer, clock: MockClock) -> None:
    drops = iter(["drop", "drop"])
    server.faults.append(lambda request: next(drops, None) if isinstance(request, m.MetadataRequest) else None)
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        assert (await (await producer.send("t", b"a"))).offset == 0
    assert server.connections == 3


async def test_a_server_that_cannot_be_asked_for_a_topic_is_said(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client, max_block_ms=2000) as producer:
        server.is_down = True
        server.kill()
        with pytest.raises(RequestTimedOutError, match="the partitions of topic 't' could not be asked"):
            await producer.send("t", b"a")


def test_a_compression_level_that_the_codec_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="gzip has no compression level 10"):
        ProducerConfig(compression_type=CompressionType.GZIP, compression_level=10)


async def test_requests_stay_within_the_servers_frames(server: NativeServer, clock: MockClock) -> None:
    server.max_frame_bytes = 20_000
    values = [bytes([number]) * 1000 for number in range(100)]
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        sent = [await producer.send("t", value, partition=number % 2) for number, value in enumerate(values)]
        for record in sent:
            await record
        with pytest.raises(RecordTooLargeError, match=r"20\d\d\d bytes for t-1; .* at most max_frame_bytes=20000"):
            await producer.send("t", bytes(20_000), partition=1)
    assert [log.values() for log in server.logs["t"]] == [values[0::2], values[1::2]]


async def test_a_server_with_smaller_frames_gets_what_another_one_would_have_got(
    server: NativeServer, clock: MockClock
) -> None:
    values = [bytes([number]) * 1000 for number in range(40)]
    async with connect(open_stream=server.open_stream) as client:
        async with open_producer(client, linger_ms=60_000, batch_bytes=2_000) as producer:
            sent = [await producer.send("t", value, partition=number % 2) for number, value in enumerate(values)]
            large = await producer.send("t", bytes(20_000), partition=1)
            server.kill()
            server.max_frame_bytes = 10_000
            await producer.flush()
            for record in sent:
                await record
            with pytest.raises(RecordTooLargeError, match=r"t-1: 20\d{3} bytes in a batch were not sent"):
                await large
    assert [log.values() for log in server.logs["t"]] == [values[0::2], values[1::2]]
