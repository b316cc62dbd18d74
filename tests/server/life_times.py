"""How long a fake takes to be started, reset, copied and forked: `python -m tests.server.life_times`. Docs quote it."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY

KAFKA = Address("127.0.0.1", 0)
RECORDS = 1000
"""In each topic, of 100 bytes."""
ROUNDS = 50


def report(what: str, call: Callable[[], None]) -> None:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1000)
    sys.stdout.write(f"{what:32} median {statistics.median(times):6.1f} ms, longest {max(times):6.1f} ms\n")


def report_life(topics: dict[str, int]) -> None:
    count = sum(topics.values())
    with (
        triolog.blocking.open(MEMORY, kafka=KAFKA, topics=topics) as broker,
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
    ):
        for topic in topics:
            broker.log(topic).append([b"x" * 100] * RECORDS)
        targets = iter(range(ROUNDS))

        def fork() -> None:
            with broker.fork():
                """Started and stopped."""

        report(f"snapshot, {count} partitions", lambda: broker.snapshot(Path(folder) / str(next(targets))))
        report(f"fork and its stop, {count} partitions", fork)
        report(f"reset, {count} partitions", broker.reset)


def start_and_stop() -> None:
    with triolog.blocking.open(MEMORY, kafka=KAFKA):
        """Nothing is done with it."""


if __name__ == "__main__":
    report("start and stop", start_and_stop)
    report_life({"topic": 1})
    report_life({f"topic-{number}": 3 for number in range(5)})
