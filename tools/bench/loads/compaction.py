"""Logs of keyed records, and the cleaner's own process at work on one, as a server would start it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ....protocol.records.batch import parse_header, stamp
from ....protocol.records.builder import BatchBuilder
from ....protocol.types import TopicPartition
from ....server.config import DataPermissions, LogConfig
from ....server.storage.cleaner.job import CleaningJob
from ....server.storage.cleaner.selection import choose, plan_round
from ....server.storage.disk.diskops import drive
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.disk.paths import CLEANED_SUFFIX, LOG_SUFFIX, segment_file
from ....server.storage.recovery.recovery import OpenLog, open_log
from ....server.system.clock import system_now_ms
from ..measuring.child import LoadFailedError
from ..measuring.process import memory_mib
from ..measuring.wire import FIRST_TIMESTAMP, Address, Pipeline, Wire, drive_pipelines, produce_frame

BATCH_BYTES: Final = 16384
STAMPED_BYTES: Final = 16
CLEANER: Final = "triolog.server.storage.cleaner"
FILL_BATCH_BYTES: Final = 8 * BATCH_BYTES
FILL_IN_FLIGHT: Final = 8


def keyed_batches(*, total_bytes: int, value_bytes: int, batch_bytes: int = BATCH_BYTES, seed: int = 0) -> Iterator[bytes]:
    """Batches whose keys are drawn from half as many as there are records: 43% of the records are the last of theirs."""
    rng = random.Random(seed)
    each = max(1, batch_bytes // value_bytes)
    count = max(2, total_bytes // (each * value_bytes))
    keys = max(1, count * each // 2)
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    for number in range(count):
        builder = BatchBuilder()
        for slot in range(each):
            builder.append(FIRST_TIMESTAMP + number * each + slot, b"key-%012d" % rng.randrange(keys), value[:value_bytes])
        yield builder.build()


def write_keyed_log(*, directory: str, total_bytes: int, value_bytes: int, map_bytes: int) -> dict[str, Any]:
    """A log of one inactive segment, and the job that compacts it."""
    size = offset = 0
    with Path(directory, segment_file(0, LOG_SUFFIX)).open("wb") as file:
        for batch in keyed_batches(total_bytes=total_bytes, value_bytes=value_bytes):
            header = parse_header(batch)
            size += file.write(stamp(offset, header, 0)) + file.write(batch[STAMPED_BYTES:])
            offset += header.records_count
    fs = OsFileSystem()
    request = OpenLog(
        topic_partition=TopicPartition("keyed", 0),
        directory=directory,
        config=LogConfig(cleanup_policy=("compact",)),
        now_ms=system_now_ms,
        was_clean=False,
    )
    log = open_log(fs, request)
    drive(fs, log.roll())
    now_ms = system_now_ms()
    job = plan_round(log, drive(fs, choose(log, None, now_ms)), now_ms, map_bytes=map_bytes)
    return {"bytes": size, "job": job.encode().decode()}


def run_cleaner(job: str) -> dict[str, float]:
    """Seconds, memory and result of the cleaner's process. What it leaves is deleted, so the log stays as it was."""
    pipe = subprocess.PIPE
    started = time.perf_counter()
    memory = 0.0
    command = [sys.executable, "-m", CLEANER, str(os.getpid()), DataPermissions.OWNER.value]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job)
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if "error" in message:
                raise LoadFailedError(f"the cleaner gave up: {message}")
            if "group" in message:
                memory = memory_mib(process.pid)["VmHWM"]
                process.stdin.write("next\n")
                process.stdin.flush()
    seconds = time.perf_counter() - started
    for path in Path(CleaningJob.decode(job.encode()).directory).glob(f"*{CLEANED_SUFFIX}"):
        path.unlink()
    _, bytes_read, bytes_written, keys, _ = message["result"]
    return {"seconds": seconds, "memory_mib": memory, "keys": keys, "read": bytes_read, "written": bytes_written}


def fill_keyed(*, address: Address, topic: str, total_bytes: int, value_bytes: int) -> dict[str, int]:
    """Append keyed batches to partition 0 of a topic that is there."""
    batches = keyed_batches(total_bytes=total_bytes, value_bytes=value_bytes, batch_bytes=FILL_BATCH_BYTES)
    frames = [produce_frame(number + 2, topic, 0, batch) for number, batch in enumerate(batches)]
    with Wire(address) as wire:
        drive_pipelines([Pipeline(wire, frames, len(frames))], FILL_IN_FLIGHT)
    return {"bytes": sum(map(len, frames))}
