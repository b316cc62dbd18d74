"""SIGHUP: settings are read again, and what may change at run time does.

First everything is read and checked, by each part for itself; then everything changes, between two turns of the event loop.
What cannot be read is one ERROR line, and the old settings stay, all of them. No connection is dropped: keys of connections
hold for new ones. What has changed and needs a restart is named, with both values.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.errors import TriologError
from ..broker import Broker
from ..config.broker_config import BrokerConfig
from ..config.broker_settings import Difference, differences, with_live_keys
from ..listeners.opening import Listeners
from ..system.supervisor import Supervisor
from .log_lines import LogLines
from .supervised import tell_reloaded, tell_reloading

LOGGER: Final = logging.getLogger(__name__)


@attrs.frozen
class Change:
    """The effect of new settings on one part of the server."""

    said: tuple[str, ...] = ()
    """A line for each thing that changes, without secrets."""
    apply: Callable[[], None] = lambda: None
    """Does not fail and does not wait."""


Part = Callable[[BrokerConfig], Awaitable[Change]]
"""Reads and checks what belongs to a part of the server. Raises TriologError or OSError, and has changed nothing then."""


@attrs.define(eq=False, repr=False)
class Reloading:
    """Owner: the process's service. `run` is its task."""

    _supervisor: Supervisor
    _broker: Broker
    _read: Callable[[], BrokerConfig]
    """Everything as at the start, blocking. Raises TriologError or OSError."""
    _parts: list[Part]

    async def run(self, hangups: AsyncIterator[int]) -> None:
        async for _ in hangups:
            await tell_reloading(self._supervisor)
            try:
                await self._reload()
            except (TriologError, OSError) as exc:
                LOGGER.error("SIGHUP: the settings are as before, all of them: %s", getattr(exc, "message", exc))
            except Exception as exc:
                LOGGER.error("SIGHUP: the settings are as before, all of them: %r", exc, exc_info=exc)
            await tell_reloaded(self._supervisor)

    async def _reload(self) -> None:
        old, read = self._broker.config, await self._broker.disk.call(self._read)
        new = with_live_keys(old, read)
        changes = [await part(new) for part in self._parts]
        found = differences(self._broker.broker_configs.started_with, read)
        is_heard = LOGGER.isEnabledFor(logging.INFO)
        if is_heard:
            _say(found, changes)
        self._broker.configure(new)
        apply_changes(self._broker, found, changes)
        if not is_heard:  # unless `log_level` is among them
            _say(found, changes)


def apply_changes(broker: Broker, found: Sequence[Difference], changes: Sequence[Change]) -> list[str]:
    """Make what was read true, and have it noted; answers a line for each thing that changes."""
    for change in changes:
        change.apply()
    said = _changed(found, changes)
    if said and (audit := broker.security.audit) is not None:
        audit.note("configuration", changed=said)
    return said


def _changed(found: Sequence[Difference], changes: Sequence[Change]) -> list[str]:
    return [str(each) for each in found if each.is_live] + [line for change in changes for line in change.said]


def _say(found: Sequence[Difference], changes: Sequence[Change]) -> None:
    said = _changed(found, changes)
    LOGGER.info("SIGHUP: settings are read again, %d changed", len(said))
    for line in said:
        LOGGER.info("SIGHUP: changed: %s", line)
    for each in found:
        if not each.is_live:
            LOGGER.warning("SIGHUP: needs a restart: %s", each)


# ---- the parts that every server has ---------------------------------------------------------------------------------------


async def log_lines_part(lines: LogLines, config: BrokerConfig) -> Change:
    await trio.lowlevel.checkpoint()
    return Change((), partial(lines.set, config))


async def tls_part(broker: Broker, listeners: Listeners, config: BrokerConfig) -> Change:
    """Certificates for new handshakes."""
    return Change(*await broker.disk.call(listeners.read_tls, config))


async def security_part(broker: Broker, config: BrokerConfig) -> Change:
    """Users for new logins, and super users for whatever is asked next."""
    return Change(*await broker.security.read_again(config))
