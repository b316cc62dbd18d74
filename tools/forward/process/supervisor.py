"""A server with links: the process that runs them is a child, started when the server serves, and again when it has died.

It is a process of its own so that neither librdkafka's memory nor its processor time is the server's. What its links say of
themselves is in the server's `/metrics`, and the server's SIGHUP is the child's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ....server.config.values import Address
from ....server.service.service import Change, Service
from ..settings.process_settings import LinkKind, ProcessSettings
from .place import CONTROL, ask, default_state_dir
from .supervised_child import SupervisedChild, reachable

ASK_S: Final = 1.0
"""How long a link may take to say how it is."""
FOR_GOOD: Final = frozenset({1, 2})
"""Exit codes after which trying again is of no use before settings are read again: every link has failed, or what it is told
makes no sense."""

Serve = Callable[..., Awaitable[None]]


async def serve_beside(
    kind: LinkKind, config_file: str, serve: Serve, config: Any, started: Callable[[Any], None], report: Any, service: Service
) -> None:
    """Serve until the server ends; run the links of the file meanwhile. Raises SettingsError."""
    child = Child(kind, config_file, kind.servers(config_file), service.scraped)
    service.parts.append(child.part)
    service.scraped = child.metrics
    async with trio.open_nursery() as nursery:

        def both(addresses: Any) -> None:
            started(addresses)
            nursery.start_soon(child.supervise, addresses.native)

        await serve(config, both, report, service)
        nursery.cancel_scope.cancel()


def child_command(kind: LinkKind, config_file: str, native: Address) -> list[str]:
    """Return the command that runs the links beside a server listening at `native`."""
    return [
        *(sys.executable, "-m", "triolog.tools.cli", *kind.command),
        *("--server-config", config_file, "--server", str(reachable(native)), "--parent", str(os.getpid())),
    ]


@attrs.define(eq=False, repr=False)
class Child:
    """The process that runs the links. Owner: the process that serves."""

    _kind: LinkKind
    _config_file: str
    _settings: ProcessSettings
    _others: Callable[[], Awaitable[Iterable[Any]]] | None
    """Metrics of other children."""
    _process: SupervisedChild | None = None
    """None before the server serves."""

    async def supervise(self, native: Address) -> None:
        """Keep it running until cancelled."""
        command = child_command(self._kind, self._config_file, native)
        self._process = SupervisedChild(
            name=f"{self._kind.name} process",
            start=partial(trio.lowlevel.open_process, command, stdin=subprocess.DEVNULL),
            final_codes=FOR_GOOD,
        )
        await self._process.supervise()

    async def part(self, config: Any) -> Change:
        """SIGHUP: links that make no sense are refused here, what changes is said by the child. Raises SettingsError."""
        settings = await trio.to_thread.run_sync(self._kind.servers, self._config_file)

        def apply() -> None:
            self._settings = settings
            if self._process is not None:
                self._process.reload()

        return Change((), apply)

    async def metrics(self) -> list[Any]:
        """Return the links' status as Prometheus metrics."""
        from .metrics import families

        others = [] if self._others is None else await self._others()
        told = await trio.to_thread.run_sync(_told, self._kind, self._settings)
        return [*others, *families(self._kind, told)]


def state_dir_of(kind: LinkKind, settings: ProcessSettings) -> Path:
    """Return the directory in which the links can be reached."""
    return Path(settings.state_dir) if settings.state_dir else default_state_dir(os.environ, kind.name)


def _told(kind: LinkKind, settings: ProcessSettings) -> list[dict[str, Any]]:
    state_dir = state_dir_of(kind, settings)
    told = []
    for link in settings.links:
        try:
            told.append(ask(str(state_dir / link.name / CONTROL), {"command": "status"}, ASK_S))
        except (OSError, ValueError):
            told.append({"link": link.name})
    return told
