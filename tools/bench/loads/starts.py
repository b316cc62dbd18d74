"""Starts of a broker inside a running interpreter, timed up to the first acknowledged append."""

from __future__ import annotations

import tempfile
import time

import trio

from ....server.embedded import BlockingBroker, open_broker

WARM_UP = 3


def start_in_trio(*, directory: str, count: int) -> dict[str, list[float]]:
    """Milliseconds of each start, in a trio program; the directory is temporary and lies in `directory`."""
    tempfile.tempdir = directory

    async def start_all() -> list[float]:
        times = []
        for _ in range(WARM_UP + count):
            started = time.perf_counter()
            async with open_broker() as broker:
                await broker.create_topic("first")
                await broker.append("first", [b"record"])
                times.append((time.perf_counter() - started) * 1000)
        return times[WARM_UP:]

    return {"times_ms": trio.run(start_all)}


def start_blocking(*, directory: str, count: int) -> dict[str, list[float]]:
    """Start a BlockingBroker `count` times, as a program without trio does; milliseconds up to the first stored record."""
    tempfile.tempdir = directory
    times = []
    for _ in range(WARM_UP + count):
        started = time.perf_counter()
        with BlockingBroker() as broker:
            broker.create_topic("first")
            broker.append("first", [b"record"])
            times.append((time.perf_counter() - started) * 1000)
    return {"times_ms": times[WARM_UP:]}
