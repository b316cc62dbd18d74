"""Making, starting and stopping with many partitions."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..loads import append_to_each, check_ends
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.report import Line, RowResult, at_most
from ..measuring.server import Server, cpu_s, serving
from ..measuring.wire import Wire

TOPICS: Final = 5
PARTITIONS: Final = 1_000
RECORDS: Final = 20
VALUE_BYTES: Final = 100
ROUNDS: Final = 3
TARGETS_S: Final = {"creation": 4.0, "orderly stop": 4.0, "clean start": 2.0, "start after SIGKILL": 5.0}


def many_partitions(bench: Bench) -> RowResult:
    """`os`. Each round makes the topics, appends one batch to each partition, stops in order, starts, stops without a change,
    starts, appends again, kills, and starts. Beside the time on the wall stands that of the server on the processor.

    What a round has written stays until the end: for some minutes ext4 does not use a freed inode again, but looks at each
    (its `recently_deleted`). After a round's files were deleted, the next creation took 11 to 20 s instead of 2.5.
    """
    partitions = bench.scale.count(PARTITIONS, least=2)
    rounds = _Rounds([f"t{number}" for number in range(TOPICS)], partitions)
    with bench.workspace() as directory:
        for number in range(min(ROUNDS, bench.scale.rounds)):
            bench.say(f"round {number + 1} of {min(ROUNDS, bench.scale.rounds)}")
            rounds.measure(f"{directory}/{number}")
    lines = []
    for name, samples in rounds.seconds.items():
        cpu = rounds.cpu_seconds[name]
        target = TARGETS_S.get(name)
        note = f"{', '.join(f'{each:.2f}' for each in cpu)} s on the processor"
        lines.append(Line(name, "s", samples, None if target is None else at_most(target, "s"), note))
    title = f"a server of {TOPICS} x {partitions:,} partitions, os, {RECORDS} records of {VALUE_BYTES} B in each"
    return RowResult(title, lines)


class _Rounds:
    """The measurements so far."""

    def __init__(self, topics: list[str], partitions: int) -> None:
        self._topics, self._partitions = topics, partitions
        self.seconds: dict[str, list[float]] = {}
        self.cpu_seconds: dict[str, list[float]] = {}

    def measure(self, directory: str) -> None:
        Path(directory).mkdir()
        with serving(directory) as server, Wire(server.address) as wire:
            self._timed("creation", server, lambda: self._create(wire))
            self._append(server)
            self._stop("orderly stop", server)
        with self._started("clean start", directory) as server:
            self._check(server, RECORDS)
            self._stop("orderly stop, nothing was written", server)
        with self._started("clean start", directory) as server:
            self._append(server)
            server.kill()
            server.wait()
        with self._started("start after SIGKILL", directory) as server:
            self._check(server, 2 * RECORDS)

    def _create(self, wire: Wire) -> None:
        for topic in self._topics:
            wire.create_topic(topic, self._partitions, retention_ms="-1")

    def _append(self, server: Server) -> None:
        run_load(
            append_to_each,
            address=server.address,
            topics=self._topics,
            partitions=self._partitions,
            records=RECORDS,
            value_bytes=VALUE_BYTES,
        )

    def _check(self, server: Server, end_offset: int) -> None:
        run_load(check_ends, address=server.address, topics=self._topics, partitions=self._partitions, end_offset=end_offset)

    def _timed(self, name: str, server: Server, function: Callable[[], None]) -> None:
        started, cpu = time.perf_counter(), cpu_s(server.pid)
        function()
        self._note(name, time.perf_counter() - started, cpu_s(server.pid) - cpu)

    def _stop(self, name: str, server: Server) -> None:
        def stop() -> None:
            os.kill(server.pid, signal.SIGTERM)
            if sys.platform == "linux":
                os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it stays, to be asked how long it took

        self._timed(name, server, stop)
        server.wait()

    @contextmanager
    def _started(self, name: str, directory: str) -> Iterator[Server]:
        """Measure from before the process is spawned until it has answered a greeting."""
        started = time.perf_counter()
        with serving(directory) as server:
            Wire(server.address).socket.close()
            self._note(name, time.perf_counter() - started, cpu_s(server.pid))
            yield server

    def _note(self, name: str, seconds: float, cpu_seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)
        self.cpu_seconds.setdefault(name, []).append(cpu_seconds)
