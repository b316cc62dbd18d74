"""What peers that hold memory and places do to a client that behaves: a measurement, not a test.

    python -m tests.server.attack_latency

Starts a server process with 32 MiB for requests and as much for answers, measures the latency of one connection that produces
and fetches a record in turn, alone and beside each kind of attack, by turns, so that the machine's moods fall on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import trio
from triolog.protocol.limits import MIB
from triolog.tools.bench.measuring.machine import read_machine

from tests.server.slow_clients import latencies_ms, make_topics, percentile
from tests.support.attackers import FETCH_VERSION, LONG_MS, padded_fetch, send_as_taken, unfinished_frame
from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produced
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import frame
from tests.support.server_process import ServerFolder

ROUNDS: Final = 3
WARM_UP: Final = 200
LIMIT_BYTES: Final = 32 * MIB
PEERS: Final = 25

Attack = Callable[[KafkaStream, trio.Nursery], Awaitable[None]]
"""Has one connection do its worst; what goes on beside it is in the nursery."""


async def pad(peer: KafkaStream, nursery: trio.Nursery) -> None:
    """A fetch that waits, with padding that nobody knows."""
    nursery.start_soon(send_as_taken, peer, padded_fetch(8 * MIB))


async def begin(peer: KafkaStream, nursery: trio.Nursery) -> None:
    """A frame that is never whole."""
    nursery.start_soon(send_as_taken, peer, unfinished_frame(50 * MIB, 40 * MIB))


async def never_read(peer: KafkaStream, nursery: trio.Nursery) -> None:
    """Fetches whose answers are not read."""
    asked = fetch_request(fetch_partition(max_bytes=50 * MIB), topic="large", max_bytes=50 * MIB)
    nursery.start_soon(send_as_taken, peer, frame(asked, FETCH_VERSION, 1) * 50)


async def leave(peer: KafkaStream, nursery: trio.Nursery) -> None:
    """A fetch that waits, whose peer goes away, once a second."""
    await peer.send_raw(frame(fetch_request(max_wait_ms=LONG_MS), FETCH_VERSION, 1))

    async def again() -> None:
        address = peer.stream.socket.getpeername()
        while True:
            async with connected(address) as other:
                await other.send_raw(frame(fetch_request(max_wait_ms=LONG_MS), FETCH_VERSION, 1))
            await trio.sleep(1)

    nursery.start_soon(again)


ATTACKS: Final[Mapping[str, Attack]] = {
    "padded fetches that wait": pad,
    "frames that are never whole": begin,
    "readers that never read": never_read,
    "peers that leave": leave,
}


async def measure(address: tuple[str, int], requests: int) -> None:
    async with connected(address) as client:
        for _ in range(40):
            await produced(client, batch(bytes(900_000)), topic="large")
        for name, attack in ATTACKS.items():
            alone, beside = [], []
            for _ in range(ROUNDS):
                await latencies_ms(client, WARM_UP)
                alone.append(percentile(await latencies_ms(client, requests), 0.99))
                async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
                    for _ in range(PEERS):
                        await attack(await stack.enter_async_context(connected(address)), nursery)
                    await latencies_ms(client, WARM_UP)
                    beside.append(percentile(await latencies_ms(client, requests), 0.99))
                    nursery.cancel_scope.cancel()
            ratio = statistics.median(beside) / statistics.median(alone)
            print(  # noqa: T201 - this is what it is for
                f"{name:28} p99 alone {statistics.median(alone):.2f} ms, beside {PEERS} of them "
                f"{statistics.median(beside):.2f} ms: {ratio:.2f}x, at most 2x wanted"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000, help="of the client that behaves, in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path, ServerFolder(Path(path)) as folder:
        limit = {"TRIOLOG_MAX_BROKER_IN_FLIGHT_BYTES": str(LIMIT_BYTES)}
        server = folder.start("--kafka", "127.0.0.1:0", "--durability", "os", extra_environment=limit)
        host, _, port = json.loads(server.ready_file.read_text())["kafka"].rpartition(":")
        print(read_machine(path))  # noqa: T201 - this is what it is for
        trio.run(run, (host, int(port)), options.requests)
        print(f"largest resident memory {server.memory_bytes('VmHWM') / MIB:.0f} MiB")  # noqa: T201 - this is what it is for


async def run(address: tuple[str, int], requests: int) -> None:
    """Make the topics, then measure."""
    await make_topics(address, TOPIC, "large")
    await measure(address, requests)


if __name__ == "__main__":
    main()
