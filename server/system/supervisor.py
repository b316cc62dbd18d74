"""Word to whoever supervises the process, as systemd understands it (sd_notify(3)): datagrams of `NAME=value` lines.

| variable | says |
|---|---|
| `NOTIFY_SOCKET` | where to send: a path, or `@` and an abstract name |
| `WATCHDOG_USEC` | within which time `WATCHDOG=1` has to come again |
| `WATCHDOG_PID` | who has to send it; without it whoever reads this |

They are taken out of the environment, for they are not meant for child processes. Nothing that goes wrong here stops a server:
who supervises draws conclusions from silence.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Self

import attrs
import trio

LOGGER: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.1
"""Until a supervisor is asked again that has not taken what was sent before."""
_IS_FULL: Final = frozenset({errno.EAGAIN, errno.ENOBUFS})


@attrs.define(eq=False, repr=False)
class Supervisor:
    """Owner of the socket. Without one everything here does nothing."""

    watchdog_s: float | None = None
    """Within which time it has to hear `WATCHDOG=1` again; None: it does not wait for that."""
    _socket: socket.socket | None = None

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Self:
        """The one that the variables name. A variable that makes no sense is a log line."""
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_s = _watchdog_s(environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", ""))
        if not address:
            return cls()
        if address[0] not in "/@":
            LOGGER.warning("NOTIFY_SOCKET=%s is neither a path nor an abstract name: not notifying the supervisor", address)
            return cls()
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            notified.connect(f"\0{address[1:]}" if address[0] == "@" else address)
        except OSError as exc:
            notified.close()
            LOGGER.warning("NOTIFY_SOCKET=%s: %s: not notifying the supervisor", address, exc.strerror or exc)
            return cls()
        return cls(watchdog_s, notified)

    def tell(self, *lines: str) -> bool:
        """Send lines as one datagram. False: it was not taken, and may be later."""
        if self._socket is None:
            return True
        try:
            self._socket.send("\n".join(lines).encode())
        except OSError as exc:
            if exc.errno in _IS_FULL:
                return False
            LOGGER.warning("supervisor is gone, no more notifications: %s", exc.strerror or exc)
            self.close()
        return True

    async def tell_surely(self, *lines: str) -> None:
        """Send lines, however long it is until they are taken."""
        await trio.lowlevel.checkpoint()
        while not self.tell(*lines):  # noqa: ASYNC110 - nobody announces that a socket of datagrams has room again
            await trio.sleep(RETRY_S)

    def close(self) -> None:
        """Nobody is told anything any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _watchdog_s(usec: str, pid: str) -> float | None:
    """Raises nothing: what is no number is no watchdog."""
    if not usec or (pid and pid != str(os.getpid())):
        return None
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0:
        LOGGER.warning("WATCHDOG_USEC=%s is not a number above 0: not feeding the watchdog", usec)
        return None
    return int(usec) / 1e6
