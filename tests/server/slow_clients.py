"""What clients that send a byte a second do to one that behaves: a measurement, not a test.

    python -m tests.server.slow_clients --connections 1000

Starts a server process, measures the latency of one connection that produces and fetches a record in turn, alone and beside
connections that each send a byte of a request every second; both by turns, so that the machine's moods fall on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import tempfile
from pathlib import Path
from typing import Final

import trio
from triolog.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from triolog.tools.bench.measuring.machine import read_machine

from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.server_process import ServerFolder

BYTE_S: Final = 1.0
ROUNDS: Final = 3
WARM_UP: Final = 200


async def trickle(address: tuple[str, int], late_s: float, *, task_status: trio.TaskStatus[None]) -> None:
    """One byte a second of a request of 64 KiB, which is never whole."""
    async with connected(address) as client:
        await client.send_raw(struct.pack(">i", 65_536))
        task_status.started()
        await trio.sleep(late_s)
        while True:
            await client.send_raw(b"\0")
            await trio.sleep(BYTE_S)


async def latencies_ms(client: KafkaStream, requests: int) -> list[float]:
    """Of produces and fetches of one record, in turn."""
    found = []
    records = batch("x" * 100)
    for number in range(requests):
        begin = trio.current_time()
        if number % 2:
            await client.call(fetch_request(fetch_partition(0, max_bytes=100)), 12)
        else:
            answer = await client.call(produce_request(records), 9)
            assert not answer.responses[0].partition_responses[0].error_code
        found.append((trio.current_time() - begin) * 1000)
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(address: tuple[str, int], connections: int, requests: int) -> None:
    rows: dict[str, list[list[float]]] = {"alone": [], "beside": []}
    async with connected(address) as client:
        for _ in range(ROUNDS):
            await latencies_ms(client, WARM_UP)
            rows["alone"].append(await latencies_ms(client, requests))
            async with trio.open_nursery() as nursery:
                for number in range(connections):
                    await nursery.start(trickle, address, BYTE_S * number / connections)
                await latencies_ms(client, WARM_UP)  # the server accepts the last of them meanwhile
                rows["beside"].append(await latencies_ms(client, requests))
                nursery.cancel_scope.cancel()
    p99 = {name: statistics.median(percentile(each, 0.99) for each in found) for name, found in rows.items()}
    lines = []
    for name, found in rows.items():
        p50 = statistics.median(percentile(each, 0.5) for each in found)
        lines.append(f"{name:8} p50 {p50:.3f} ms, p99 {p99[name]:.3f} ms (median of {ROUNDS} rounds of {requests} requests)")
    ratio = p99["beside"] / p99["alone"]
    lines.append(f"p99 beside {connections} clients that send a byte a second: {ratio:.2f}x, at most 2x wanted")
    print("\n".join(lines))  # noqa: T201 - this is what it is for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=2000, help="of the client that behaves, in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path, ServerFolder(Path(path)) as folder:
        limit = {"TRIOLOG_MAX_CONNECTIONS": str(options.connections + 100)}
        server = folder.start("--kafka", "127.0.0.1:0", "--durability", "os", extra_environment=limit)
        host, _, port = json.loads(server.ready_file.read_text())["kafka"].rpartition(":")
        print(read_machine(path))  # noqa: T201 - this is what it is for
        trio.run(run, (host, int(port)), options.connections, options.requests)


async def run(address: tuple[str, int], connections: int, requests: int) -> None:
    """Make the topic, then measure."""
    await make_topics(address, TOPIC)
    await measure(address, connections, requests)


async def make_topics(address: tuple[str, int], *names: str) -> None:
    """By asking for them."""
    topics = [MetadataRequestTopic(topic_id=bytes(16), name=name) for name in names]
    asking = MetadataRequest(
        topics=topics, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    async with connected(address) as client:
        await client.call(asking, 9)


if __name__ == "__main__":
    main()
