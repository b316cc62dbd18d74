"""A broker in a program: how long its first record takes, what it adds to the memory, and what a call takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any, Final

import trio

from ....protocol.limits import MIB
from ....server.embedded import aio, opening
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.report import Line, RowResult, at_most, percentile

INTERPRETERS: Final = 10
CALLS: Final = 5_000
VALUE: Final = bytes(100)
OPTIONS: Final[dict[str, Any]] = {
    "durability": "os",
    "config": {"retention.ms": "-1"},
    "topics": ["many", "one"],
}

FIRST_APPEND: Final = """
import sys, time

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

before, begun = resident(), time.perf_counter()
import triolog
with triolog.blocking.open(native="127.0.0.1:0" if sys.argv[1] else None, topics=["first"]) as broker:
    broker.append("first", [b"record"])
    print((time.perf_counter() - begun) * 1000, (resident() - before) * 4096)
"""
"""The first record of an interpreter that has loaded nothing: milliseconds, and bytes above what it took before."""


def embedded_start(bench: Bench) -> RowResult:
    """Start new interpreters, imports included; compiled modules exist. A temporary directory."""
    lines = []
    for name, listens in (("no listener", ""), ("with a listener", "listens")):
        bench.say(f"interpreters that are started for it, {name}")
        times, sizes = [], []
        for number in range(1 + bench.scale.count(INTERPRETERS, least=1)):
            command = [sys.executable, "-c", FIRST_APPEND, listens]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            if number:
                times.append(float(said[0]))
                sizes.append(float(said[1]) / MIB)
        target_ms, target_mib = (None, None) if listens else (at_most(250, "ms"), at_most(30, "MiB"))
        lines.append(Line(f"with the import, {name}", "ms", times, target_ms))
        lines.append(Line(f"memory above bare Python, {name}", "MiB", sizes, target_mib))
    return RowResult("in-process broker: start to first acknowledged append", lines)


def in_process(bench: Bench) -> RowResult:
    """Append and fetch one record a call, without sockets; `os`."""
    calls = bench.scale.count(CALLS, least=20)
    lines = []
    for program, targets in (("trio", (40, 40)), ("asyncio", (150, None))):
        with bench.workspace() as directory:
            bench.say(f"appending and fetching in a program with {program}")
            load = {"directory": directory, "calls": calls, "rounds": bench.scale.rounds, "program": program}
            answer = run_load(append_and_fetch, **load)
        for what, bound in zip(("append", "fetch"), targets, strict=True):
            target = None if bound is None else at_most(bound, "us")
            lines.append(Line(f"{program}: {what}, p50", "us", answer[f"{what}_p50_us"], target))
            lines.append(Line(f"{program}: {what}, p99", "us", answer[f"{what}_p99_us"]))
    note = f"{calls:,} of each a round, one at a time, from a task of the program"
    return RowResult("in-process broker: one record a call, page cache", lines, [note])


def append_and_fetch(*, directory: str, calls: int, rounds: int, program: str) -> dict[str, list[float]]:
    """Return p50 and p99 in us of appends and of fetches of one record in each round after one that warms."""
    opened = opening.open if program == "trio" else aio.open
    answer: dict[str, list[float]] = {f"{what}_{share}_us": [] for what in ("append", "fetch") for share in ("p50", "p99")}

    async def measure() -> None:
        async with opened(directory, **OPTIONS) as broker:
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

    if program == "trio":
        trio.run(measure)
    else:
        asyncio.run(measure())
    return answer
