"""Where the console listens: a few connections at a time, each with a session of HTTP. Further ones wait to be accepted."""

from __future__ import annotations

import logging
import socket
from typing import Final

import attrs
import trio

from ...server.listeners.http.messages import Answer
from ...server.listeners.http.session import HttpSession
from ...server.settings.address import Address

LOGGER: Final = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 128
MAX_BODY_BYTES: Final = 16 * 2**20
BACKLOG: Final = 128
ACCEPT_PAUSE_S: Final = 0.1


def listening_socket(address: Address) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except OSError as exc:
        raise OSError(exc.errno, f"cannot listen on {address}: {exc.strerror}; choose another address") from exc


def address_of(listening: socket.socket) -> Address:
    """Where it really listens."""
    host, port = listening.getsockname()[:2]
    return Address(host, port)


@attrs.define(eq=False, repr=False)
class ConsoleListener:
    """Owner of the connections of browsers. `run` is its task, and closes the socket."""

    listening: socket.socket
    answer: Answer
    _limit: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(MAX_CONNECTIONS))

    @property
    def connections(self) -> int:
        return int(self._limit.borrowed_tokens)

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the status is the address."""
        self.listening.setblocking(False)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self.listening))
        async with listener, trio.open_nursery() as nursery:
            task_status.started(address_of(self.listening))
            while True:
                place = object()
                await self._limit.acquire_on_behalf_of(place)
                try:
                    stream = await listener.accept()
                except OSError as exc:
                    self._limit.release_on_behalf_of(place)
                    LOGGER.error("accepting failed (%s); it is tried again", exc)
                    await trio.sleep(ACCEPT_PAUSE_S)
                    continue
                nursery.start_soon(self._serve, stream, place)

    async def _serve(self, stream: trio.SocketStream, place: object) -> None:
        try:
            peer = str(stream.socket.getpeername()[0])
            await HttpSession(stream, peer, self.answer, _report_bug, MAX_BODY_BYTES).serve()
        except OSError as exc:
            LOGGER.debug("a browser is gone: %r", exc)
        except Exception:
            LOGGER.exception("a connection met a bug")
        finally:
            stream.socket.close()
            self._limit.release_on_behalf_of(place)


def _report_bug(what: str, error: Exception) -> None:
    LOGGER.error("%s met a bug", what, exc_info=error)
