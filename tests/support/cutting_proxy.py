"""A server's address behind which connections break: when an answer has arrived, before the client has seen it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from types import TracebackType
from typing import Final, Self

CHUNK_BYTES: Final = 1 << 16


class CuttingProxy:
    """Forwards to a port of this machine. Each connection is cut behind a random number of pieces of answers.

    `cuts` counts. Leaving the block closes everything and waits for its threads.
    """

    def __init__(self, port: int, source: random.Random, answers: range) -> None:
        self._port = port
        self._source = source
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for connection in self._open:
            self._cut(connection)
        for thread in self._threads[1:]:
            thread.join()
        for connection in (self._listener, *self._open):
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += (client, server)
                left = self._source.choice(self._answers)
                for pump in (
                    threading.Thread(target=self._pump, args=(client, server, None)),
                    threading.Thread(target=self._pump, args=(server, client, left)),
                ):
                    self._threads.append(pump)
                    pump.start()

    def _pump(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if left is not None:
                    left -= 1
                    if not left:
                        self.cuts += 1
                        break
                target.sendall(data)
        self._cut(source)
        self._cut(target)

    def _cut(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
