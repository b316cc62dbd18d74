"""What clients whose requests take long to look into do to those that behave: a measurement, not a test.

    python -m tests.server.heavy_clients

Starts a server process, measures the latency of a Kafka and of a native connection that each produce a record at a time, alone
and beside a client that sends one kind of large batch over and over; by turns, so that the machine's moods fall on all alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from triolog.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.types import CompressionType
from triolog.tools.bench.measuring.machine import read_machine

from tests.server.slow_clients import percentile
from tests.support.kafka_server import TOPIC, batch, produce_request
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.large_batches import empty_headers, many_blocks, tiny_records, zeros
from tests.support.native_stream import NativeStream, native_stream
from tests.support.server_process import ServerFolder

ROUNDS: Final = 3
WARM_UP: Final = 200
HEAVY: Final[dict[str, Callable[[], bytes]]] = {
    "33 million headers in 6 kB": lambda: empty_headers(33_000_000, CompressionType.ZSTD),
    "400,000 tiny records": lambda: tiny_records(400_000, CompressionType.ZSTD),
    "10,000 headers": lambda: empty_headers(10_000),
    "64 MiB of zeros, gzip": lambda: zeros(64 * MIB - 100, CompressionType.GZIP),
    "64 MiB of zeros, zstd": lambda: zeros(64 * MIB - 100, CompressionType.ZSTD),
    "180,000 blocks of snappy": lambda: many_blocks(180_000, CompressionType.SNAPPY),
    "50,000 members of gzip": lambda: many_blocks(50_000, CompressionType.GZIP),
}


async def kafka_latencies_ms(client: KafkaStream, requests: int, into: list[float]) -> None:
    request = produce_request(batch("x" * 100))
    for _ in range(requests):
        begin = trio.current_time()
        answer = await client.call(request, 9)
        assert not answer.responses[0].partition_responses[0].error_code
        into.append((trio.current_time() - begin) * 1000)


async def native_latencies_ms(client: NativeStream, requests: int, into: list[float]) -> None:
    request = messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, batch("x" * 100)),))
    for _ in range(requests):
        begin = trio.current_time()
        assert (await client.call(request)).partitions[0].error is None
        into.append((trio.current_time() - begin) * 1000)


async def attack(client: KafkaStream, records: bytes, count: list[int]) -> None:
    while True:
        await client.call(produce_request(records), 9)
        count[0] += 1


async def measure(kafka_address: tuple[str, int], native_address: tuple[str, int], requests: int) -> None:
    async with connected(kafka_address) as kafka, native_stream(native_address) as native, connected(kafka_address) as heavy:
        rows: dict[str, dict[str, list[float]]] = {}
        counted: dict[str, int] = {}

        async def look(name: str) -> None:
            for protocol, ask in (("kafka", kafka_latencies_ms), ("native", native_latencies_ms)):
                found: list[float] = []
                await ask(kafka if protocol == "kafka" else native, WARM_UP, [])  # type: ignore[arg-type]
                await ask(kafka if protocol == "kafka" else native, requests, found)  # type: ignore[arg-type]
                rows.setdefault(name, {}).setdefault(protocol, []).append(percentile(found, 0.99))

        made = {name: make() for name, make in HEAVY.items()}
        for _ in range(ROUNDS):
            await look("alone")
            for name, records in made.items():
                count = [0]
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(attack, heavy, records, count)
                    await look(name)
                    while not count[0]:
                        await trio.sleep(0.01)
                    nursery.cancel_scope.cancel()
                counted[name] = counted.get(name, 0) + count[0]
                await heavy.stream.aclose()
                heavy.stream = await trio.open_tcp_stream(*kafka_address)
                heavy._asked.clear()
                heavy._received.clear()
    alone = {protocol: statistics.median(found) for protocol, found in rows["alone"].items()}
    for name, found in rows.items():
        parts = []
        for protocol, p99s in found.items():
            p99 = statistics.median(p99s)
            parts.append(f"{protocol} p99 {p99:.2f} ms, {p99 / alone[protocol]:.1f}x")
        print(f"{name:28} {'; '.join(parts)}; {counted.get(name, 0)} answered")  # noqa: T201 - this is what it is for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000, help="of each client that behaves, in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path, ServerFolder(Path(path)) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", "--durability", "os")
        ready = json.loads(server.ready_file.read_text())
        addresses = [ready[name].rpartition(":") for name in ("kafka", "native")]
        print(read_machine(path))  # noqa: T201 - this is what it is for
        trio.run(run, *((host, int(port)) for host, _, port in addresses), options.requests)


async def run(kafka_address: tuple[str, int], native_address: tuple[str, int], requests: int) -> None:
    """Make the topic, then measure."""
    topics = [MetadataRequestTopic(topic_id=bytes(16), name=TOPIC)]
    asking = MetadataRequest(
        topics=topics, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    async with connected(kafka_address) as client:
        await client.call(asking, 9)
    await measure(kafka_address, native_address, requests)


if __name__ == "__main__":
    main()
