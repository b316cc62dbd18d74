"""The audit log (`audit_file`): who logged in and who did not, what was refused, and who changed what, a JSON object a line.

    {"time": "2026-11-26T01:02:03.004Z", "event": "login", "principal": "User:alice", "host": "10.0.0.1", ...}

Lines are appended in the order of events by one task, in a thread, and the file is opened for each write, so that it may be
moved away at any time. They are not synced. What cannot be written, or is too much while the device is busy, is counted, and
said in the server's log. No event has a password, a token or a credential in it: who notes one names things only.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import trio

from ...protocol.limits import MIB
from ..partitions.disk import Disk
from ..system.clock import NowMs

LOGGER: Final = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 4 * MIB
"""Lines that wait to be written."""
MAX_TEXT_CHARS: Final = 1000
"""Of a value: names come from clients."""
MAX_NAMES: Final = 100
"""Of a list; how many there are is said."""
PERMISSIONS: Final = 0o600
LAST_WRITE_S: Final = 5.0


@attrs.define(eq=False, repr=False)
class AuditLog:
    """Owner: the broker's security. `run` is its task; `note` may be called from anywhere in the trio thread."""

    path: str
    _disk: Disk
    _now_ms: NowMs
    lost: int = 0
    """Events that were not written."""
    _lines: list[bytes] = attrs.field(factory=list)
    _waiting_bytes: int = 0
    _wake: trio.Event = attrs.field(factory=trio.Event)

    def note(self, event: str, **facts: Any) -> None:
        """Add an event. Facts are text, numbers, and lists of text."""
        time = datetime.fromtimestamp(self._now_ms() / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"time": time, "event": event, **{name: _bounded(value) for name, value in facts.items()}}
        line = json.dumps(told, ensure_ascii=True).encode() + b"\n"
        if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
            self._lose(1, "the device does not take them")
            return
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._wake.set()

    async def open(self) -> None:
        """Raises OSError, naming the file, when it cannot be written."""
        await self._disk.call(_append, self.path, b"")

    async def run(self) -> None:
        """Write until cancelled, and then what is left."""
        try:
            await self._disk.errors.repeat("audit-log", self._write_next)
        finally:
            with trio.move_on_after(LAST_WRITE_S) as scope:
                scope.shield = True
                await self._write()

    async def _write_next(self) -> None:
        await self._wake.wait()
        self._wake = trio.Event()
        await self._write()

    async def _write(self) -> None:
        lines, self._lines, self._waiting_bytes = self._lines, [], 0
        if not lines:
            return
        try:
            await self._disk.call(_append, self.path, b"".join(lines))
        except OSError as exc:
            self._lose(len(lines), exc.strerror or str(exc))

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        LOGGER.error("audit_file %s lacks events=%d since the start: %s", self.path, self.lost, why)


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]}..."
    if isinstance(value, list):
        kept = [_bounded(each) for each in value[:MAX_NAMES]]
        return kept if len(value) <= MAX_NAMES else [*kept, f"and {len(value) - MAX_NAMES} more"]
    return value


def _append(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PERMISSIONS)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
