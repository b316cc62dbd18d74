from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
import trio
from triolog.protocol import errors
from triolog.protocol.native import messages as m
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import CompressionType
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import BufferFullError, ClosedError, DeliveryTimedOutError
from triolog.tools.client.sending.partitioner import partition_for_key

from tests.support.native_server import FakeLog

from ..doors import Served


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_produced_records_tell_where_they_are_and_leaving_the_block_flushes(served: Served) -> None:
    async with served.producer(linger_ms=60_000) as producer:
        first = await producer.send("t", b"a", key=b"k", timestamp_ms=11, partition=1, headers=[("h", b"v")])
        second = await producer.send("t", b"b", timestamp_ms=12, partition=1)
        called: list[str] = []
        second.add_listener(lambda: called.append("second"))
        assert not first.is_done
        await producer.flush()
        assert called == ["second"]
        assert await first == ("t", 1, 0, 11)
        assert await second == await second == second.value() == ("t", 1, 1, 12)
        last = await producer.send("t", b"flushed on leaving", timestamp_ms=13, partition=1)
    assert last.value().offset == 2
    assert [(r.timestamp, r.key, r.value, r.headers) for r in served.server.logs["t"][1].records()] == [
        (11, b"k", b"a", (("h", b"v"),)),
        (12, None, b"b", ()),
        (13, None, b"flushed on leaving", ()),
    ]
    assert len(served.requests(m.ProduceRequest)) == 2


async def test_keyed_records_go_where_kafka_sends_them(served: Served) -> None:
    served.server.logs["keyed"] = [FakeLog() for _ in range(7)]
    keys = [b"key-%d" % number for number in range(50)]
    async with served.producer() as producer:
        for key in keys:
            await producer.send("keyed", key, key=key)
    for partition, log in enumerate(served.server.logs["keyed"]):
        assert log.values() == [key for key in keys if partition_for_key(key, 7) == partition]


@pytest.mark.parametrize("compression_type", CompressionType)
async def test_batches_are_compressed_as_configured(served: Served, compression_type: CompressionType) -> None:
    async with served.producer(compression_type=compression_type) as producer:
        await producer.send("t", b"value" * 100, partition=0)
    ((_, _, batch),) = served.server.logs["t"][0].batches
    assert batch[22] & 7 == compression_type
    assert [record.value for record in iter_records(batch)] == [b"value" * 100]


def test_options_that_make_no_sense_are_refused() -> None:
    for options, words in (
        ({"compression_type": CompressionType.GZIP, "compression_level": 10}, "gzip has no compression level 10"),
        ({"acks": 1, "enable_idempotence": True}, "acks"),
        ({"acks": 0, "transactional_id": "x"}, "acks"),
        ({"transactional_id": "x", "enable_idempotence": False}, "enable_idempotence"),
    ):
        with pytest.raises(ValueError, match=words):
            ProducerConfig(**options)


async def test_full_batches_are_sent_by_the_way(served: Served) -> None:
    async with served.producer(linger_ms=60_000, batch_bytes=1000) as producer:
        sent = [await producer.send("t", value, partition=0) for value in numbered(300)]
        await producer.flush()
        assert [record.value().offset for record in sent] == list(range(300))
        assert producer.buffered_bytes == 0
    assert served.values() == numbered(300)


@pytest.mark.parametrize("outcome", ["drop", "drop after"])
@pytest.mark.parametrize("enable_idempotence", [False, True])
async def test_lost_connection_is_retried_in_order(served: Served, outcome: str, enable_idempotence: bool) -> None:
    served.faults_on(m.ProduceRequest, None, outcome, None, outcome, outcome)
    options = {"batch_bytes": 200, "max_request_bytes": 500, "enable_idempotence": enable_idempotence}
    async with served.producer(linger_ms=0, **options) as producer:
        sent = [await producer.send("t", value, partition=0) for value in numbered(100)]
    found = served.values()
    assert list(dict.fromkeys(found)) == numbered(100)
    assert served.server.connections == 4
    if enable_idempotence:
        assert found == numbered(100)
        assert [record.value().offset for record in sent] == list(range(100))


async def test_what_may_pass_is_tried_again(served: Served) -> None:
    served.faults_on(m.MetadataRequest, "drop", "drop")
    served.faults_on(m.InitProducerRequest, "drop", "drop after")
    served.faults_on(m.ProducePartition, *[errors.UnknownTopicOrPartitionError("not yet") for _ in range(3)])
    async with served.producer() as producer:
        assert (await (await producer.send("t", b"a", partition=0))).offset == 0
        assert served.server.connections == 5
        assert len(served.requests(m.ProduceRequest)) == 4
        await producer.send("t", b"b")
    assert len(served.requests(m.MetadataRequest)) == 4, "the partitions are asked for again"


async def test_error_that_is_final_is_raised_by_its_records_alone(served: Served) -> None:
    served.faults_on(m.ProducePartition, errors.InvalidRecordError("bad"))
    async with served.producer() as producer:
        bad = await producer.send("t", b"bad", partition=0)
        with pytest.raises(errors.InvalidRecordError, match="bad"):
            await bad
        assert (await (await producer.send("t", b"good", partition=0))).offset == 0


