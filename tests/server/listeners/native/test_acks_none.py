"""Produce with acks 0: no answer, and what happens when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NEED_DATA, LastError

from tests.support.attackers import NativeStream, both_listeners
from tests.support.brokers import PARTITION, until, values_from
from tests.support.kafka_server import TOPIC, batch


async def produce_unacknowledged(client: NativeStream, topic: str, records: bytes) -> None:
    request = messages.ProduceRequest((messages.ProducePartition(topic, 0, records),), acks=0)
    pieces = client.connection.send_request(99, request.api, messages.VERSION, request.to_body(), expects_answer=False)
    await client.send_raw(b"".join(pieces))


async def test_a_produce_with_acks_0_is_appended_and_never_answered(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server, server.native_client() as client:
        await produce_unacknowledged(client, TOPIC, batch("value"))
        assert (await client.call(messages.MetadataRequest())).correlation_id != 99
        await until(lambda: server.kafka.broker.reader.snapshot(PARTITION).log_end_offset == 1)


@pytest.mark.parametrize(
    ("topic", "records", "code"),
    [
        ("absent", batch("value"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, batch("value")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    ],
)
async def test_a_failed_produce_with_acks_0_ends_the_connection_and_says_why(
    fast_path: Path, topic: str, records: bytes, code: ErrorCode
) -> None:
    async with both_listeners(fast_path) as server, server.native_client() as client:
        await produce_unacknowledged(client, topic, records)
        with trio.fail_after(30):
            while (event := client.connection.next_event()) is NEED_DATA:
                client.connection.receive_data(await client.stream.receive_some())
        assert isinstance(event, LastError)
        assert event.error.code is code
        assert await values_from(server.kafka.broker) == []
