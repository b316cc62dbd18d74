"""A server that forwards: the process that does it is a child, started when the server serves, and again when it has died.

It is a process of its own so that neither librdkafka's memory nor its processor time is the server's. What its links say of
themselves is in the server's `/metrics`, and the server's SIGHUP is the child's.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ....server.config.broker_config import Address
from ....server.service.reloading import Change
from ....server.service.service import Service
from ...client.backoff import Backoff
from ..settings.forward_settings import ForwardSettings, read_file
from .asking import ask
from .place import CONTROL, default_state_dir

LOGGER: Final = logging.getLogger(__name__)
FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 300_000
SETTLED_S: Final = 60.0
"""A child that has lived as long begins anew with short pauses."""
END_S: Final = 15.0
"""How long it may take to end."""
ASK_S: Final = 1.0
"""How long a link may take to say how it is."""
FOR_GOOD: Final = frozenset({1, 2})
"""Exit codes after which trying again is of no use before settings are read again: every link has failed, or what it is told
makes no sense."""
ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}

Serve = Callable[..., Awaitable[None]]


async def serve_and_forward(
    config_file: str, serve: Serve, config: Any, started: Callable[[Any], None], report: Any, service: Service
) -> None:
    """Serve until the server ends; forward meanwhile, as the file says. Raises SettingsError."""
    child = Child(config_file, read(config_file))
    service.parts.append(child.part)
    service.scraped = child.metrics
    async with trio.open_nursery() as nursery:

        def both(addresses: Any) -> None:
            started(addresses)
            nursery.start_soon(child.supervise, child_command(config_file, addresses.native))

        await serve(config, both, report, service)
        nursery.cancel_scope.cancel()


def read(config_file: str) -> ForwardSettings:
    """The links of a server's file, blocking. Raises SettingsError."""
    return ForwardSettings(**read_file(config_file, is_servers=True))


def child_command(config_file: str, native: Address) -> list[str]:
    """What forwards from a server that listens there."""
    address = Address(ANY_HOST.get(native.host, native.host), native.port)
    return [
        *(sys.executable, "-m", "triolog.tools.cli", "forward"),
        *("--server-config", config_file, "--server", str(address), "--parent", str(os.getpid())),
    ]


@attrs.define(eq=False, repr=False)
class Child:
    """The process that forwards. Owner: the process that serves."""

    _config_file: str
    _settings: ForwardSettings
    _process: trio.Process | None = None
    _begins_again: trio.Event = attrs.field(factory=trio.Event)

    async def supervise(self, command: Sequence[str], backoff: Backoff | None = None) -> None:
        """Keep it running until cancelled; then it is stopped."""
        backoff = backoff or Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
        while True:
            begun_s = trio.current_time()
            self._process = child = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL)
            LOGGER.info("forwarding process %d has started", child.pid)
            try:
                code = await child.wait()
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await _end(child)
                raise
            self._process = None
            self._begins_again = trio.Event()
            if code in FOR_GOOD:
                LOGGER.error(
                    "the forwarding process has ended with exit code %d; it says why, and is started again on SIGHUP only", code
                )
                await self._begins_again.wait()
                backoff.reset()
                continue
            if trio.current_time() - begun_s >= SETTLED_S:
                backoff.reset()
            pause_s = backoff.pause_s()
            LOGGER.warning("the forwarding process has ended with exit code %d; it is started again in %.1f s", code, pause_s)
            with trio.move_on_after(pause_s):
                await self._begins_again.wait()

    async def part(self, config: Any) -> Change:
        """SIGHUP: links that make no sense are refused here, what changes is said by the child. Raises SettingsError."""
        settings = await trio.to_thread.run_sync(read, self._config_file)

        def apply() -> None:
            self._settings = settings
            self._begins_again.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGHUP)

        return Change((), apply)

    async def metrics(self) -> list[Any]:
        """What the links say of themselves, as metrics of Prometheus."""
        from .metrics import families

        return list(families(await trio.to_thread.run_sync(_told, self._settings)))


def _told(settings: ForwardSettings) -> list[dict[str, Any]]:
    state_dir = Path(settings.state_dir) if settings.state_dir else default_state_dir(os.environ)
    told = []
    for link in settings.links:
        try:
            told.append(ask(str(state_dir / link.name / CONTROL), {"command": "status"}, ASK_S))
        except (OSError, ValueError):
            told.append({"link": link.name})
    return told


async def _end(child: trio.Process) -> None:
    child.terminate()
    with trio.move_on_after(END_S):
        await child.wait()
        return
    child.kill()
    await child.wait()
