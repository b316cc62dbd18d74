"""Recovery of a log that a killed server left, beside the plain checksum of its file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from ....protocol.limits import MIB
from ....protocol.records.crc32c import crc32c
from ....protocol.types import LATEST_TIMESTAMP, TopicPartition
from ....server.config import LogConfig
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.disk.paths import LOG_SUFFIX, segment_file
from ....server.storage.recovery.recovery import OpenLog, open_log
from ....server.system.clock import system_now_ms
from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.measure import Line, RowResult, at_least, ratio
from ..measuring.server import serving
from ..measuring.wire import Wire, batch_of

TOPIC: Final = "crashed"
SHAPES: Final = {"16 KiB": (16, 1011, 512_000_000, 400), "200 B": (1, 130, 20_000_000, 30)}
"""By size of a batch: its records, the bytes of a value, the bytes of the log, and the MB/s that recovery is to reach."""


def crash_recovery(bench: Bench) -> RowResult:
    """Kill a server under `os` that has one segment. Its files are in the page cache, and on the device after the warm-up."""
    return RowResult("recovery of an unflushed log after SIGKILL", [line for size in SHAPES for line in _lines(bench, size)])


def _lines(bench: Bench, name: str) -> list[Line]:
    records, value_bytes, log_bytes, target = SHAPES[name]
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
        raise LoadFailedError(f"recovery ended at offset {log.log_end_offset}, the server had appended {end_offset} records")
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
        raise LoadFailedError(f"the server had acknowledged {end_offset} records, the log ends at {answer['offset']}")
    return seconds
