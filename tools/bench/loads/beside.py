"""Appenders on a schedule, alone and beside something else that the server does for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, LoadProcess, run_load
from ..measuring.measure import Line, Target, ratio
from ..measuring.server import Server
from ..measuring.wire import Wire
from .open_loop import append_on_schedule

TOPIC: Final = "appended"
RATE: Final = 500.0
"""A third of what one connection gets synced on a slow device: appenders do not queue because of themselves."""
CONNECTIONS: Final = 8
VALUE_BYTES: Final = 100
SECONDS: Final = 3.0
ROUNDS: Final = 3
POLL_S: Final = 0.2
"""A look may be at a directory of thousands of names, which takes a core for milliseconds."""
TIMEOUT_S: Final = 120.0


@attrs.frozen
class Appenders:
    """Records of 100 B to a topic of their own, under the server's durability."""

    bench: Bench
    server: Server

    def create_topic(self) -> None:
        with Wire(self.server.address) as wire:
            wire.create_topic(TOPIC, retention_ms="-1")

    def alone(self) -> float:
        """Their p99 in ms."""
        return float(run_load(append_on_schedule, **self._arguments(self.bench.scale.seconds(SECONDS)))["p99_ms"])

    def beside(self, begin: Callable[[], None], is_over: Callable[[], bool]) -> float:
        """Their p99 in ms from just before `begin` until it `is_over`."""

        def work() -> None:
            begin()
            wait_for(is_over)

        return self.during(work)

    def during(self, work: Callable[[], object]) -> float:
        """Their p99 in ms from just before `work` until it returns."""
        with LoadProcess(append_on_schedule, self._arguments(None)) as load:
            load.wait_until_started()
            work()
            return float(load.answer()["p99_ms"])

    def _arguments(self, seconds: float | None) -> dict[str, Any]:
        return {
            "address": self.server.address,
            "topic": TOPIC,
            "connections": CONNECTIONS,
            "rate": RATE,
            "seconds": seconds,
            "value_bytes": VALUE_BYTES,
        }


def wait_for(is_over: Callable[[], bool]) -> None:
    """Raises LoadFailedError when that does not come."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_over():
        if time.monotonic() > deadline:
            raise LoadFailedError(f"what the server was to do was not done within {TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def sync_all() -> None:
    """Let the device have what was written before: it is not to be part of what is measured next."""
    os.sync()


def beside_lines(what: str, beside: list[float], alone: list[float], target: Target | None, note: str = "") -> list[Line]:
    return [
        Line("appenders' p99 alone", "ms", alone),
        Line(f"appenders' p99 during {what}", "ms", beside),
        ratio(f"during {what} / alone", beside, alone, target, note),
    ]
