"""A broker inside a running interpreter: its starts, timed up to the first acknowledged append, and its appends and fetches."""

from __future__ import annotations

import tempfile
import time

import trio

from ....server.embedded import BlockingBroker, open_broker
from ..measuring.measure import percentile

WARM_UP = 3
VALUE = bytes(100)


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


def append_and_fetch(*, directory: str, calls: int, rounds: int) -> dict[str, list[float]]:
    """p50 and p99 in us of appends and of fetches of one record, one at a time from the program's own task, in each round
    after one that warms."""

    async def measure() -> dict[str, list[float]]:
        answer: dict[str, list[float]] = {f"{what}_{share}_us": [] for what in ("append", "fetch") for share in ("p50", "p99")}
        async with open_broker(f"{directory}/embedded", native=None, durability="os", config={"retention.ms": "-1"}) as broker:
            await broker.create_topic("one")
            await broker.append("one", [VALUE])
            await broker.create_topic("many")
            for number in range(1 + rounds):
                times: dict[str, list[float]] = {"append": [], "fetch": []}
                for _ in range(calls):
                    started = time.perf_counter()
                    await broker.append("many", [VALUE])
                    appended = time.perf_counter()
                    records = await broker.fetch("one")
                    fetched = time.perf_counter()
                    assert len(records) == 1
                    times["append"].append((appended - started) * 1e6)
                    times["fetch"].append((fetched - appended) * 1e6)
                if number:
                    for what, taken in times.items():
                        answer[f"{what}_p50_us"].append(percentile(taken, 0.5))
                        answer[f"{what}_p99_us"].append(percentile(taken, 0.99))
        return answer

    return trio.run(measure)
