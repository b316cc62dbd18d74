"""The loads of the benchmark, each in a process of its own: producers of prebuilt batches, requests on a schedule, and the
cleaner.

On a schedule latency counts from when a request was due, so waiting is not hidden. The cleaner works on a log of keyed records
in the process that a server would start for it.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from ...protocol.records.batch import parse_header, stamp
from ...protocol.records.builder import BatchBuilder
from ...protocol.types import TopicPartition
from ...server.config import DataPermissions, LogConfig
from ...server.storage.cleaner.job import CleaningJob
from ...server.storage.cleaner.selection import choose, plan_round
from ...server.storage.disk.diskops import drive
from ...server.storage.disk.filesystem import OsFileSystem
from ...server.storage.disk.paths import CLEANED_SUFFIX, LOG_SUFFIX, segment_file
from ...server.storage.recovery.recovery import OpenLog, open_log
from ...server.system.clock import system_now_ms
from .measuring.child import LoadFailedError, say_started
from .measuring.report import percentile
from .measuring.server import memory_mib
from .measuring.wire import (
    FIRST_TIMESTAMP,
    RECEIVE_BYTES,
    Address,
    Pipeline,
    Wire,
    batch_of,
    drive_pipelines,
    produce_frame,
    read_answer,
)

FILL_IN_FLIGHT: Final = 32
MAX_CORRELATION_ID: Final = 2**31


def produce(
    *, address: Address, topic: str, connections: int, in_flight: int, records: int, value_bytes: int, requests: int
) -> dict[str, float]:
    """Send `requests` batches in all over connections with `in_flight` each; return records per second."""
    batch = batch_of(records, value_bytes)
    frames = [produce_frame(number + 2, topic, 0, batch) for number in range(in_flight)]
    each = max(in_flight, requests // connections)
    wires = [Wire(address) for _ in range(connections)]
    try:
        seconds = drive_pipelines([Pipeline(wire, cycle(frames), each) for wire in wires], in_flight)
    finally:
        for wire in wires:
            wire.socket.close()
    return {"rate": each * connections * records / seconds}


def _fill_frames(topic: str, partitions: int, batches: int, records: int, value_bytes: int) -> Iterator[bytes]:
    """Yield frames that append `batches` batches to each of `partitions` partitions, in turn."""
    for number in range(batches):
        batch = batch_of(records, value_bytes, first_timestamp=FIRST_TIMESTAMP + number * records)
        for partition in range(partitions):
            yield produce_frame((number * partitions + partition) % MAX_CORRELATION_ID + 2, topic, partition, batch)


def fill(
    *,
    address: Address,
    topic: str,
    partitions: int,
    batches: int,
    records: int,
    value_bytes: int,
    config: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Create a topic, its keys with underscores for dots, and append the same batches to each of its partitions.

    Record n of a partition has offset n and timestamp FIRST_TIMESTAMP + n.
    """
    with Wire(address) as wire:
        wire.create_topic(topic, partitions, **{"retention_ms": "-1", **(config or {})})
        frames = _fill_frames(topic, partitions, batches, records, value_bytes)
        drive_pipelines([Pipeline(wire, frames, partitions * batches)], FILL_IN_FLIGHT)
    return {"bytes": partitions * batches * len(batch_of(records, value_bytes))}


ANSWER_TIMEOUT_S = 30.0

MakeFrame = Callable[[int], bytes]
"""The frame with that correlation id."""


class Schedule:
    """Sends over several connections in turn, at a fixed rate; owns their sockets' receive buffers."""

    def __init__(self, wires: list[Wire], make_frame: MakeFrame, rate: float) -> None:
        self._wires = wires
        self._buffers = {wire.socket: bytearray() for wire in wires}
        self._make_frame = make_frame
        self._interval_s = 1 / rate
        self._due: dict[int, float] = {}
        self._sent = 0
        self.latencies_ms: list[float] = []

    def run(self, seconds: float | None) -> None:
        """Send for `seconds`, or until standard input ends; then wait for the unanswered requests."""
        started = time.perf_counter()
        end = float("inf") if seconds is None else started + seconds
        sockets = list(self._buffers)
        watched: list[Any] = sockets if seconds is not None else [*sockets, sys.stdin]
        next_due = started
        while (now := time.perf_counter()) < end:
            while next_due <= now:
                self._send(next_due)
                next_due += self._interval_s
            readable, _, _ = select.select(watched, [], [], max(0.0, next_due - time.perf_counter()))
            if sys.stdin in readable:
                break
            for stream in readable:
                self._receive(stream)
        while self._due:
            readable, _, _ = select.select(sockets, [], [], ANSWER_TIMEOUT_S)
            if not readable:
                raise LoadFailedError(f"{len(self._due)} requests are unanswered after {ANSWER_TIMEOUT_S:g} s")
            for stream in readable:
                self._receive(stream)

    def _send(self, due: float) -> None:
        correlation_id = self._sent + 2
        self._due[correlation_id] = due
        self._wires[self._sent % len(self._wires)].socket.sendall(self._make_frame(correlation_id))
        self._sent += 1

    def _receive(self, stream: Any) -> None:
        data = stream.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailedError("the server closed the connection")
        now = time.perf_counter()
        buffer = self._buffers[stream]
        buffer += data
        position = 0
        while len(buffer) - position >= 4:
            stop = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if len(buffer) < stop:
                break
            correlation_id, _ = read_answer(bytes(buffer[position + 4 : stop]))
            self.latencies_ms.append((now - self._due.pop(correlation_id)) * 1000)
            position = stop
        del buffer[:position]


def append_on_schedule(
    *, address: Address, topic: str, connections: int, rate: float, seconds: float | None, value_bytes: int, records: int = 1
) -> dict[str, float]:
    """Append batches of `records` records at a fixed rate for `seconds`, or until standard input ends.

    Return p50 and p99 of their acknowledgements in ms.
    """
    batch = batch_of(records, value_bytes)
    wires = [Wire(address) for _ in range(connections)]
    try:
        schedule = Schedule(wires, lambda number: produce_frame(number, topic, 0, batch), rate)
        if seconds is None:
            say_started()
        schedule.run(seconds)
    finally:
        for wire in wires:
            wire.socket.close()
    latencies = schedule.latencies_ms
    return {"p50_ms": percentile(latencies, 0.5), "p99_ms": percentile(latencies, 0.99), "count": len(latencies)}


BATCH_BYTES: Final = 16384
STAMPED_BYTES: Final = 16
CLEANER: Final = "triolog.server.storage.cleaner"
FILL_BATCH_BYTES: Final = 8 * BATCH_BYTES
KEYED_IN_FLIGHT: Final = 8


def keyed_batches(*, total_bytes: int, value_bytes: int, batch_bytes: int = BATCH_BYTES, seed: int = 0) -> Iterator[bytes]:
    """Yield batches with half as many keys as records: 43% of the records are the last of their key."""
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
    """Write a log of one inactive segment; return the job that compacts it."""
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
    """Run the cleaner's process; return seconds, memory and result. Its files are deleted, so the log stays as it was."""
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
                raise LoadFailedError(f"the cleaner stopped: {message}")
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
    """Append keyed batches to partition 0 of an existing topic."""
    batches = keyed_batches(total_bytes=total_bytes, value_bytes=value_bytes, batch_bytes=FILL_BATCH_BYTES)
    frames = [produce_frame(number + 2, topic, 0, batch) for number, batch in enumerate(batches)]
    with Wire(address) as wire:
        drive_pipelines([Pipeline(wire, frames, len(frames))], KEYED_IN_FLIGHT)
    return {"bytes": sum(map(len, frames))}
