"""Rows 1, 2 and 21: from nothing to the first acknowledged append, inside a program and as a server; and what a call inside a
program takes."""

from __future__ import annotations

import tempfile
import time

from ..loads.embedded import (
    append_and_fetch,
    append_blocking,
    append_in_asyncio,
    first_appends,
    start_blocking,
    start_in_trio,
)
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, at_most
from ..measuring.server import serving
from ..measuring.wire import Wire, batch_of

EMBEDDED_STARTS = 20
INTERPRETERS = 10
SERVER_STARTS = 11
CALLS = 5_000


def embedded_start(bench: Bench) -> RowResult:
    """A temporary directory, `os`; imports are done, the listener is on a port."""
    count = bench.scale.count(EMBEDDED_STARTS, least=2)
    with bench.workspace() as directory:
        bench.say("starts inside a trio program")
        in_trio = run_load(start_in_trio, directory=directory, count=count)["times_ms"]
        bench.say("starts inside a program without trio")
        blocking = run_load(start_blocking, directory=directory, count=count)["times_ms"]
        bench.say("interpreters that are started for it")
        firsts = bench.scale.count(INTERPRETERS, least=1)
        alone = run_load(first_appends, count=firsts, listens=False)
        listening = run_load(first_appends, count=firsts, listens=True)
    return RowResult(
        1,
        "in-process broker: start to first acknowledged append",
        [
            Line("open_broker, trio", "ms", in_trio, at_most(15, "ms")),
            Line("BlockingBroker, a thread of its own", "ms", blocking),
            Line("with the import, no listener", "ms", alone["times_ms"], at_most(250, "ms")),
            Line("with the import, as it is by default", "ms", listening["times_ms"]),
            Line("memory above bare Python, no listener", "MiB", alone["sizes_mib"], at_most(30, "MiB")),
            Line("memory above bare Python, as it is by default", "MiB", listening["sizes_mib"]),
        ],
    )


def server_start(bench: Bench) -> RowResult:
    """From before the process is spawned, over the ready file, to the answer of the first produce."""
    batch = batch_of(1, 100)

    def start(durability: str) -> float:
        with tempfile.TemporaryDirectory(dir=directory) as place:
            started = time.perf_counter()
            with serving(place, durability=durability) as server, Wire(server.address) as wire:
                wire.create_topic("first")
                wire.call("produce", {"partitions": [{"topic": "first", "partition": 0, "records": batch}]})
                return (time.perf_counter() - started) * 1000

    with bench.workspace() as directory:
        rounds = bench.scale.count(SERVER_STARTS, least=1)
        samples: dict[str, list[float]] = {"fsync": [], "os": []}
        for number in range(-1, rounds):
            for durability, times in samples.items():
                bench.say(f"start of triolog serve, {durability}, {number + 1} of {rounds}")
                taken = start(durability)
                if number >= 0:
                    times.append(taken)
    return RowResult(
        2,
        "triolog serve: process start to first acknowledged append",
        [
            Line("fsync, the default", "ms", samples["fsync"], at_most(400, "ms")),
            Line("os", "ms", samples["os"], at_most(400, "ms")),
        ],
    )


def in_process(bench: Bench) -> RowResult:
    """One record a call, without sockets; `os`."""
    with bench.workspace() as directory:
        bench.say("appending and fetching")
        calls = bench.scale.count(CALLS, least=20)
        measured = {"directory": directory, "calls": calls, "rounds": bench.scale.rounds}
        answer = run_load(append_and_fetch, **measured)
        bench.say("appending in an asyncio program")
        in_asyncio = run_load(append_in_asyncio, **measured)
        bench.say("appending in a program with neither")
        blocking = run_load(append_blocking, **measured)
    target = at_most(40, "us")
    return RowResult(
        21,
        "in-process broker: one record a call, page cache",
        [
            Line("append, p50", "us", answer["append_p50_us"], target),
            Line("append, p99", "us", answer["append_p99_us"]),
            Line("fetch, p50", "us", answer["fetch_p50_us"], target),
            Line("fetch, p99", "us", answer["fetch_p99_us"]),
            Line("asyncio: append, p50", "us", in_asyncio["append_p50_us"], at_most(150, "us")),
            Line("asyncio: append, p99", "us", in_asyncio["append_p99_us"]),
            Line("blocking: append, p50", "us", blocking["append_p50_us"]),
            Line("blocking: append, p99", "us", blocking["append_p99_us"]),
        ],
        [f"{calls:,} of each a round, one at a time, from the task of a trio program unless it says otherwise"],
    )
