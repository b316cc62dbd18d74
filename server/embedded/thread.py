"""A broker in a thread of its own, with a trio loop of its own: begun, ended, and called from other threads.

Who never ends it has it ended in order when the interpreter exits.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import trio

from ..config.broker_config import Address
from ..fake.clock import MovedClock
from ..fake.life import ForkedError
from ..system.clock import system_now_ms
from .broker import EmbeddedBroker, describe_broker

T = TypeVar("T")

_THREADS: Final[weakref.WeakSet[BrokerThread]] = weakref.WeakSet()
"""Those of this process that have begun."""


def clock_of(options: dict[str, Any]) -> MovedClock:
    """The clock that options of `open_broker` ask for, which are without it then: the thread's loop runs by it, too."""
    clock: MovedClock | None = options.pop("clock", None)
    return clock or MovedClock(options.pop("now_ms", system_now_ms))


class BrokerThread:
    """Owner of the thread, and of the broker that runs there."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[EmbeddedBroker]], clock: MovedClock) -> None:
        self._moved_clock = clock
        self._open = opened
        self._thread: threading.Thread | None = None
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._broker: EmbeddedBroker | None = None
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        running = self._broker
        return (
            f"<{type(self).__name__}, not started or ended>"
            if running is None
            else (describe_broker(self, is_running=running.life.is_running))
        )

    # ---- life ----------------------------------------------------------------------------------------------------------

    def begin(self, ready: Callable[[], None], ended: Callable[[], None]) -> None:
        """Start the thread. It calls `ready` when the broker serves, and `ended` as the last it does, also where it has never
        served."""
        if self._thread is not None:
            raise RuntimeError("the broker was started already")
        self._thread = threading.Thread(target=self._run, args=(ready, ended), name="triolog-broker", daemon=True)
        _THREADS.add(self)
        self._thread.start()

    def end(self) -> bool:
        """Ask it to stop in order. False: it does not run."""
        if self._thread is None or not self._thread.is_alive():
            return False
        if self._token is not None and self._stop is not None:
            with contextlib.suppress(trio.RunFinishedError):  # somebody else has stopped it
                self._token.run_sync_soon(self._stop.set)
        return True

    def join(self) -> None:
        """Wait until it has ended. Raises what has ended it before it was asked to."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def after_fork(self) -> None:
        """This is the copy in a process that was forked, where the thread is not."""
        self._broker = self._token = None
        self._failure = ForkedError()

    def _run(self, ready: Callable[[], None], ended: Callable[[], None]) -> None:
        try:
            trio.run(self._serve, ready, clock=self._moved_clock)
        except BaseException as exc:
            self._failure = exc
        finally:
            self._broker = None
            _THREADS.discard(self)
            ended()

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._stop = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with self._open() as self._broker, trio.open_nursery() as self._nursery:
            ready()
            await self._stop.wait()
            self._nursery.cancel_scope.cancel()

    @property
    def _target(self) -> EmbeddedBroker:
        """The broker that runs. Raises RuntimeError."""
        if self._broker is None:
            if isinstance(self._failure, ForkedError):
                raise ForkedError
            raise RuntimeError("the broker does not run; use it inside the block that opens it") from self._failure
        return self._broker

    # ---- where it is -----------------------------------------------------------------------------------------------------

    @property
    def native(self) -> Address | None:
        """Return the address of the native listener; None without one."""
        return self._target.native

    @property
    def kafka(self) -> Address | None:
        """Return the address of the Kafka listener; None without one."""
        return self._target.kafka

    @property
    def metrics(self) -> Address | None:
        """Return the address of /metrics, /livez and /readyz; None without one."""
        return self._target.metrics

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for `bootstrap.servers` of Kafka clients. Raises RuntimeError without such a listener."""
        return self._target.bootstrap_servers

    @property
    def path(self) -> str:
        """The directory with the data."""
        return self._target.path


class BlockingThread(BrokerThread):
    """A thread whose callers block until they have their answer."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the thread, wait until the broker serves, and return it. Raises what keeps it from starting."""
        ready = threading.Event()
        self.begin(ready.set, ready.set)
        ready.wait()
        if self._failure is not None:
            self.join()
        return self

    def stop(self) -> None:
        """Stop in order and wait for it; stopping twice is fine."""
        if self.end():
            self.join()

    @property
    def _caller(self) -> Self:
        return self

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the broker's thread. Raises RuntimeError when the broker does not run, or is stopped
        meanwhile."""
        return self._outside_of_trio(lambda: trio.from_thread.run(function, trio_token=self._token))

    def call_now(self, function: Callable[[], T]) -> T:
        """Run a function in the broker's thread. Raises RuntimeError as `call` does."""
        return self._outside_of_trio(lambda: trio.from_thread.run_sync(function, trio_token=self._token))

    def _outside_of_trio(self, call: Callable[[], T]) -> T:
        """Call it in this thread, or in one of its own where this one runs another trio program, a test: trio would refuse.
        A call that the stop overtakes ends with an error that has a meaning outside of trio."""
        _ = self._target
        try:
            if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is self._token:
                return call()
            from concurrent.futures import ThreadPoolExecutor  # seldom needed, and not small

            with ThreadPoolExecutor(1, "triolog-call") as executor:
                return executor.submit(call).result()
        except (trio.Cancelled, trio.RunFinishedError):
            raise RuntimeError("the broker was stopped during the call; its outcome is unknown") from self._failure


# ---- the process -----------------------------------------------------------------------------------------------------------


def _end_all() -> None:
    for each in list(_THREADS):
        if each.end():
            with contextlib.suppress(BaseException):
                each.join()


def _forked() -> None:
    for each in list(_THREADS):
        each.after_fork()


# Before the interpreter refuses new threads (from Python 3.12 on it does before `atexit`), which a stop may need for its disk
# work. `concurrent.futures` registers itself in the same way.
getattr(threading, "_register_atexit", atexit.register)(_end_all)
os.register_at_fork(after_in_child=_forked)
