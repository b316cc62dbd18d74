"""Connections as fast as one generator makes them, each reset as soon as it is there, beside a client that behaves.

    python -m tests.server.connect_storm --seconds 10

The generator is a process of its own. Its connections come from several addresses of the loopback, so that it does not run out
of ports. What is measured: connections a second, the latency of the client that behaves, what of memory and sockets is left.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import attrs
from triolog.tools.bench.measuring.machine import read_machine

from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_wire import KafkaWire
from tests.support.server_process import DEADLINE_S, POLL_S, ServerFolder, ServerProcess

SOURCES: Final = 16
"""Addresses 127.0.0.2 and on."""
WARM_UP: Final = 200
LEAST_MADE: Final = 100
LEAST_ANSWERS: Final = 3
"""A storm goes on until both are reached, however slow the machine is."""
GENERATOR: Final = """
import select, socket, struct, sys
host, port, sources, least = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
reset, made, refused, number = struct.pack("ii", 1, 0), 0, 0, 0
while made < least or number % 64 or not select.select([0], [], [], 0)[0]:
    number += 1
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        connection.setblocking(False)
        try:
            connection.bind((f"127.0.0.{2 + number % sources}", 0))
            connection.connect_ex((host, port))
            connection.getpeername()
        except OSError:
            refused += 1
        else:
            made += 1
print(made, refused)
"""
"""A connection that is not there at once found the queue of the listener full. It ends when its standard input does."""


@attrs.frozen(kw_only=True)
class Storm:
    """What was seen."""

    made: int
    refused: int
    """By the kernel, whose queue was full."""
    seconds: float
    alone_ms: list[float]
    """Latencies of the client that behaves, before."""
    beside_ms: list[float]
    """The same during the storm."""
    left_sockets: int
    left_bytes: int

    @property
    def rate(self) -> float:
        return self.made / self.seconds


def kafka_address(server: ServerProcess) -> tuple[str, int]:
    host, _, port = json.loads(server.ready_file.read_text())["kafka"].rpartition(":")
    return host, int(port)


def ask(client: KafkaWire, number: int) -> float:
    """Milliseconds that a produce or a fetch of one record takes; they are by turns."""
    begin = time.perf_counter()
    if number % 2:
        [answer] = client.call(fetch_request(fetch_partition(0, max_bytes=100)), 12).responses
        assert not answer.partitions[0].error_code
    else:
        [answer] = client.call(produce_request(batch("x" * 100)), 9).responses
        assert not answer.partition_responses[0].error_code
    return (time.perf_counter() - begin) * 1000


def storm(server: ServerProcess, client: KafkaWire, seconds: float) -> Storm:
    """A storm that lasts at least `seconds`. Returns when the server has as many sockets as before, or a minute later."""
    alone = [ask(client, number) for number in range(WARM_UP * 2)][WARM_UP:]
    before, memory = server.open_sockets(), server.memory_bytes()
    host, port = kafka_address(server)
    command = [sys.executable, "-I", "-c", GENERATOR, host, str(port), str(SOURCES), str(LEAST_MADE)]
    beside: list[float] = []
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as generator:
        assert generator.stdin is not None
        assert generator.stdout is not None
        while generator.poll() is None:
            beside.append(ask(client, len(beside)))
            if len(beside) >= LEAST_ANSWERS and time.monotonic() - begin >= seconds:
                generator.stdin.close()
        lasted = time.monotonic() - begin
        made, refused = map(int, generator.stdout.read().split())
    deadline = time.monotonic() + DEADLINE_S
    while (left := server.open_sockets() - before) > 0 and time.monotonic() < deadline:
        time.sleep(POLL_S)
    grown = server.memory_bytes() - memory
    return Storm(
        made=made,
        refused=refused,
        seconds=lasted,
        alone_ms=alone,
        beside_ms=beside,
        left_sockets=left,
        left_bytes=grown,
    )


def percentiles(values: list[float]) -> str:
    """In words. The median and the 99th of a hundred."""
    found = [sorted(values)[min(len(values) - 1, int(len(values) * share))] for share in (0.5, 0.99)]
    return "p50 {:.2f} ms, p99 {:.2f} ms".format(*found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path, ServerFolder(Path(path)) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", "--durability", "os")
        with KafkaWire.connect(kafka_address(server)) as client:
            client.call(create_topics(new_topic(TOPIC)), 7)
            seen = storm(server, client, options.seconds)
        lines = [
            str(read_machine(path)),
            f"{seen.rate:,.0f} connections a second, made and reset; {seen.refused:,} found the queue full",
            f"alone   {percentiles(seen.alone_ms)}",
            f"beside  {percentiles(seen.beside_ms)}, at most 100 wanted",
            f"left    {seen.left_sockets} sockets, {seen.left_bytes / 1024:,.0f} KiB",
        ]
        print("\n".join(lines))  # noqa: T201 - this is what it is for


if __name__ == "__main__":
    main()
