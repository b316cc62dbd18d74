"""The lag of a mirror: a producer on a schedule at the source, and a reader at each of both servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ....protocol.limits import MIB
from ....protocol.records.batch import iter_batches
from ...demo.processes import serve_arguments
from ..loads import Schedule
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, LoadProcess, say_started
from ..measuring.report import Line, RowResult, at_most, percentile
from ..measuring.server import Server, cpu_s, serving
from ..measuring.wire import Address, Wire, batch_of, produce_frame

SECONDS: Final = 10.0
MB_PER_SECOND: Final = 20
VALUE_BYTES: Final = 1_000
BATCH_RECORDS: Final = 100
RATE: Final = MB_PER_SECOND * 1_000_000 / (VALUE_BYTES * BATCH_RECORDS)
"""Batches a second."""
TARGET: Final = at_most(200, "ms")
TOPIC: Final = "copied"
EXTRA_BATCHES: Final = 20
"""Sent beyond those that readers wait for: a late producer drops the end of its schedule."""
WAIT_MS: Final = 500
PATIENCE_S: Final = 60.0
POLL_S: Final = 0.02


def mirror_lag(bench: Bench) -> RowResult:
    """Append at the source, and read at the source and at the mirror."""
    bench = bench.with_rounds(3)
    batches = max(10, round(bench.scale.seconds(SECONDS) * RATE))
    with ExitStack() as stack:
        source_folder, mirror_folder = (stack.enter_context(bench.workspace()) for _ in range(2))
        source = stack.enter_context(serving(source_folder, kafka=True))
        with Wire(source.address) as wire:
            wire.create_topic(TOPIC, retention_ms="-1")
        mirror = stack.enter_context(_mirroring(mirror_folder, source.kafka))
        _await_copy(mirror.address)
        samples = bench.interleave({"lag": lambda: _lag(source, mirror, batches)})["lag"]
    lines = []
    for name, target in (("mirror", TARGET), ("source", None)):
        for share in ("p50", "p99"):
            ages = [each[name][f"{share}_ms"] for each in samples]
            lines.append(Line(f"append to reader of the {name}, {share}", "ms", ages, target))
    lines.append(Line("processor time of the mirror", "s/GB", [each["cpu_s_gb"] for each in samples]))
    notes = [
        f"one partition, batches of {BATCH_RECORDS} records of 1 KB, durability=os; all five processes are on this machine",
        "from when a batch was due, so a producer that falls behind its schedule counts",
    ]
    return RowResult(f"mirror: lag at {MB_PER_SECOND} MB/s", lines, notes)


@contextmanager
def _mirroring(folder: str, source: str) -> Iterator[Server]:
    """Run a server that copies all topics of the source. The path of its socket must be short."""
    with TemporaryDirectory() as links:
        config = Path(folder, "server.toml")
        config.write_text(f'[[mirror]]\nfrom = "{source}"\nstate_dir = "{links}"\n', encoding="utf-8")
        arguments = serve_arguments(f"{folder}/data", "--config", str(config), "--log-level", "warning", durability="os")
        with Server("triolog serve", Path(folder), arguments) as server:
            server.start()
            yield server
            if status := server.stop():
                raise LoadFailedError(f"the mirror ended with {status}")


def _await_copy(address: Address) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with Wire(address) as wire:
        while True:
            try:
                _fetch(wire, 0, 0)
                return
            except LoadFailedError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)


def _lag(source: Server, mirror: Server, batches: int) -> dict[str, Any]:
    begun_s = cpu_s(mirror.pid)
    with ExitStack() as stack:
        readers = {}
        for name, server in (("source", source), ("mirror", mirror)):
            readers[name] = stack.enter_context(LoadProcess(read_dated, {"address": server.address, "batches": batches}))
            readers[name].wait_until_started()
        producer = stack.enter_context(LoadProcess(append_dated, {"address": source.address, "batches": batches}))
        producer.answer()
        told: dict[str, Any] = {name: reader.answer() for name, reader in readers.items()}
    told["cpu_s_gb"] = (cpu_s(mirror.pid) - begun_s) / (batches * BATCH_RECORDS * VALUE_BYTES / 1e9)
    return told


def append_dated(*, address: Address, batches: int) -> dict[str, int]:
    """Append at RATE batches whose first timestamps are the times when they were due."""
    begun_s: list[float] = []

    def frame(number: int) -> bytes:
        if not begun_s:
            begun_s.append(time.time())
        due_ms = round((begun_s[0] + (number - 2) / RATE) * 1000)
        return produce_frame(number, TOPIC, 0, batch_of(BATCH_RECORDS, VALUE_BYTES, first_timestamp=due_ms))

    with Wire(address) as wire:
        schedule = Schedule([wire], frame, RATE)
        schedule.run((batches + EXTRA_BATCHES) / RATE)
    return {"batches": len(schedule.latencies_ms)}


def read_dated(*, address: Address, batches: int) -> dict[str, float]:
    """Read so many new batches; return p50 and p99 of their ages in ms."""
    ages_ms: list[float] = []
    with Wire(address) as wire:
        position = _fetch(wire, 0, 0)["high_watermark"]
        say_started()
        begun_ms = time.time() * 1000
        deadline = time.monotonic() + PATIENCE_S + batches / RATE
        while len(ages_ms) < batches:
            if time.monotonic() > deadline:
                raise LoadFailedError(f"{len(ages_ms)} of {batches} batches came")
            found = _fetch(wire, position, WAIT_MS)
            now_ms = time.time() * 1000
            for header, _ in iter_batches(found["records"]):
                if header.next_offset > position:
                    position = header.next_offset
                    if header.base_timestamp >= begun_ms:  # not the rest of the round before
                        ages_ms.append(now_ms - header.base_timestamp)
    return {"p50_ms": percentile(ages_ms, 0.5), "p99_ms": percentile(ages_ms, 0.99)}


def _fetch(wire: Wire, offset: int, wait_ms: int) -> dict[str, Any]:
    entry = {"topic": TOPIC, "partition": 0, "offset": offset, "max_bytes": 8 * MIB}
    [found] = wire.call("fetch", {"max_wait_ms": wait_ms, "partitions": [entry]})["partitions"]
    return dict(found)
