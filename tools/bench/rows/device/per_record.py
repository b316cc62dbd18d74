"""Row 16: what the device has to write for a small record until it is durable, beside Redis and a bare loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from .....protocol.limits import MIB
from ...loads.open_loop import append_on_schedule
from ...loads.produce import produce
from ...measuring.bench import Bench
from ...measuring.child import run_load
from ...measuring.device_bytes import DeviceBytes, device_bytes
from ...measuring.disk import append_synced, prepare_file
from ...measuring.measure import Line, RowResult, absent
from ...measuring.server import Server, serving
from ...measuring.wire import Wire, batch_of
from ...peers.peer import PeerMissingError
from ...peers.redis_peer import redis

RECORD_BYTES: Final = 100
DEVICE_BYTES: Final = 1024 * MIB
SEGMENT_BYTES: Final = 64 * MIB
RECORDS: Final = 2_000
CONNECTIONS: Final = 50
RATE: Final = 1_000.0
SECONDS: Final = 5.0
BARE: Final = {"empty": "", "allocated": ", file allocated before", "zeros": ", file filled with zeros before"}


def bytes_per_record(bench: Bench) -> RowResult:
    """Records of 100 B, one by one, in turn with nothing: counts, not times. One sample each."""
    with bench.workspace() as directory, device_bytes(directory, size_bytes=DEVICE_BYTES) as counter:
        lines = [*_bare(bench, counter), *_redis(bench, counter)]
        with serving(counter.directory, durability="fsync") as server:
            for preallocate in (False, True):
                lines += _ours(bench, counter, server, preallocate=preallocate)
    stored = len(batch_of(1, RECORD_BYTES))
    notes = [counter.how, f"a record of {RECORD_BYTES} B alone in its batch has {stored} B in triolog's log"]
    return RowResult(16, f"bytes to the device for each durable record of {RECORD_BYTES} B", lines, notes)


def _line(name: str, value: float, who: str = "") -> Line:
    if not value:
        return absent(name, "nothing was written: the files lie in memory")
    return Line(name, "B", [value], note=f"{value / RECORD_BYTES:,.3g} x {RECORD_BYTES} B" + (f"; {who}" if who else ""))


def _bare(bench: Bench, counter: DeviceBytes) -> Iterator[Line]:
    count = bench.scale.count(RECORDS, least=20)
    for how in ("empty", "allocated", "zeros"):
        name = f"bare loop: append, fdatasync{BARE[how]}"
        if counter.device is None:
            yield absent(name, counter.reason)
            continue
        bench.say(name)
        path = f"{counter.directory}/{how}"
        prepare_file(path=path, size=count * RECORD_BYTES, how=how)
        yield _line(name, counter.during(partial(append_synced, path=path, count=count, size=RECORD_BYTES)) / count)


def _redis(bench: Bench, counter: DeviceBytes) -> Iterator[Line]:
    count = bench.scale.count(RECORDS, least=CONNECTIONS)
    names = {connections: f"Redis XADD, appendfsync always, {_shape(connections)}" for connections in (1, CONNECTIONS)}
    missing = "peers are left out" if not bench.with_peers else counter.reason
    if missing:
        yield from (absent(name, missing) for name in names.values())
        return
    try:
        with redis(counter.directory) as peer:
            for connections, name in names.items():
                bench.say(name)
                work = partial(peer.xadd_rate, connections=connections, in_flight=1, requests=count, value_bytes=RECORD_BYTES)
                yield _line(name, counter.during(work) / count, peer.version)
    except PeerMissingError as exc:
        yield from (absent(name, str(exc)) for name in names.values())


def _ours(bench: Bench, counter: DeviceBytes, server: Server, *, preallocate: bool) -> Iterator[Line]:
    suffix = ", preallocate" if preallocate else ""

    def line(mode: str, shape: str, count: int, load: Callable[..., Any], **arguments: Any) -> Line:
        name = f"{mode}{suffix}, {shape}"
        bench.say(name)
        topic = re.sub("[^a-z0-9]+", "-", name)
        with Wire(server.address) as wire:
            wire.create_topic(
                topic,
                retention_ms="-1",
                durability=mode,
                segment_bytes=str(SEGMENT_BYTES),
                preallocate=str(preallocate).lower(),
            )
        ask = partial(run_load, load, address=server.address, topic=topic, value_bytes=RECORD_BYTES, **arguments)
        return _line(name, counter.during(ask, server.pid) / count)

    for connections in (1, CONNECTIONS):
        count = bench.scale.count(RECORDS, least=CONNECTIONS) // connections * connections
        shape = {"connections": connections, "in_flight": 1, "records": 1, "requests": count}
        yield line("fsync", _shape(connections), count, produce, **shape)
    seconds = bench.scale.seconds(SECONDS)
    for mode in ("group:100", "group:1000"):
        load = {"connections": 1, "rate": RATE, "seconds": seconds}
        yield line(mode, f"{RATE:,.0f} records/s", round(RATE * seconds), append_on_schedule, **load)


def _shape(connections: int) -> str:
    return "one at a time" if connections == 1 else f"{connections} connections"
