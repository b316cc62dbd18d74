"""What the server starts as processes, compacting and scrubbing: here each is a coroutine of its own work, on the world's disk.

The work blocks, so it has a thread, but never runs beside the world: it is handed the processor and hands it back where it
speaks, waits for a line, or looks whether its server is still there. In between time passes as on a device.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio
from triolog.server.logs.cleaner_process import ChildDiedError
from triolog.server.offline.scrub import scrub_for_server
from triolog.server.storage.child_process import ServerGoneError, Throttle
from triolog.server.storage.cleaner.__main__ import clean_for_server
from triolog.server.storage.disk.filesystem import FileSystem

Work = Callable[..., None]
WORK: Final[dict[str, Work]] = {
    "storage.cleaner": clean_for_server,
    "offline.scrub": partial(scrub_for_server, make_throttle=lambda _: Throttle(0)),
}
"""By module. Nothing waits for the processor's own clock."""


@attrs.define(eq=False)
class SimulatedChild:
    """Owner: the task that opened it. The thread sees this object as its input, its output and its watch over the server."""

    fs: FileSystem
    work: Work
    latency: Callable[[], float]
    is_killed: bool = False
    """By the operator."""
    _input: list[str] = attrs.field(factory=list)
    _output: list[str] = attrs.field(factory=list)
    _is_ended: bool = False
    _error: BaseException | None = None
    _thread: threading.Thread | None = None
    _to_child: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    _to_world: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    _is_unwanted: bool = False

    async def send(self, line: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._check_alive()
        self._input.append(line.decode())

    async def receive(self) -> dict[str, Any]:
        while not self._output:
            with trio.CancelScope(deadline=trio.current_time() + self.latency()):
                await trio.sleep_forever()
            self._check_alive()
            self._go_on()
        return json.loads(self._output.pop(0))  # type: ignore[no-any-return]

    def end(self) -> None:
        """What it was doing stays as it is."""
        self._is_unwanted = True
        if self._thread is not None and not self._is_ended:
            self._go_on()
        if self._thread is not None:
            self._thread.join()

    def _check_alive(self) -> None:
        if self._error is not None:
            raise self._error
        if self.is_killed or self._is_ended:
            raise ChildDiedError("the process was ended by signal 9 before its work was done")

    def _go_on(self) -> None:
        """Let it work until it waits for something."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._to_child.release()
        self._to_world.acquire()

    def _run(self) -> None:
        try:
            self.work(self.fs, self, self, self)
        except ServerGoneError:
            pass
        except BaseException as exc:  # the power of the machine was cut; or a bug, which is to end the world
            self._error = None if self._is_unwanted else exc
        self._is_ended = True
        self._to_world.release()

    def readline(self) -> str:
        """Of its standard input."""
        while not self._input:
            self.check()
        return self._input.pop(0)

    def write(self, line: str) -> None:
        """To its standard output."""
        self._output.append(line)

    def flush(self) -> None:
        self.check()

    def check(self) -> None:
        """Whether its server is there: asked at every read and write, which take time."""
        self._to_world.release()
        self._to_child.acquire()
        if self._is_unwanted:
            raise ServerGoneError

    def is_alone(self) -> bool:
        return self._is_unwanted


def opener(
    fs: FileSystem, latency: Callable[[], float], running: list[SimulatedChild]
) -> Callable[..., AbstractAsyncContextManager[SimulatedChild]]:
    """Starts children of a server on this disk; those that run are in a list."""

    @asynccontextmanager
    async def open_child(module: str, *_: str) -> AsyncIterator[SimulatedChild]:
        child = SimulatedChild(fs, WORK[module], latency)
        running.append(child)
        try:
            yield child
        finally:
            running.remove(child)
            child.end()

    return open_child
