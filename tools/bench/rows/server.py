"""Rows of a plain server: memory when idle, calls and turns of a small request (the same on every machine), small synced
appends, and recovery of the log that a killed server left, beside the plain checksum of its file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ....protocol.limits import MIB
from ....protocol.records.batch import crc32c
from ....protocol.types import LATEST_TIMESTAMP, TopicPartition
from ....server.config import LogConfig
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.disk.paths import LOG_SUFFIX, segment_file
from ....server.storage.recovery.recovery import OpenLog, open_log
from ....server.system.clock import system_now_ms
from ..counting.meters import COUNTED_ON
from ..counting.requests import ROUNDS, count_requests
from ..loads import fill, produce
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.machine import sync_rate
from ..measuring.report import Line, RowResult, at_least, at_most, ratio
from ..measuring.server import Server, serving
from ..measuring.wire import Wire, batch_of

PARTITIONS: Final = 1000
SHAPE: Final = {"batches": 10, "records": 100, "value_bytes": 1000}


def idle_memory(bench: Bench) -> RowResult:
    """Fill 1,000 partitions with a megabyte each, 100 records of 1 KB a batch; then restart."""
    partitions = bench.scale.count(PARTITIONS, least=4)
    target = at_most(96, "MiB")
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("new server")
            fresh = server.idle_memory_mib()
            bench.say(f"filling {partitions} partitions")
            filled = run_load(fill, address=server.address, topic="t", partitions=partitions, **SHAPE)
            full = server.idle_memory_mib()
        with serving(directory) as server:
            bench.say("restarted server")
            restarted = server.idle_memory_mib()
    held = f"{partitions:,} partitions, {filled['bytes'] / 1e9:.2g} GB"
    return RowResult(
        "resident memory of triolog serve, idle",
        [
            Line("new", "MiB", [fresh["VmRSS"]], at_most(40, "MiB"), _parts(fresh)),
            Line(f"{held}, just written", "MiB", [full["VmRSS"]], target, _parts(full)),
            Line(f"{held}, restarted", "MiB", [restarted["VmRSS"]], target, _parts(restarted)),
        ],
    )


def _parts(memory: dict[str, float]) -> str:
    return f"{memory['RssAnon']:.0f} anonymous, {memory['RssFile']:.0f} file, peak {memory['VmHWM']:.0f}"


LOADS: Final = ("Produce, 1 record", "Fetch, 1 record", "ListOffsets by time, 1 partition", "native produce, 1 record")
NOTES: Final = (
    "calls: functions of Python and of C that the server's thread enters; turns: passes of trio's loop",
    "many connections: one request each under way, all there before the server looks",
    "tests/server/listeners/counts.py has the figures that a request may not exceed, of more APIs",
)


def request_counts(bench: Bench) -> RowResult:
    """Count requests of one record: they are the ones that overhead makes slow."""
    bench.say("counting")
    counted = {(row["load"], row["connections"]): row for row in run_load(count_requests, only=LOADS)}
    lines = []
    for load in LOADS:
        for connections in ROUNDS:
            lines.append(Line(f"{load}, connections: {connections}, calls", "", [counted[load, connections]["calls"]]))
        lines.append(Line(f"{load}, connections: 1, turns", "", [counted[load, 1]["turns"]]))
    notes = list(NOTES)
    if sys.version_info[:2] != COUNTED_ON:
        notes.append("counted by another interpreter than CPython {}.{}: not to be compared".format(*COUNTED_ON))
    return RowResult("calls and turns of the event loop a request", lines, notes)


SHAPES: Final = {(50, 1): (20_000, 8.0), (8, 64): (60_000, 30.0)}
"""By connections and requests in flight on each: how many to send, and the thousand records a second to reach."""
BARE_SYNCS: Final = 3_000
NOTE: Final = "the targets hold where one fdatasync takes 0.12 ms: see the bare loop"


def synced_appends(bench: Bench) -> RowResult:
    """Append single records of 100 B to one partition under `fsync`, and compare with a bare loop."""
    with bench.workspace() as directory, serving(directory, durability="fsync") as server:
        with Wire(server.address) as wire:
            wire.create_topic("small", retention_ms="-1")
        syncs = bench.scale.count(BARE_SYNCS, least=20)
        measures: dict[str, Callable[[], float]] = {
            "bare": lambda: float(run_load(sync_rate, directory=directory, count=syncs)["rate"]),
            **{_name(*shape): partial(_rate, bench, server, *shape) for shape in SHAPES},
        }
        samples = bench.interleave(measures)
    lines = [Line("bare loop: append 200 B, fdatasync", "syncs/s", samples["bare"])]
    for shape, (_, target) in SHAPES.items():
        ours = samples[_name(*shape)]
        lines.append(Line(_name(*shape), "records/s", ours, at_least(target * 1000, "records/s")))
        lines.append(ratio(f"{_name(*shape)} / bare fdatasync", ours, samples["bare"]))
    return RowResult("produce, records of 100 B one by one, fsync", lines, [NOTE])


def _rate(bench: Bench, server: Server, connections: int, in_flight: int) -> float:
    full, _ = SHAPES[connections, in_flight]
    shape = {"connections": connections, "in_flight": in_flight, "records": 1, "value_bytes": 100}
    requests = bench.scale.count(full, least=connections * in_flight)
    return float(run_load(produce, address=server.address, topic="small", requests=requests, **shape)["rate"])


def _name(connections: int, in_flight: int) -> str:
    return f"{connections} connections, {in_flight} in flight"


TOPIC: Final = "crashed"
RECOVERED_SHAPES: Final = {"16 KiB": (16, 1011, 512_000_000, 400), "200 B": (1, 130, 20_000_000, 30)}
"""By size of a batch: its records, the bytes of a value, the bytes of the log, and the MB/s that recovery is to reach."""


def crash_recovery(bench: Bench) -> RowResult:
    """Kill a server under `os` that has one segment. Its files are in the page cache, and on the device after the warm-up."""
    return RowResult(
        "recovery of an unflushed log after SIGKILL", [line for size in RECOVERED_SHAPES for line in _lines(bench, size)]
    )


def _lines(bench: Bench, name: str) -> list[Line]:
    records, value_bytes, log_bytes, target = RECOVERED_SHAPES[name]
    batch_bytes = len(batch_of(records, value_bytes))
    batches = bench.scale.count(log_bytes // batch_bytes, least=16)
    end_offset, size = batches * records, batches * batch_bytes
    with bench.workspace() as directory:
        bench.say(f"filling a log with batches of {name}")
        with serving(directory) as server:
            shape = {"partitions": 1, "batches": batches, "records": records, "value_bytes": value_bytes}
            run_load(fill, address=server.address, topic=TOPIC, **shape)
            server.kill()
            server.wait()
        partition = f"{directory}/data/{TOPIC}-0"
        samples = bench.interleave(
            {
                "recovery": lambda: size / 1e6 / float(run_load(recover_log, directory=partition, end_offset=end_offset)),
                "checksum": lambda: size / 1e6 / float(run_load(checksum_log, directory=partition)),
            }
        )
        restart_s = _restart(directory, end_offset)
    return [
        Line(f"recovery, batches of {name}", "MB/s", samples["recovery"], at_least(target, "MB/s")),
        Line(f"plain CRC-32C of the file, batches of {name}", "MB/s", samples["checksum"]),
        ratio(f"recovery / plain CRC-32C, batches of {name}", samples["recovery"], samples["checksum"]),
        Line(f"process start to the log's end offset, {size / 1e6:,.0f} MB, batches of {name}", "s", [restart_s]),
    ]


def recover_log(*, directory: str, end_offset: int) -> float:
    """Check every batch, rebuild the indexes, sync all of it. Return the seconds that this took."""
    partition = TopicPartition(TOPIC, 0)
    request = OpenLog(topic_partition=partition, directory=directory, config=LogConfig(), now_ms=system_now_ms, was_clean=False)
    started = time.perf_counter()
    log = open_log(OsFileSystem(), request)
    seconds = time.perf_counter() - started
    if log.log_end_offset != end_offset:
        raise LoadFailedError(
            f"recovery ended at offset {log.log_end_offset}, but the server had appended {end_offset} records"
        )
    return seconds


def checksum_log(*, directory: str) -> float:
    """Return the seconds that reading the log and its CRC-32C take: no check can be faster."""
    started, crc = time.perf_counter(), 0
    with Path(directory, segment_file(0, LOG_SUFFIX)).open("rb", buffering=0) as file:
        while piece := file.read(MIB):
            crc = crc32c(piece, crc)
    return time.perf_counter() - started


def _restart(directory: str, end_offset: int) -> float:
    """Return the seconds until a server that finds no clean marker reports the end of the log."""
    started = time.perf_counter()
    with serving(directory) as server, Wire(server.address) as wire:
        asked = [{"topic": TOPIC, "partition": 0, "timestamp": LATEST_TIMESTAMP}]
        answer = wire.call("offsets_for_times", {"partitions": asked})["partitions"][0]
        seconds = time.perf_counter() - started
    if answer["offset"] != end_offset:
        raise LoadFailedError(f"the server had acknowledged {end_offset} records, but the log ends at {answer['offset']}")
    return seconds
