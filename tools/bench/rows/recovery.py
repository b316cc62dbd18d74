"""Row 12: recovery of a log that a killed server left, beside the plain checksum of its file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from ....protocol.types import LATEST_TIMESTAMP
from ....server.storage.disk.paths import LOG_SUFFIX, segment_file
from ..loads.produce import fill
from ..loads.recovery import recover_log
from ..loads.tools import checksum_file
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.measure import Line, RowResult, at_least, ratio
from ..measuring.server import serving
from ..measuring.wire import Wire, batch_of

TOPIC: Final = "crashed"


@attrs.frozen
class Shape:
    """Batches of one size, and how fast they are to be recovered."""

    text: str
    records: int
    value_bytes: int
    log_bytes: int
    target_mb_per_s: float


SHAPES: Final = (Shape("16 KiB", 16, 1011, 512_000_000, 400), Shape("200 B", 1, 130, 20_000_000, 30))


def crash_recovery(bench: Bench) -> RowResult:
    """A server under `os` is killed and leaves one segment. Its files are in the page cache; the device has them from the round
    on that is not counted."""
    lines: list[Line] = []
    for shape in SHAPES:
        lines += _lines(bench, shape)
    return RowResult(12, "recovery of an unflushed log after SIGKILL", lines)


def _lines(bench: Bench, shape: Shape) -> list[Line]:
    batch_bytes = len(batch_of(shape.records, shape.value_bytes))
    batches = bench.scale.count(shape.log_bytes // batch_bytes, least=16)
    end_offset, size = batches * shape.records, batches * batch_bytes
    with bench.workspace() as directory:
        _leave_unflushed(bench, directory, shape, batches)
        partition = f"{directory}/data/{TOPIC}-0"

        def rate(load: Callable[..., Any], **arguments: Any) -> Callable[[], float]:
            return lambda: float(size / run_load(load, **arguments)["seconds"] / 1e6)

        samples = bench.interleave(
            {
                "recovery": rate(recover_log, directory=partition, end_offset=end_offset),
                "checksum": rate(checksum_file, path=f"{partition}/{segment_file(0, LOG_SUFFIX)}"),
            }
        )
        restart = _restart(directory, end_offset)
    what = f"batches of {shape.text}"
    server = f"triolog serve, {size / 1e6:,.0f} MB to recover, {what}"
    return [
        Line(f"recovery, {what}", "MB/s", samples["recovery"], at_least(shape.target_mb_per_s, "MB/s")),
        Line(f"plain CRC-32C of the file, {what}", "MB/s", samples["checksum"]),
        ratio(f"recovery / plain CRC-32C, {what}", samples["recovery"], samples["checksum"]),
        Line(server, "s", [restart], note="process start to the log's end offset"),
    ]


def _leave_unflushed(bench: Bench, directory: str, shape: Shape, batches: int) -> None:
    bench.say(f"filling a log with batches of {shape.text}")
    with serving(directory) as server:
        run_load(
            fill,
            address=server.address,
            topic=TOPIC,
            partitions=1,
            batches=batches,
            records=shape.records,
            value_bytes=shape.value_bytes,
        )
        server.kill()


def _restart(directory: str, end_offset: int) -> float:
    """Seconds until a server that finds no clean marker says what it has."""
    started = time.perf_counter()
    with serving(directory) as server, Wire(server.address) as wire:
        asked = [{"topic": TOPIC, "partition": 0, "timestamp": LATEST_TIMESTAMP}]
        answer = wire.call("offsets_for_times", {"partitions": asked})["partitions"][0]
        taken = time.perf_counter() - started
    if answer["offset"] != end_offset:
        raise LoadFailedError(f"{end_offset} records were acknowledged, the log ends at {answer['offset']}")
    return taken
