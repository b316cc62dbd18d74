"""The fake native server behind a real socket, in a thread of its own: for clients that block."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import trio

from .native_server import NativeServer

T = TypeVar("T")


class ServerThread:
    """Handle on the server's thread. `run` is the only way to touch the server while it serves."""

    def __init__(self) -> None:
        self.port = 0
        self.server: NativeServer | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.CancelScope | None = None

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def run(self, function: Callable[[NativeServer], T]) -> T:
        """Call `function` with the server, in the server's thread, and return what it returns."""
        assert self._token is not None
        assert self.server is not None
        return trio.from_thread.run_sync(function, self.server, trio_token=self._token)

    def move(self) -> None:
        """Break every connection and listen on another port."""
        assert self._token is not None
        trio.from_thread.run(self._listen, trio_token=self._token)

    async def _listen(self) -> None:
        assert self.server is not None
        if self._stop is not None:
            self._stop.cancel()
        self.server.kill()
        self._stop = trio.CancelScope()
        (listener,) = await self.server.nursery.start(partial(self._serve, self._stop))
        self.port = listener.socket.getsockname()[1]

    async def _serve(self, stop: trio.CancelScope, *, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        assert self.server is not None
        with stop:
            await trio.serve_tcp(self.server.serve, 0, host="127.0.0.1", task_status=task_status)

    async def main(self, started: queue.SimpleQueue[None], topics: dict[str, int]) -> None:
        async with trio.open_nursery() as nursery:
            self._token = trio.lowlevel.current_trio_token()
            self.server = NativeServer(nursery, **topics)
            await self._listen()
            started.put(None)
            await trio.sleep_forever()

    def stop(self) -> None:
        def cancel(server: NativeServer) -> None:
            server.nursery.cancel_scope.cancel()

        self.run(cancel)


@contextmanager
def serving(**topics: int) -> Iterator[ServerThread]:
    """A server with these topics, until the block ends."""
    handle = ServerThread()
    started: queue.SimpleQueue[None] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(handle.main, started, topics))
    thread.start()
    started.get()
    try:
        yield handle
    finally:
        handle.stop()
        thread.join()
