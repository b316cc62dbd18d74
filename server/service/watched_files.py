"""Certificates and users are read again when their files change, without a SIGHUP.

The files are looked at every few seconds, and read once they have not changed between two looks, so that none is read while it
is being written. What cannot be read is one ERROR line, and what was read before stays. No connection is dropped: what is new
holds for new handshakes and logins.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from ...protocol.errors import TriologError
from ..broker import Broker
from ..settings.broker_config import BrokerConfig
from .reloading import Part, apply_changes

LOGGER: Final = logging.getLogger(__name__)

LOOK_S: Final = 5.0

Looks = dict[str, tuple[int, int, int] | None]
"""By path what tells a file from another one; None: it is not there."""


@attrs.define(eq=False)
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
        while True:
            await trio.sleep(self.look_s)
            found = await call(_looks, self.broker.config)
            if found != read and found == last:
                read = found
                await self._read()
            last = found

    async def _read(self) -> None:
        try:
            changes = [await part(self.broker.config) for part in self.parts]
        except (TriologError, OSError) as exc:
            LOGGER.error("files of users or certificates have changed and are not used: %s", getattr(exc, "message", exc))
            return
        except Exception as exc:
            LOGGER.error("files of users or certificates have changed and are not used: %r", exc, exc_info=exc)
            return
        said = apply_changes(self.broker, (), changes)
        for line in said:
            LOGGER.info("read again, because the file has changed: %s", line)


def _looks(config: BrokerConfig) -> Looks:
    named = (config.ssl_certificate_file, config.ssl_key_file, config.ssl_client_ca_file, config.sasl_users_file)
    return {path: _look(path) for path in named if path is not None}


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
