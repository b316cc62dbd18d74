"""An address behind which the weather changes: connections are cut, answers late, links slow, or everything disappears.

What stands behind it may move: the target is asked for with every connection, and while there is none connections are refused.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

CHUNK_BYTES: Final = 1 << 15
POLL_S: Final = 0.01
CHANGES_S: Final = (0.05, 0.8)
DARK_S: Final = 2.0
"""The longest black hole of `storm`."""


class WeatherProxy:
    """Leaving the block closes everything and waits for its threads. `delay_s`, `bytes_per_second` (0: no limit) and `is_dark`
    may be set at any time; `cut` ends every connection. With `lives` each connection is cut behind so many pieces of answers,
    before the client has seen the last; `ended` counts those."""

    def __init__(self, target: Callable[[], tuple[str, int] | None], *, lives: Callable[[], int | None] = lambda: None) -> None:
        self._target = target
        self._lives = lives
        self.ended = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, name="weather")]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self.port: int = self._listener.getsockname()[1]
        self.delay_s = 0.0
        self.bytes_per_second = 0
        self.is_dark = False
        self.cuts = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._is_closed = True
        self.calm()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()
        self._listener.close()

    def calm(self) -> None:
        """All is well again."""
        self.delay_s, self.bytes_per_second, self.is_dark = 0.0, 0, False

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.cuts += 1

    def storm(self, rng: random.Random, seconds: float) -> None:
        """Seeded weather for so long, from a cut on; then it is calm."""
        until_s = time.monotonic() + seconds
        self.cut()
        while (left_s := until_s - time.monotonic()) > 0:
            self.calm()
            lasts_s = rng.uniform(*CHANGES_S)
            match rng.choice(("clear", "cut", "late", "slow", "dark")):
                case "cut":
                    self.cut()
                case "late":
                    self.delay_s = rng.uniform(0.01, 0.3)
                case "slow":
                    self.bytes_per_second = rng.randrange(5_000, 500_000)
                case "dark":
                    self.is_dark = True
                    lasts_s = rng.uniform(0.1, DARK_S)
                case _:
                    pass
            time.sleep(min(lasts_s, left_s))
        self.calm()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            target = self._target()
            try:
                if target is None:
                    raise ConnectionRefusedError
                server = socket.create_connection(target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            ends = threading.Barrier(2, action=lambda pair=(client, server): self._close(*pair))
            for source, sink, left in ((client, server, None), (server, client, self._lives())):
                pump = threading.Thread(target=self._pump, args=(source, sink, ends, left), name="weather")
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, ends: threading.Barrier, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                left = None if left is None else left - 1
                if left == 0:
                    self.ended += 1
                    break
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.is_dark and not self._is_closed:
                    time.sleep(POLL_S)
                sink.sendall(data)
                if self.bytes_per_second:
                    time.sleep(min(1.0, len(data) / self.bytes_per_second))
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        ends.wait()

    def _close(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            connection.close()
