"""The notifications of a supervised server, and the conditions for feeding its watchdog.

| event | lines |
|---|---|
| it starts | `STATUS=recovering n of m logs`; with each one that makes progress, `EXTEND_TIMEOUT_USEC` |
| it serves | `READY=1`, `STATUS=serving ...` |
| it reloads settings | `RELOADING=1`, `MONOTONIC_USEC`; then `READY=1` |
| it stops | `STOPPING=1`, `STATUS=stopping`, `EXTEND_TIMEOUT_USEC` for the longest time that a stop may take |

The server feeds the watchdog at most every half of its time, each time after a turn of the event loop. In that turn every log
directory in service has forced one block to its device. A stalled loop and a hanging device both cause silence. A full device
does not; a directory where that write fails goes out of service, and the server ends with the last one.
"""

from __future__ import annotations

import time
from typing import Final

import attrs
import trio

from ..broker import Broker, Report, StartProgress
from ..config.broker_config import BrokerConfig
from ..listeners.opening import Addresses
from ..system.supervisor import Supervisor

EXTENSION_S: Final = 60
"""What a start that has come further may take until it comes further again."""
LEAST_S: Final = 1.0
"""Between two lines about a start."""
MORE_FOR_A_STOP_S: Final = 30
"""Beside its grace and its drain: checkpoints and the last syncs."""


@attrs.define(eq=False, repr=False)
class Starting:
    """Tells the supervisor how far a start is, and goes on to whoever else wants to know."""

    _supervisor: Supervisor
    _report: Report
    _said: StartProgress | None = None
    _said_s: float = float("-inf")

    def __call__(self, progress: StartProgress) -> None:
        self._report(progress)
        now_s = time.monotonic()
        if progress == self._said or now_s < self._said_s + LEAST_S:
            return
        status = f"STATUS=recovering {progress.logs_done} of {progress.logs} logs"
        if self._supervisor.tell(status, f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}"):
            self._said, self._said_s = progress, now_s


def status_of(addresses: Addresses) -> str:
    """A line for people."""
    return f"STATUS=serving {addresses}"


async def tell_reloading(supervisor: Supervisor) -> None:
    """Settings are read again; `tell_reloaded` has to follow."""
    await supervisor.tell_surely("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


async def tell_reloaded(supervisor: Supervisor) -> None:
    await supervisor.tell_surely("READY=1")


def tell_stopping(supervisor: Supervisor, config: BrokerConfig) -> None:
    seconds = (config.stop_grace_ms + config.stop_timeout_ms) // 1000 + MORE_FOR_A_STOP_S
    supervisor.tell("STOPPING=1", "STATUS=stopping", f"EXTEND_TIMEOUT_USEC={seconds * 1_000_000}")


async def feed_watchdog(supervisor: Supervisor, broker: Broker) -> None:
    """Feed it for as long as it may be, until cancelled. Raises LogDirectoryError."""
    watchdog_s = supervisor.watchdog_s
    if watchdog_s is None:
        return

    async def step() -> None:
        begun = trio.current_time()
        await broker.directories.feed_watchdog()
        await supervisor.tell_surely("WATCHDOG=1")
        await trio.sleep_until(begun + watchdog_s / 2)

    await broker.disk.errors.repeat("watchdog", step)
