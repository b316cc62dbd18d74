"""Requests on a schedule, whatever the server does: latency counts from when a request was due, so waiting is not hidden."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from typing import Any

from ..measuring.child import LoadFailedError, say_started
from ..measuring.measure import percentile
from ..measuring.wire import RECEIVE_BYTES, Address, Wire, batch_of, produce_frame, read_answer

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
        """Send for so long, or until standard input ends; then wait for what is unanswered."""
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
