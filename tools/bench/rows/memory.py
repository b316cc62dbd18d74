"""Rows 3 and 20: resident memory of a server that does nothing, with many partitions, and with many connections."""

from __future__ import annotations

import resource
from typing import Final

from ..loads.idle import hold_idle
from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, LoadProcess, run_load
from ..measuring.measure import Line, RowResult, at_most
from ..measuring.server import serving

PARTITIONS = 1000
BATCHES = 10
RECORDS = 100
RECORD_BYTES = 1000

COUNTS: Final = (1_000, 5_000)
MOST_KIB: Final = 24
BESIDE: Final = 1_000
"""Descriptors that the server is left for everything else."""


def idle_memory(bench: Bench) -> RowResult:
    """1,000 partitions with a megabyte each, written at 100 records of 1 KB a batch; then the same after a restart."""
    partitions = bench.scale.count(PARTITIONS, least=4)
    target = at_most(96, "MiB")
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("new server")
            fresh = server.idle_memory_mib()
            bench.say(f"filling {partitions} partitions")
            filled_bytes = run_load(
                fill,
                address=server.address,
                topic="t",
                partitions=partitions,
                batches=BATCHES,
                records=RECORDS,
                value_bytes=RECORD_BYTES,
            )["bytes"]
            full = server.idle_memory_mib()
        with serving(directory) as server:
            bench.say("restarted server")
            restarted = server.idle_memory_mib()
    held = f"{partitions:,} partitions, {filled_bytes / 1e9:.2g} GB"
    return RowResult(
        3,
        "resident memory of triolog serve, idle",
        [
            Line("new", "MiB", [fresh["VmRSS"]], at_most(40, "MiB"), _parts(fresh)),
            Line(f"{held}, just written", "MiB", [full["VmRSS"]], target, _parts(full)),
            Line(f"{held}, restarted", "MiB", [restarted["VmRSS"]], target, _parts(restarted)),
        ],
    )


def _parts(memory: dict[str, float]) -> str:
    return f"{memory['RssAnon']:.0f} anonymous, {memory['RssFile']:.0f} file, peak {memory['VmHWM']:.0f}"


def idle_connections(bench: Bench) -> RowResult:
    """Each is greeted and asks for nothing more. A server of its own for each measure: what one has left is not counted."""
    lines = []
    for count in COUNTS:
        connections = bench.scale.count(count, least=20)
        _raise_limit(3 * connections + BESIDE)
        for protocol in ("native", "Kafka"):
            bench.say(f"{connections:,} idle connections, {protocol}")
            target = at_most(MOST_KIB, "KiB")
            lines.append(
                Line(f"{protocol}, {connections:,} connections, each", "KiB", [_each_kib(bench, protocol, connections)], target)
            )
    return RowResult(20, "resident memory of idle connections", lines)


def _each_kib(bench: Bench, protocol: str, connections: int) -> float:
    is_kafka = protocol == "Kafka"
    limits = {"max_connections": connections * 5 // 4 + 32}  # a part is kept for the other listener
    with bench.workspace() as directory, serving(directory, settings=limits, kafka=is_kafka) as server:
        host, port = server.kafka.rsplit(":", 1) if is_kafka else server.address
        arguments = {"address": (host, int(port)), "kafka": is_kafka}
        with LoadProcess(
            hold_idle, {**arguments, "connections": 10}
        ) as first:  # what the first of all connections loads is not theirs
            first.wait_until_started()
            before = server.idle_memory_mib()["VmRSS"]
            with LoadProcess(hold_idle, {**arguments, "connections": connections - 10}) as load:
                load.wait_until_started()
                after = server.idle_memory_mib()["VmRSS"]
                if load.answer() != connections - 10:
                    raise LoadFailedError("not all connections were held")
            first.answer()
    return (after - before) * 1024 / (connections - 10)


def _raise_limit(files: int) -> None:
    """Of this process and those that it starts; as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(files, hard)), hard))
