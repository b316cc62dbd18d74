"""What peers that do their worst do to clients that behave: a measurement, not a test.

    python -m tests.server.latency slow

Starts a server process and measures the latency of a connection of each protocol that produces or fetches a record at a time,
alone and beside the peers, by turns, so that the machine's moods fall on both. `slow`: connections that send a byte a second;
`heavy`: one that sends batches which take long to look into; `holding`: peers that hold memory and places; `storm`: connections
as fast as this process makes them, each reset as soon as it is there.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import struct
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import attrs
import trio
from triolog.protocol.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.types import CompressionType
from triolog.tools.bench.measuring.machine import read_machine

from tests.support.attackers import FETCH_VERSION, LONG_MS, padded_fetch, send_as_taken, unfinished_frame
from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produce_request, produced
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import frame
from tests.support.native_stream import NativeStream, native_stream
from tests.support.record_batches import empty_headers, many_blocks, tiny_records, zeros
from tests.support.server_process import ServerFolder

ROUNDS: Final = 3
WARM_UP: Final = 200
RECORD: Final = batch("x" * 100)

Peer = Callable[[KafkaStream], Awaitable[object]]
"""Has one connection do its worst, until it is cancelled."""


async def trickle(peer: KafkaStream) -> None:
    """One byte a second of a request of 64 KiB, which is never whole."""
    await peer.send_raw(struct.pack(">i", 65_536))
    await trio.sleep(random.random())
    while True:
        await trio.sleep(1)
        await peer.send_raw(b"\0")


async def leave(peer: KafkaStream) -> None:
    """A fetch that waits, whose peer goes away, once a second."""
    waits = frame(fetch_request(max_wait_ms=LONG_MS), FETCH_VERSION, 1)
    await peer.send_raw(waits)
    while True:
        async with connected(peer.stream.socket.getpeername()) as other:
            await other.send_raw(waits)
        await trio.sleep(1)


async def storm(peer: KafkaStream) -> None:
    """From several addresses of the loopback: one would run out of ports."""
    address = peer.stream.socket.getpeername()
    for number in count():
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.setblocking(False)
            connection.bind((f"127.0.0.{2 + number % 16}", 0))
            connection.connect_ex(address)
        await trio.lowlevel.checkpoint()


def sending(data: bytes) -> Peer:
    return partial(send_as_taken, data=data)


def producing(make: Callable[[], bytes]) -> Peer:
    async def produce(peer: KafkaStream) -> None:
        request = produce_request(make())
        while True:
            await peer.call(request, 9)

    return produce


NEVER_READ: Final = fetch_request(fetch_partition(max_bytes=50 * MIB), topic="large", max_bytes=50 * MIB)
PEERS: Final[dict[str, tuple[int, dict[str, Peer]]]] = {
    "slow": (1000, {"a byte a second": trickle}),
    "storm": (1, {"connections that are reset": storm}),
    "heavy": (
        1,
        {
            "33 million headers in 6 kB": producing(partial(empty_headers, 33_000_000, CompressionType.ZSTD)),
            "400,000 tiny records": producing(partial(tiny_records, 400_000, CompressionType.ZSTD)),
            "10,000 headers": producing(partial(empty_headers, 10_000)),
            "64 MiB of zeros, gzip": producing(partial(zeros, 64 * MIB - 100, CompressionType.GZIP)),
            "64 MiB of zeros, zstd": producing(partial(zeros, 64 * MIB - 100, CompressionType.ZSTD)),
            "180,000 blocks of snappy": producing(partial(many_blocks, 180_000, CompressionType.SNAPPY)),
            "50,000 members of gzip": producing(partial(many_blocks, 50_000, CompressionType.GZIP)),
        },
    ),
    "holding": (
        25,
        {
            "padded fetches that wait": sending(padded_fetch(8 * MIB)),
            "frames that are never whole": sending(unfinished_frame(50 * MIB, 40 * MIB)),
            "readers that never read": sending(frame(NEVER_READ, FETCH_VERSION, 1) * 50),
            "peers that leave": leave,
        },
    ),
}
"""How many connections, and what they do."""


@attrs.frozen
class Clients:
    """Those that behave. Owner: the measurement."""

    kafka: KafkaStream
    native: NativeStream
    requests: int

    async def p99s_ms(self) -> tuple[float, float]:
        """Of requests by either protocol, after some to warm up."""
        return await self._p99_ms(self._ask_kafka), await self._p99_ms(self._ask_native)

    async def _p99_ms(self, ask: Callable[[int], Awaitable[None]]) -> float:
        found = []
        for number in range(WARM_UP + self.requests):
            begin = trio.current_time()
            await ask(number)
            found.append((trio.current_time() - begin) * 1000)
        return sorted(found[WARM_UP:])[self.requests * 99 // 100]

    async def _ask_kafka(self, number: int) -> None:
        if number % 2:
            await self.kafka.call(fetch_request(fetch_partition(0, max_bytes=100)), FETCH_VERSION)
        else:
            await produced(self.kafka, RECORD)

    async def _ask_native(self, number: int) -> None:
        request = messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, RECORD),))
        assert (await self.native.call(request)).partitions[0].error is None


async def measure(kafka: tuple[str, int], native: tuple[str, int], kind: str, requests: int) -> None:
    connections, peers = PEERS[kind]
    async with connected(kafka) as client, native_stream(native) as other:
        topics = [MetadataRequestTopic(topic_id=bytes(16), name=name) for name in (TOPIC, "large")]
        await client.call(MetadataRequest(topics=topics), 9)
        for _ in range(40 * (kind == "holding")):
            await produced(client, batch(bytes(900_000)), topic="large")
        clients = Clients(client, other, requests)
        for name, peer in peers.items():
            alone, beside = [], []
            for _ in range(ROUNDS):
                alone.append(await clients.p99s_ms())
                async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
                    for _ in range(connections):
                        nursery.start_soon(peer, await stack.enter_async_context(connected(kafka)))
                    beside.append(await clients.p99s_ms())
                    nursery.cancel_scope.cancel()
            parts = []
            for protocol, *found in zip(("kafka", "native"), zip(*alone, strict=True), zip(*beside, strict=True), strict=True):
                before, after = map(statistics.median, found)
                parts.append(
                    f"{protocol} p99 alone {before:.2f} ms, beside {connections} {after:.2f} ms, {after / before:.2f}x"
                )
            print(f"{name:28} {'; '.join(parts)}")  # noqa: T201 - this is what it is for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=PEERS)
    parser.add_argument("--requests", type=int, default=1000, help="of each client that behaves, in each round")
    options = parser.parse_args()
    limits = {"TRIOLOG_MAX_CONNECTIONS": "1100"}
    limits |= {"TRIOLOG_MAX_BROKER_IN_FLIGHT_BYTES": str(32 * MIB)} if options.kind == "holding" else {}
    with tempfile.TemporaryDirectory() as path, ServerFolder(Path(path)) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", "--durability", "os", extra_environment=limits)
        print(read_machine(path))  # noqa: T201 - this is what it is for
        trio.run(measure, server.address_of("kafka"), server.address, options.kind, options.requests)
        print(f"largest resident memory {server.memory_bytes('VmHWM') / MIB:.0f} MiB")  # noqa: T201 - this is what it is for


if __name__ == "__main__":
    main()
