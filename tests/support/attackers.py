"""Peers that take what they can get, and an established client of either protocol beside them.

All are in the test's own trio loop; the two listeners share one broker and one `Admission`, as in a server. The answers of an
established client are counted, not timed: who gets `count` answers while the attackers hold on is served.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.limits import KIB
from triolog.protocol.native import messages
from triolog.protocol.schema.primitives import write_unsigned_varint
from triolog.server.listeners.connections.sockets import Admission, Listener
from triolog.server.listeners.native.calls import native_listener

from tests.support.kafka_server import (
    LOCALHOST,
    TOPIC,
    KafkaServer,
    batch,
    fetch_partition,
    fetch_request,
    kafka_server,
    produced,
)
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import frame
from tests.support.native_stream import NativeStream, native_stream

FETCH_VERSION: Final = 12
UNKNOWN_TAG: Final = 10_000
LONG_MS: Final = 120_000
PIECE_BYTES: Final = 32 * KIB


def padded_fetch(padding_bytes: int, correlation_id: int = 1) -> bytes:
    """Return a Fetch of an empty partition that waits for long, with padding in an unknown tagged field."""
    request = frame(fetch_request(fetch_partition(partition=2), max_wait_ms=LONG_MS), FETCH_VERSION, correlation_id)
    assert request.endswith(b"\0"), "no tagged fields"
    tagged = b"\1" + write_unsigned_varint(UNKNOWN_TAG) + write_unsigned_varint(padding_bytes) + bytes(padding_bytes)
    payload = request[4:-1] + tagged
    return struct.pack(">i", len(payload)) + payload


def unfinished_frame(claimed_bytes: int, sent_bytes: int) -> bytes:
    """The beginning of a request, whose rest never comes."""
    return struct.pack(">i", claimed_bytes) + struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1) + bytes(sent_bytes - 14)


@attrs.define(eq=False)
class BothListeners:
    """A broker that listens for both protocols. Owner: the test."""

    kafka: KafkaServer
    native: Listener
    native_address: tuple[str, int]

    @property
    def admission(self) -> Admission:
        return self.kafka.admission

    def kafka_client(self, **options: Any) -> Any:
        return self.kafka.connected(**options)

    def native_client(self, **options: Any) -> Any:
        return native_stream(self.native_address, **options)


@asynccontextmanager
async def both_listeners(path: Path, *, idle_timeout_s: float = 600.0, **settings: Any) -> AsyncIterator[BothListeners]:
    """A server with the topic TOPIC of three partitions; settings are `running_broker`'s."""
    async with kafka_server(path, **settings) as kafka:
        await kafka.broker.topics.create(TOPIC, 3)
        native = native_listener(kafka.broker, LOCALHOST, kafka.admission, idle_timeout_s=idle_timeout_s)
        address = await kafka.nursery.start(native.run)
        yield BothListeners(kafka, native, address)


@attrs.define(eq=False)
class Established:
    """A client of each protocol that was there before the attackers."""

    kafka: KafkaStream
    native: NativeStream

    async def are_served(self, count: int) -> None:
        """Each gets so many answers: a record is stored and read, over both protocols."""
        for number in range(count):
            offset = await produced(self.kafka, batch(f"{number}"))
            answer = await self.kafka.call(fetch_request(fetch_partition(offset)), 11)
            assert answer.responses[0].partitions[0].records
            partition = messages.ProducePartition(TOPIC, 1, batch(f"{number}"))
            await self.native.call(messages.ProduceRequest((partition,)))


@asynccontextmanager
async def established(server: BothListeners) -> AsyncIterator[Established]:
    async with server.kafka_client() as kafka, server.native_client() as native:
        clients = Established(kafka, native)
        await clients.are_served(1)
        yield clients


@asynccontextmanager
async def kafka_peers(server: BothListeners, count: int, **options: Any) -> AsyncIterator[list[KafkaStream]]:
    """Connections that have sent nothing yet."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server.kafka_client(**options)) for _ in range(count)]


async def send_as_taken(peer: KafkaStream | NativeStream, data: bytes) -> None:
    """Send for as long as the server takes it, and until it ends the connection."""
    try:
        for start in range(0, len(data), PIECE_BYTES):
            await peer.stream.send_all(data[start : start + PIECE_BYTES])
    except trio.BrokenResourceError:
        """Given up by the server."""