async def test_delivery_timeout_ends_retries(served: Served) -> None:
    async with served.producer(delivery_timeout_ms=300) as producer:
        await (await producer.send("t", b"a", partition=0))
        served.faults_on(m.ProduceRequest, *["drop"] * 1000)
        began = time.monotonic()
        lost = await producer.send("t", b"b", partition=0)
        with pytest.raises(DeliveryTimedOutError, match="t-0 was not acknowledged within delivery_timeout_ms=300"):
            await lost
        assert time.monotonic() - began >= 0.3
        assert producer.buffered_bytes == 0


async def test_full_buffer_waits_for_acknowledgements(served: Served) -> None:
    async with served.producer(linger_ms=0, buffer_bytes=2000) as producer:
        for number in range(50):
            await producer.send("t", number.to_bytes(4, "big") + bytes(200), partition=0)
            assert producer.buffered_bytes <= 2000
    assert [int.from_bytes((value or b"")[:4], "big") for value in served.values()] == list(range(50))


async def test_full_buffer_is_an_error_after_max_block_ms(served: Served) -> None:
    served.faults_on(m.ProduceRequest, trio.Event())
    async with served.producer(linger_ms=0, buffer_bytes=600, max_block_ms=300) as producer:
        await producer.send("t", bytes(400), partition=0)
        with pytest.raises(BufferFullError, match="432 of 600 bytes wait for "):
            await producer.send("t", bytes(400), partition=0)
        served.server.kill()


async def test_a_producer_that_ends_while_a_record_waits_for_room_takes_it_no_more(served: Served) -> None:
    served.faults_on(m.ProducePartition, errors.InvalidProducerEpochError("fenced"))
    async with served.producer(linger_ms=0, buffer_bytes=600) as producer:
        await producer.send("t", bytes(400), partition=0)
        with pytest.raises(errors.InvalidProducerEpochError, match="fenced"):
            await producer.send("t", bytes(400), partition=0)


async def test_leaving_by_an_exception_abandons_what_is_unsettled(served: Served) -> None:
    sent: list[Any] = []
    async with served.client() as client:
        with contextlib.suppress(KeyError):
            async with served.door.producer(client, linger_ms=60_000) as producer:
                sent.append(await producer.send("t", b"a"))
                raise KeyError
        with pytest.raises(ClosedError, match="closed before the record was acknowledged"):
            sent[0].value()
        with pytest.raises(ClosedError, match="the producer is closed"):
            await producer.send("t", b"b")


async def test_without_acks_records_have_no_offset(served: Served) -> None:
    async with served.producer(acks=0) as producer:
        assert await (await producer.send("t", b"a", timestamp_ms=5, partition=0)) == ("t", 0, -1, 5)
        await (await producer.send("t", b"b", partition=0))
    async with served.client() as client:
        await client.metadata(m.MetadataRequest())
    assert served.values() == [b"a", b"b"]
    assert served.requests(m.InitProducerRequest) == []


async def test_unknown_topic_and_partition_are_said_at_once(served: Served) -> None:
    async with served.producer() as producer:
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await producer.send("missing", b"a")
        with pytest.raises(errors.InvalidRequestError, match="partition 2 of t, which has 0 to 1"):
            await producer.send("t", b"a", partition=2)


async def test_requests_stay_within_the_servers_frames(served: Served) -> None:
    served.server.max_frame_bytes = 20_000
    values = [bytes([number]) * 1000 for number in range(100)]
    async with served.producer() as producer:
        sent = [await producer.send("t", value, partition=number % 2) for number, value in enumerate(values)]
        for record in sent:
            await record
        with pytest.raises(errors.RecordTooLargeError, match=r"20\d\d\d bytes for t-1. .* at most max_frame_bytes=20000"):
            await producer.send("t", bytes(20_000), partition=1)
    assert [served.values(partition) for partition in (0, 1)] == [values[0::2], values[1::2]]


async def test_a_server_with_smaller_frames_gets_what_another_one_would_have_got(served: Served) -> None:
    values = [bytes([number]) * 1000 for number in range(40)]
    async with served.producer(linger_ms=60_000, batch_bytes=2_000) as producer:
        sent = [await producer.send("t", value, partition=number % 2) for number, value in enumerate(values)]
        large = await producer.send("t", bytes(20_000), partition=1)
        served.server.kill()
        served.server.max_frame_bytes = 10_000
        await producer.flush()
        for record in sent:
            await record
        with pytest.raises(errors.RecordTooLargeError, match=r"t-1: 20\d{3} bytes in a batch were not sent"):
            await large
    assert [served.values(partition) for partition in (0, 1)] == [values[0::2], values[1::2]]


async def test_a_server_without_producer_ids_is_told_of_with_the_way_out(served: Served) -> None:
    served.faults_on(m.InitProducerRequest, *[errors.UnsupportedVersionError("api is 'init_producer'")] * 3)
    async with served.producer() as producer:
        sent = await producer.send("t", b"a", partition=0)
        with pytest.raises(errors.UnsupportedVersionError, match="enable_idempotence=False"):
            await sent
        with pytest.raises(errors.UnsupportedVersionError):
            await producer.send("t", b"b")
