"""The console's process: its listener, its connection to the server, and the sessions of users, until a signal ends it.

The listener accepts a few connections, each with an HTTP session. A further connection evicts the one that was idle longest.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from ....server.config.values import Address, is_loopback
from ....server.listeners.connections.sockets import ListenerPlaces, Places
from ....server.listeners.http.access import Answer, HttpAccess
from ....server.listeners.http.session import HttpSession
from ..around.links import KnownLinks
from ..dispatch import Dispatch, StaticFiles
from ..routes import ConsoleSettings
from ..sessions import Sessions
from ..views.overview import describe
from ..watching.watcher import Watcher

LOGGER: Final = logging.getLogger(__name__)
PARENT_LOOK_S: Final = 1.0
COOKIE: Final = "triolog_console_{}"


async def run_console(settings: ConsoleSettings, started: Callable[[Address], None]) -> None:
    """Serve until SIGTERM or SIGINT, or until the parent is gone. Raises OSError when it cannot listen."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_console, settings, started)
            if settings.parent is not None:
                nursery.start_soon(_end_with, settings.parent, nursery.cancel_scope)
            LOGGER.info("stopping signal=%s", signal.Signals(await anext(signals)).name)
            nursery.cancel_scope.cancel()


async def serve_console(
    settings: ConsoleSettings,
    started: Callable[[Address], None],
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `started` is told where. Raises OSError."""
    listening = _listening(settings)
    with listening:
        address = address_of(listening)
        links = KnownLinks(settings.forward_state_dir)
        watcher = Watcher(settings.server, settings.tls, settings.login, partial(describe, links=links))
        sessions = Sessions(COOKIE.format(address.port))
        dispatch = Dispatch(
            settings=settings,
            access=_access(address),
            sessions=sessions,
            watcher=watcher,
            static=await trio.to_thread.run_sync(StaticFiles.read),
            links=links,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(links.run)
            await nursery.start(watcher.run)
            await nursery.start(sessions.run)
            await nursery.start(ConsoleListener(listening, dispatch.answer).run)
            started(address)
            task_status.started(address)


def _listening(settings: ConsoleSettings) -> socket.socket:
    if settings.listen_fd is not None:
        return socket.socket(fileno=settings.listen_fd)
    return listening_socket(settings.listen)


def _access(address: Address) -> HttpAccess:
    names = frozenset({address.host.lower(), socket.gethostname().lower()})
    return HttpAccess(is_loopback(address.host), names=names, takes_links=True)


async def _end_with(parent: int, scope: trio.CancelScope) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody says when it ends
        await trio.sleep(PARENT_LOOK_S)
    LOGGER.warning("stopping: parent process %d is gone", parent)
    scope.cancel()


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
        raise OSError(exc.errno, f"cannot listen on {address}: {exc.strerror}. Choose another address") from exc


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
                    LOGGER.error("accepting failed (%s), trying again", exc)
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
            LOGGER.debug("browser disconnected: %r", exc)
        except Exception:
            LOGGER.exception("unhandled exception: connection")
        finally:
            stream.socket.close()
            places.leave(scope)


def _report_bug(what: str, error: Exception) -> None:
    LOGGER.error("unhandled exception: %s", what, exc_info=error)
