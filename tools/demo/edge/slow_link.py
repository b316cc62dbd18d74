"""The uplink: a TCP proxy that is down, or up and slow. It looks its target up for each connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

CHUNK_BYTES: Final = 16 * 1024
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class SlowLink:
    """Owned by the task that runs it. `is_up` and `bytes_per_second` (of both directions together; 0: as fast as it goes) may
    be set at any time."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._free_at = 0.0
        self.port = 0
        self.is_up = False
        self.bytes_per_second = 0
        self.carried_bytes = 0
        self.turned_away = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and carry until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._carry, listeners)

    async def _carry(self, client: trio.SocketStream) -> None:
        """Carry one connection. While the link is down it ends at once."""
        if not self.is_up:
            self.turned_away += 1
            return
        with suppress(*GONE):
            async with await trio.open_tcp_stream(*self._target()) as server, trio.open_nursery() as nursery:
                end = nursery.cancel_scope.cancel
                nursery.start_soon(partial(self._pump, client, server, end))
                nursery.start_soon(partial(self._pump, server, client, end))

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, end: Callable[[], None]) -> None:
        with suppress(*GONE):
            while data := await source.receive_some(CHUNK_BYTES):
                self.carried_bytes += len(data)
                if self.bytes_per_second:
                    self._free_at = max(self._free_at, trio.current_time()) + len(data) / self.bytes_per_second
                    await trio.sleep_until(self._free_at)
                await sink.send_all(data)
        end()
