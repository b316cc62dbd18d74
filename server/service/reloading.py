"""SIGHUP: settings are read again, and what may change at run time does.

First everything is read and checked, by each part for itself; then everything changes, between two turns of the event loop.
What cannot be read is one ERROR line, and the old settings stay, all of them. No connection is dropped: keys of connections
hold for new ones. What has changed and needs a restart is named, with both values.

Certificates and users are read again when their files change, without a SIGHUP.

The files are looked at every few seconds, and read once they have not changed between two looks, so that none is read while it
is being written. What cannot be read is one ERROR line, and what was read before stays; where there is no descriptor to read
them with they are read as soon as there is. No connection is dropped: what is new holds for new handshakes and logins.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from ...protocol.errors import TriologError
from ..broker import Broker
from ..config.broker_config import BrokerConfig
from ..config.live_keys import Difference, differences, with_live_keys
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


LOOK_S: Final = 5.0
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

Looks = dict[str, tuple[int, int, int] | None]
"""By path what tells a file from another one; None: it is not there."""


@attrs.define(eq=False, repr=False)
class WatchedFiles:
    """Owner: the process's service. `run` is its task."""

    broker: Broker
    parts: Sequence[Part]
    """Those that read such files."""
    look_s: float = LOOK_S

    async def run(self) -> None:
        """Look until cancelled. What was changed since the start has read it is found by reading once."""
        call = self.broker.disk.call
        read: Looks | None = None
        last = await call(_looks, self.broker.config)

        async def step() -> None:
            nonlocal last, read
            await trio.sleep(self.look_s)
            found = await call(_looks, self.broker.config)
            if found != read and found == last and await self._read():
                read = found
            last = found

        await self.broker.disk.errors.repeat("watched-files", step)

    async def _read(self) -> bool:
        """False: there was no descriptor to read them with, and they are to be read at the next look."""
        try:
            changes = [await part(self.broker.config) for part in self.parts]
        except (TriologError, OSError) as exc:
            if {_errno(exc), _errno(exc.__cause__)} & NO_DESCRIPTOR:
                return False
            LOGGER.error("files of users or certificates have changed and are not used: %s", getattr(exc, "message", exc))
            return True
        except Exception as exc:
            LOGGER.error("files of users or certificates have changed and are not used: %r", exc, exc_info=exc)
            return True
        said = apply_changes(self.broker, (), changes)
        for line in said:
            LOGGER.info("read again, because the file has changed: %s", line)
        return True


def _errno(exc: BaseException | None) -> int | None:
    return exc.errno if isinstance(exc, OSError) else None


def _looks(config: BrokerConfig) -> Looks:
    named = (config.ssl_certificate_file, config.ssl_key_file, config.ssl_client_ca_file, config.sasl_users_file)
    return {path: _look(path) for path in named if path is not None}


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
