"""The console's process: its listener, its connection to the server, and the sessions of users, until a signal ends it."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from ....server.config.values import Address, is_loopback
from ....server.listeners.http.access import HttpAccess
from ..around.links import KnownLinks
from ..dispatch import Dispatch
from ..listening import ConsoleListener, address_of, listening_socket
from ..sessions import Sessions
from ..settings import ConsoleSettings
from ..static_files import StaticFiles
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
    LOGGER.warning("process %d, which started this one, is gone: stopping", parent)
    scope.cancel()
