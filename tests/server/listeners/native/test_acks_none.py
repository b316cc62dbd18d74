"""Produce with acks 0: no answer, and what happens when it fails."""

from __future__ import annotations

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native.connection import NEED_DATA, LastError, NativeConnection, Response
from triolog.protocol.native.messages import HelloRequest, ProducePartition, ProduceRequest
from triolog.protocol.native.state import Role
from triolog.protocol.records.builder import build_batch
from triolog.server.embedded import EmbeddedBroker, open_broker

BATCH = build_batch([(1_700_000_000_000, b"key", b"value", ())])


async def _next(stream: trio.SocketStream, connection: NativeConnection) -> object:
    while (event := connection.next_event()) is NEED_DATA:
        connection.receive_data(await stream.receive_some())
    return event


async def _produce_unacknowledged(
    broker: EmbeddedBroker, topic: str, records: bytes
) -> tuple[trio.SocketStream, NativeConnection]:
    assert broker.native is not None
    stream = await trio.open_tcp_stream(*broker.native)
    connection = NativeConnection(Role.CLIENT)
    await stream.send_all(b"".join(connection.send_request(1, "hello", 1, HelloRequest("test").to_body())))
    assert isinstance(await _next(stream, connection), Response)
    request = ProduceRequest((ProducePartition(topic, 0, records),), acks=0)
    pieces = connection.send_request(2, "produce", 1, request.to_body(), expects_answer=False)
    await stream.send_all(b"".join(pieces))
    return stream, connection


async def test_a_produce_with_acks_0_is_appended_and_never_answered() -> None:
    with trio.fail_after(30):
        async with open_broker() as broker:
            await broker.create_topic("t")
            stream, connection = await _produce_unacknowledged(broker, "t", BATCH)
            assert [record.value for record in await broker.fetch("t", max_wait_s=20)] == [b"value"]
            await stream.send_all(b"".join(connection.send_request(3, "metadata", 1, {})))
            event = await _next(stream, connection)
            assert isinstance(event, Response)
            assert event.correlation_id == 3
            await stream.aclose()


@pytest.mark.parametrize(
    ("topic", "records", "code"),
    [("absent", BATCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("t", BATCH[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE)],
)
async def test_a_failed_produce_with_acks_0_ends_the_connection_and_says_why(
    topic: str, records: bytes, code: ErrorCode
) -> None:
    with trio.fail_after(30):
        async with open_broker() as broker:
            await broker.create_topic("t")
            stream, connection = await _produce_unacknowledged(broker, topic, records)
            event = await _next(stream, connection)
            assert isinstance(event, LastError)
            assert event.error.code is code
            assert broker.describe_topic("t").partitions[0].log_end_offset == 0
            await stream.aclose()
