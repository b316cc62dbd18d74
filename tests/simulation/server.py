"""The server under simulation, life after life.

What the server starts as processes, compacting and scrubbing: here each is a coroutine of its own work, on the world's disk.

The work blocks, so it has a thread, but never runs beside the world: it is handed the processor and hands it back where it
speaks, waits for a line, or looks whether its server is still there. In between time passes as on a device.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from triolog.server.broker import Broker, open_broker_core
from triolog.server.config.broker_config import Address
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.logs.cleaner_process import ChildDiedError
from triolog.server.offline.scrub import scrub_for_server
from triolog.server.sharing.state.values import ShareCounters
from triolog.server.storage.child_process import ServerGoneError, Throttle
from triolog.server.storage.cleaner.__main__ import clean_for_server
from triolog.server.storage.disk.filesystem import FileSystem
from triolog.server.storage.errors import StorageError
from triolog.server.system.clock import ServerClock

from tests.simulation.device.disk import Device
from tests.simulation.network import HOST, Network
from tests.support.brokers import broker_config
from tests.support.crash_fs import PowerCut

LOGGER: Final = logging.getLogger(__name__)

NATIVE_PORT: Final = 9095
KAFKA_PORT: Final = 9092
HTTP_PORT: Final = 8082
ADDRESSES: Final = Addresses(Address(HOST, NATIVE_PORT), Address(HOST, KAFKA_PORT), http=Address(HOST, HTTP_PORT))
GRACE_S: Final = 1.0
PATIENCE_S: Final = 2.0
"""For the change of the disk that ends a life."""
LIMITS: Final[dict[str, Any]] = {
    "checkpoint_interval_ms": 5000,
    "retention_check_interval_ms": 3000,
    "cleaner_backoff_ms": 4000,
    "transaction_max_timeout_ms": 15_000,
    "auto_create_topics_enable": False,
    "lenient": True,  # groups may have short timeouts
    "group_initial_rebalance_delay_ms": 300,
    "group_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 4000,
    "group_consumer_heartbeat_interval_ms": 800,
    "group_streams_session_timeout_ms": 4000,
    "group_streams_heartbeat_interval_ms": 800,
    "group_streams_initial_rebalance_delay_ms": 300,
    "group_share_session_timeout_ms": 4000,
    "group_share_heartbeat_interval_ms": 800,
}


@attrs.define(eq=False)
class Server:
    """Owner: the operator, who starts and ends lives one after the other."""

    device: Device
    network: Network
    durability: str
    nursery: trio.Nursery
    limits: Mapping[str, Any] = attrs.field(factory=dict)
    """Beside LIMITS."""
    checks_clock: bool = False
    beside: Callable[[Broker], Callable[[], Awaitable[None]]] | None = None
    """Opens what runs beside the listeners of a life."""
    broker: Broker | None = None
    latest: Broker | None = None
    """The one that lives, or lived last."""
    children: list[SimulatedChild] = attrs.field(factory=list)
    share_counters: list[ShareCounters] = attrs.field(factory=list)
    """Of each life."""
    refusals: list[str] = attrs.field(factory=list)
    """Why it did not start."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stopping: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)

    async def start(self) -> bool:
        """Begin a life; whether it serves."""
        self._scope, self._stopping, self._ended = trio.CancelScope(), trio.Event(), trio.Event()
        return bool(await self.nursery.start(self._live))

    @property
    def loses(self) -> bool:
        """Whether more than nothing may be lost of what was acknowledged when the power is cut."""
        return self.durability != "fsync"

    async def stop(self) -> None:
        self._stopping.set()
        await self._ended.wait()
        if self.device.fs.is_off:
            self.device.end_process()
        else:
            self.device.fs.end_process()

    async def kill(
        self, *, power: bool, after: int = 0, moment: str = "", left: str = "", patience_s: float = PATIENCE_S
    ) -> None:
        """End a life, in front of one of its next changes of the disk: the first for `after` 0, that with which the next
        `moment` begins where one is given. `left`: see `Device.cut_power`."""
        if moment:
            self.device.fs.cut_at(moment, after)
        elif after:
            self.device.fs.cut_after(after)
        if moment or after:
            with trio.move_on_after(patience_s):
                await self._ended.wait()
        self.network.cut_all()
        if power:
            self.device.cut_power(left)
        else:
            self.device.end_process()
        self._scope.cancel()
        await self._ended.wait()

    async def _live(self, *, task_status: trio.TaskStatus[bool]) -> None:
        fs = self.device.fs
        is_told = False
        try:
            with self._scope:
                paths = [Path(path) for path in self.device.directories]
                config = broker_config(*paths, durability=self.durability, **LIMITS, **self.limits)
                open_child = opener(fs, self.device.latency, self.children)
                clock = ServerClock(self.device.now_ms, trio.current_time, is_checked=self.checks_clock)
                async with open_broker_core(config, fs=fs, clock=clock, open_child=open_child) as broker:
                    self.latest = broker
                    self.share_counters.append(broker.shares.counters)
                    listeners = Listeners(broker)
                    async with trio.open_nursery() as serving:
                        if self.beside is not None:
                            serving.start_soon(self._run_beside, self.beside(broker))
                        await listeners.start(serving, ADDRESSES)
                        self.broker, is_told = broker, True
                        task_status.started(True)
                        await self._stopping.wait()
                        listeners.stop(GRACE_S)
        except* PowerCut:
            self.network.cut_all()
        except* (StorageError, OSError) as errors:
            self.refusals.append(self.device.without_paths(repr(errors.exceptions)))
        finally:
            self.broker = None
            self._ended.set()
        if not is_told:
            task_status.started(False)

    async def _run_beside(self, run: Callable[[], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await self._stopping.wait()
            nursery.cancel_scope.cancel()


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
