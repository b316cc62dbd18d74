"""The listener of the console: a few connections at a time, each with an HTTP session. A further connection evicts the one that
was idle longest."""

from __future__ import annotations

import logging
import socket
from functools import partial
from typing import Final

import attrs
import trio

from ...server.config.address import Address
from ...server.listeners.connections.sockets import ListenerPlaces, Places
from ...server.listeners.http.access import Answer
from ...server.listeners.http.session import HttpSession

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
    """Return the address that the socket is bound to."""
    host, port = listening.getsockname()[:2]
    return Address(host, port)


@attrs.define(eq=False, repr=False)
class ConsoleListener:
    """Owner of the connections of browsers. `run` is its task, and closes the socket."""

    listening: socket.socket
    answer: Answer
    _places: ListenerPlaces = attrs.field(factory=lambda: Places(MAX_CONNECTIONS).open())

    @property
    def connections(self) -> int:
        return len(self._places.connections)

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the status is the address."""
        self.listening.setblocking(False)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self.listening))
        async with listener, trio.open_nursery() as nursery:
            task_status.started(address_of(self.listening))
            while True:
                try:
                    stream = await listener.accept()
                except OSError as exc:
                    LOGGER.error("accepting failed (%s); it is tried again", exc)
                    await trio.sleep(ACCEPT_PAUSE_S)
                    continue
                scope = trio.CancelScope()
                try:
                    await self._places.take(scope)
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
                nursery.start_soon(self._serve, stream, scope)

    async def _serve(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        places = self._places
        try:
            session = HttpSession(
                stream,
                str(stream.socket.getpeername()[0]),
                self.answer,
                _report_bug,
                MAX_BODY_BYTES,
                became_busy=partial(places.known, scope),
                became_idle=partial(places.idle, scope),
            )
            with scope:
                await session.serve()
        except OSError as exc:
            LOGGER.debug("a browser is gone: %r", exc)
        except Exception:
            LOGGER.exception("a connection met a bug")
        finally:
            stream.socket.close()
            places.leave(scope)


def _report_bug(what: str, error: Exception) -> None:
    LOGGER.error("%s met a bug", what, exc_info=error)
