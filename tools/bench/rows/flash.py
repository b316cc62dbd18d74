"""Flash rows: bytes written to flash per appended byte, by batch size, durability and `preallocate`, and by segment size."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.limits import KIB, MIB
from ..loads import append_on_schedule, produce
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.loop_device import DeviceBytes, device_bytes
from ..measuring.report import Line, RowResult, absent
from ..measuring.server import Server, serving
from ..measuring.wire import Wire, batch_of

RECORD_BYTES: Final = 100
DEVICE_BYTES: Final = 1024 * MIB
SEGMENT_BYTES: Final = 16 * MIB
BATCHES: Final = (1, 10, 100, 1000)
"""Records in each."""
REQUESTS: Final = 500
RATE: Final = 100.0
"""Records a second, where the time between two syncs decides."""
SECONDS: Final = {"group:100": 10.0, "group:1000": 20.0, "group:10000": 40.0, "os": 60.0}
SMALL_SEGMENTS: Final = (256 * KIB, MIB, 4 * MIB)
ROLLED_BATCH: Final = 100
ROLLED_BYTES: Final = 8 * MIB
DAY_S: Final = 86_400


@attrs.frozen
class _Measured:
    """A place to count in, and the server that works there."""

    bench: Bench
    counter: DeviceBytes
    server: Server

    def line(
        self, name: str, config: dict[str, str], load: Callable[..., Any], *, batches: int, records: int, **more: Any
    ) -> Line:
        """Put a load on a new topic; return the device's bytes over those of the log."""
        self.bench.say(name)
        topic = re.sub("[^a-z0-9]+", "-", name)
        address = self.server.address
        with Wire(address) as wire:
            wire.create_topic(topic, 1, retention_ms="-1", **config)
        shape = {"connections": 1, "records": records, "value_bytes": RECORD_BYTES}
        ask = partial(run_load, load, address=address, topic=topic, **shape, **more)
        written = self.counter.during(ask, self.server.pid)
        if not written:
            return absent(name, "nothing was written: the files lie in memory")
        appended = batches * len(batch_of(records, RECORD_BYTES))
        per_record = written / (batches * records)
        return Line(
            name, "x", [written / appended], note=f"{per_record:,.4g} B a record; {_per_day(per_record)} at 100 records/s"
        )


def flash_budget(bench: Bench) -> RowResult:
    """Count the device's bytes for records of 100 B over one connection. One sample each."""
    with bench.workspace() as directory, device_bytes(directory, size_bytes=DEVICE_BYTES) as counter:
        with serving(counter.directory, durability="fsync") as server:
            measured = _Measured(bench, counter, server)
            lines = [
                *(line for preallocate in (False, True) for line in _synced(measured, preallocate=preallocate)),
                *(line for preallocate in (False, True) for line in _paced(measured, preallocate=preallocate)),
                *(line for preallocate in (False, True) for line in _rolled(measured, preallocate=preallocate)),
            ]
    sizes = ", ".join(f"{records:,}: {len(batch_of(records, RECORD_BYTES)) / records:,.4g} B" for records in BATCHES)
    notes = [
        counter.how,
        f"a record of {RECORD_BYTES} B in triolog's log, by records in its batch: {sizes}",
        f"fsync: one batch at a time, as fast as it goes, {SEGMENT_BYTES // MIB} MiB segments; others: {RATE:g} records/s for "
        + ", ".join(f"{bench.scale.seconds(seconds):g} s ({mode})" for mode, seconds in SECONDS.items())
        + ", and what is not written then is counted, too",
    ]
    return RowResult(f"bytes to the device for each byte appended, records of {RECORD_BYTES} B", lines, notes)


def _synced(measured: _Measured, *, preallocate: bool) -> Iterator[Line]:
    for records in BATCHES:
        requests = measured.bench.scale.count(REQUESTS, least=10)
        name = f"fsync{_suffix(preallocate)}, batches of {records:,}"
        config = _config("fsync", SEGMENT_BYTES, preallocate=preallocate)
        yield measured.line(name, config, produce, batches=requests, records=records, requests=requests, in_flight=1)


def _paced(measured: _Measured, *, preallocate: bool) -> Iterator[Line]:
    for mode, full_s in SECONDS.items():
        for records in (each for each in BATCHES if each <= RATE):
            seconds = measured.bench.scale.seconds(full_s)
            name = f"{mode}{_suffix(preallocate)}, batches of {records:,}"
            config = _config(mode, SEGMENT_BYTES, preallocate=preallocate)
            rate = RATE / records
            batches = math.ceil(rate * seconds)
            yield measured.line(name, config, append_on_schedule, batches=batches, records=records, rate=rate, seconds=seconds)


def _rolled(measured: _Measured, *, preallocate: bool) -> Iterator[Line]:
    for segment_bytes in SMALL_SEGMENTS:
        requests = measured.bench.scale.count(ROLLED_BYTES, least=MIB) // len(batch_of(ROLLED_BATCH, RECORD_BYTES))
        name = f"fsync{_suffix(preallocate)}, batches of {ROLLED_BATCH}, segments of {segment_bytes // KIB} KiB"
        config = _config("fsync", segment_bytes, preallocate=preallocate)
        yield measured.line(name, config, produce, batches=requests, records=ROLLED_BATCH, requests=requests, in_flight=1)


def _config(mode: str, segment_bytes: int, *, preallocate: bool) -> dict[str, str]:
    return {"durability": mode, "segment_bytes": str(segment_bytes), "preallocate": str(preallocate).lower()}


def _suffix(preallocate: bool) -> str:
    return ", preallocate" if preallocate else ""


def _per_day(bytes_per_record: float) -> str:
    return f"{bytes_per_record * RATE * DAY_S / 10**9:,.3g} GB a day"
