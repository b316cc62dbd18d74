"""A broker in a thread of its own, with a trio loop of its own: started, called from any thread, stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, TypeVar

import trio

from ..control.clock import MovedClock
from .broker import EmbeddedBroker

T = TypeVar("T")


class BrokerThread:
    """Owner of the thread, and of the broker that runs there."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[EmbeddedBroker]], clock: MovedClock) -> None:
        self._moved_clock = clock
        self._open = opened
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._broker: EmbeddedBroker | None = None
        self._failure: BaseException | None = None

    # ---- life ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread and wait until the broker serves. Raises what keeps it from starting."""
        if self._thread is not None:
            raise RuntimeError("the broker was started already")
        self._thread = threading.Thread(target=self._run, name="triolog-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop in order and wait for it; stopping twice is fine."""
        if self._thread is None or not self._thread.is_alive():
            return
        if self._token is not None and self._stop is not None:
            with contextlib.suppress(trio.RunFinishedError):  # another thread has stopped it
                self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self._moved_clock)
        except BaseException as exc:
            self._failure = exc
        finally:
            self._broker = None
            self._ready.set()

    async def _serve(self) -> None:
        self._stop = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with self._open() as self._broker:
            self._ready.set()
            await self._stop.wait()

    @property
    def _target(self) -> EmbeddedBroker:
        """The broker that runs. Raises RuntimeError."""
        if self._broker is None:
            raise RuntimeError("the broker does not run; use it inside `with BlockingBroker() as broker`") from self._failure
        return self._broker

    @property
    def _caller(self) -> Self:
        return self

    # ---- calls ---------------------------------------------------------------------------------------------------------

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
            with ThreadPoolExecutor(1, "triolog-call") as executor:
                return executor.submit(call).result()
        except (trio.Cancelled, trio.RunFinishedError):
            raise RuntimeError("the broker was stopped during the call; its outcome is unknown") from self._failure
