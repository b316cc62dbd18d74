"""Certificates and users are read again when their files change, without a SIGHUP.

The files are looked at every few seconds, and read once they have not changed between two looks, so that none is read while it
is being written. What cannot be read is one ERROR line, and what was read before stays; where there is no descriptor to read
them with they are read as soon as there is. No connection is dropped: what is new holds for new handshakes and logins.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from ...protocol.errors import TriologError
from ..broker import Broker
from ..config.broker_config import BrokerConfig
from .reloading import Part, apply_changes

LOGGER: Final = logging.getLogger(__name__)

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
