"""Rows 4 and 5: large batches into the page cache, and small appends that are synced before their answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ..loads.produce import produce
from ..loads.records import produce_records
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.disk import sync_rate
from ..measuring.measure import Line, RowResult, Target, absent, at_least, ratio
from ..measuring.server import Server, serving
from ..measuring.wire import Wire
from ..peers.nats_peer import nats
from ..peers.peer import PeerMissingError
from ..peers.redis_peer import redis

LARGE_RECORDS = 300_000
LARGE_BYTES = 1000
BATCH_RECORDS = 100
LARGE_IN_FLIGHT = 32
NATS_IN_FLIGHT = 1000

SMALL_BYTES = 100
SMALL_APPENDS = {(50, 1): 20_000, (8, 64): 60_000}
SMALL_TARGETS = {(50, 1): 8_000.0, (8, 64): 30_000.0}
BARE_SYNCS = 3_000


def large_batches(bench: Bench) -> RowResult:
    """Records of 1 KB to one partition, `os`, against NATS JetStream on files."""
    records = bench.scale.count(LARGE_RECORDS, least=400)
    missing, version = "peers are left out", ""
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(directory))
        measures: dict[str, Callable[[], float]] = {
            "prebuilt": lambda: _prebuilt(server, records),
            "Producer": lambda: _by_record(server, records),
        }
        if bench.with_peers:
            try:
                bench.say("building and starting NATS")
                peer = stack.enter_context(nats(stack.enter_context(bench.workspace())))
                version = peer.version
                measures["NATS"] = lambda: peer.publish_rate(
                    messages=records, value_bytes=LARGE_BYTES, in_flight=NATS_IN_FLIGHT
                )
            except PeerMissingError as exc:
                missing = str(exc)
        with Wire(server.address) as wire:
            for topic in ("prebuilt", "records"):
                wire.create_topic(topic, retention_ms="-1")
        samples = bench.interleave(measures)
    return RowResult(4, "produce, records of 1 KB, os, one connection", _large_lines(samples, missing, version))


def _large_lines(samples: dict[str, list[float]], missing: str, version: str) -> list[Line]:
    lines = [
        Line(f"prebuilt batches of {BATCH_RECORDS}, {LARGE_IN_FLIGHT} in flight", "records/s", samples["prebuilt"]),
        Line("Producer API, record by record", "records/s", samples["Producer"]),
    ]
    targets = {"prebuilt": at_least(1.0, "x"), "Producer": at_least(0.3, "x")}
    if "NATS" in samples:
        name = f"NATS JetStream file, nats.go, {NATS_IN_FLIGHT:,} in flight"
        lines.append(Line(name, "records/s", samples["NATS"], note=version))
        lines += [ratio(f"{name} / NATS", samples[name], samples["NATS"], target) for name, target in targets.items()]
    else:
        lines += [absent(f"{name} / NATS", missing, target) for name, target in targets.items()]
    return lines


def _prebuilt(server: Server, records: int) -> float:
    answer = run_load(
        produce,
        address=server.address,
        topic="prebuilt",
        connections=1,
        in_flight=LARGE_IN_FLIGHT,
        records=BATCH_RECORDS,
        value_bytes=LARGE_BYTES,
        requests=records // BATCH_RECORDS,
    )
    return float(answer["rate"])


def _by_record(server: Server, records: int) -> float:
    answer = run_load(produce_records, address=server.address, topic="records", value_bytes=LARGE_BYTES, records=records // 2)
    return float(answer["rate"])


def synced_appends(bench: Bench) -> RowResult:
    """Single records of 100 B to one partition, `fsync`, against Redis with `appendfsync always` and a bare loop."""
    missing = "peers are left out"
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(directory, durability="fsync"))
        with Wire(server.address) as wire:
            wire.create_topic("small", retention_ms="-1")
        syncs = bench.scale.count(BARE_SYNCS, least=20)
        measures: dict[str, Callable[[], float]] = {
            "fdatasync": lambda: float(run_load(sync_rate, directory=directory, count=syncs)["rate"])
        }
        peer = None
        if bench.with_peers:
            try:
                peer = stack.enter_context(redis(stack.enter_context(bench.workspace())))
            except PeerMissingError as exc:
                missing = str(exc)
        for (connections, in_flight), full in SMALL_APPENDS.items():
            count = bench.scale.count(full, least=connections * in_flight)

            def ours(connections: int = connections, in_flight: int = in_flight, count: int = count) -> float:
                return _small(server, connections, in_flight, count)

            measures[f"triolog {connections}x{in_flight}"] = ours
            if peer is not None:

                def theirs(connections: int = connections, in_flight: int = in_flight, count: int = count) -> float:
                    return peer.xadd_rate(connections=connections, in_flight=in_flight, requests=count, value_bytes=SMALL_BYTES)

                measures[f"Redis {connections}x{in_flight}"] = theirs
        samples = bench.interleave(measures)
    return RowResult(
        5,
        "produce, records of 100 B one by one, fsync",
        _small_lines(samples, missing, "" if peer is None else peer.version),
        ["the targets hold where one fdatasync takes 0.12 ms: see the bare loop"],
    )


def _small(server: Server, connections: int, in_flight: int, count: int) -> float:
    answer = run_load(
        produce,
        address=server.address,
        topic="small",
        connections=connections,
        in_flight=in_flight,
        records=1,
        value_bytes=SMALL_BYTES,
        requests=count,
    )
    return float(answer["rate"])


def _small_lines(samples: dict[str, list[float]], missing: str, version: str) -> list[Line]:
    bare = samples["fdatasync"]
    lines = [Line("bare loop: append 200 B, fdatasync", "syncs/s", bare)]
    for connections, in_flight in SMALL_APPENDS:
        shape = f"{connections}x{in_flight}"
        name = f"{connections} connections, {in_flight} in flight"
        ours = samples[f"triolog {shape}"]
        bound = SMALL_TARGETS[connections, in_flight]
        lines.append(Line(name, "records/s", ours, Target(bound, f">= {bound / 1000:g} k/s", False)))
        lines.append(ratio(f"{name} / bare fdatasync", ours, bare))
        if (theirs := samples.get(f"Redis {shape}")) is None:
            lines.append(absent(f"{name} / Redis", missing))
        else:
            lines.append(Line(f"Redis XADD, appendfsync always, {shape}", "records/s", theirs, note=version))
            lines.append(ratio(f"{name} / Redis", ours, theirs))
    return lines
