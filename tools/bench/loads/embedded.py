"""A broker inside a running interpreter: its starts up to the first acknowledged append, and its appends and fetches; and
an interpreter that is started for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

import trio

from ....protocol.limits import MIB
from ....server.embedded import BlockingBroker, aio, open_broker
from ..measuring.measure import percentile

WARM_UP = 3
VALUE = bytes(100)
OPTIONS: Final[dict[str, Any]] = {"native": None, "durability": "os", "config": {"retention.ms": "-1"}, "topics": ["many"]}

FIRST_APPEND: Final = """
import sys, time

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

before, begun = resident(), time.perf_counter()
from triolog.server.embedded import LOCALHOST, BlockingBroker
with BlockingBroker(native=LOCALHOST if sys.argv[1] else None, topics=["first"]) as broker:
    broker.append("first", [b"record"])
    print((time.perf_counter() - begun) * 1000, (resident() - before) * 4096)
"""
"""The first record of an interpreter that has loaded nothing: milliseconds, and bytes above what it took before."""


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
        async with open_broker(f"{directory}/embedded", **OPTIONS) as broker:
            await broker.create_topic("one")
            await broker.append("one", [VALUE])
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


def append_in_asyncio(*, directory: str, calls: int, rounds: int) -> dict[str, list[float]]:
    """The same of appends from a task of an asyncio program."""

    async def measure() -> dict[str, list[float]]:
        answer: dict[str, list[float]] = {"append_p50_us": [], "append_p99_us": []}
        async with aio.open_broker(f"{directory}/asyncio", **OPTIONS) as broker:
            for number in range(1 + rounds):
                times = []
                for _ in range(calls):
                    started = time.perf_counter()
                    await broker.append("many", [VALUE])
                    times.append((time.perf_counter() - started) * 1e6)
                if number:
                    answer["append_p50_us"].append(percentile(times, 0.5))
                    answer["append_p99_us"].append(percentile(times, 0.99))
        return answer

    return asyncio.run(measure())


def append_blocking(*, directory: str, calls: int, rounds: int) -> dict[str, list[float]]:
    """The same of appends from the thread of a program with neither."""
    answer: dict[str, list[float]] = {"append_p50_us": [], "append_p99_us": []}
    with BlockingBroker(f"{directory}/blocking", **OPTIONS) as broker:
        for number in range(1 + rounds):
            times = []
            for _ in range(calls):
                started = time.perf_counter()
                broker.append("many", [VALUE])
                times.append((time.perf_counter() - started) * 1e6)
            if number:
                answer["append_p50_us"].append(percentile(times, 0.5))
                answer["append_p99_us"].append(percentile(times, 0.99))
    return answer


def first_appends(*, count: int, listens: bool) -> dict[str, list[float]]:
    """Milliseconds and MiB of the first append of new interpreters, imports included; compiled modules are there."""
    times, sizes = [], []
    for number in range(1 + count):
        command = [sys.executable, "-c", FIRST_APPEND, "listens" if listens else ""]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if number:
            taken_ms, size_bytes = map(float, said.split())
            times.append(taken_ms)
            sizes.append(size_bytes / MIB)
    return {"times_ms": times, "sizes_mib": sizes}
