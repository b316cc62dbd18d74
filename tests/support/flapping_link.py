"""A TCP link to a server that goes down again and again: hours of outages, without a wait for them.

paho-mqtt and librdkafka have threads and clocks of their own, so a virtual clock cannot drive them. No outage here
has a duration either. The link goes down in the middle of a packet, after it has carried as many bytes as a seed says. It
comes back when as many connections were refused. So the same links meet the same outages on a busy machine.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import trio

OUTAGES_AN_HOUR: Final = 12
CHUNK_BYTES: Final = 16 * 1024
CARRIED_BYTES: Final = (200, 2_000, 20_000)
"""About as much until the next outage."""
MAX_REFUSALS: Final = 3
BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class FlappingLink:
    """Runs in a thread for the time of the block. `port` is known before, so that a server can advertise it."""

    def __init__(self, hours: int, seed: int) -> None:
        self.outages_left = hours * OUTAGES_AN_HOUR
        self.refused = 0
        self.target: Callable[[], tuple[str, int]] | None = None
        self._rng = random.Random(f"flapping/{seed}")
        self._refusals_left = 0
        self._carried_until_down = self._draw_bytes()
        self._connections: set[trio.CancelScope] = set()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="flapping link")
        self._is_ready = threading.Event()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()

    async def _run(self) -> None:
        with self._scope:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.port = listeners[0].socket.getsockname()[1]
            self._token = trio.lowlevel.current_trio_token()
            self._is_ready.set()
            await trio.serve_listeners(self._carry, listeners)

    def _draw_bytes(self) -> int:
        return round(self._rng.choice(CARRIED_BYTES) * self._rng.uniform(0.5, 1.5))

    async def _carry(self, client: trio.SocketStream) -> None:
        """Carry one connection until it ends or the link goes down. A connection to a link that is down ends at once."""
        if self._refusals_left:
            self._refusals_left -= 1
            self.refused += 1
            return
        assert self.target is not None
        with suppress(*BROKEN), trio.CancelScope() as scope:
            async with await trio.open_tcp_stream(*self.target()) as server, trio.open_nursery() as nursery:
                self._connections.add(scope)
                try:
                    nursery.start_soon(self._pump, client, server, scope)
                    await self._pump(server, client, scope)
                finally:
                    self._connections.discard(scope)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(*BROKEN):
            while data := await source.receive_some(CHUNK_BYTES):
                carried = self._carried_until_down
                if is_last := bool(self.outages_left) and len(data) >= carried:
                    self._go_down()
                else:
                    self._carried_until_down -= len(data)
                await sink.send_all(data[:carried] if is_last else data)
                if is_last:
                    break
        for each in list(self._connections) if self._refusals_left else [scope]:
            each.cancel()

    def _go_down(self) -> None:
        self.outages_left -= 1
        self._refusals_left = self._rng.randint(1, MAX_REFUSALS)
        self._carried_until_down = self._draw_bytes()
