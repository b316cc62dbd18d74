"""A child process beside a server: started again when it has died, after longer and longer pauses; stopped with the server."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from ....server.config.values import Address
from ...client.backoff import Backoff

LOGGER: Final = logging.getLogger(__name__)
FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 300_000
SETTLED_S: Final = 60.0
"""A child that has lived as long begins again with short pauses."""
END_S: Final = 15.0
"""How long it may take to end before it is killed."""
ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@attrs.define(eq=False, repr=False, kw_only=True)
class SupervisedChild:
    """A supervised child: several processes, one after the other. Owner: the process that serves."""

    name: str
    """In log lines: `console process`."""
    start: Callable[[], Awaitable[trio.Process]]
    final_codes: frozenset[int]
    """Exit codes after which only `reload` starts it again."""
    _process: trio.Process | None = None
    _again: trio.Event = attrs.field(factory=trio.Event)

    async def supervise(self) -> None:
        """Keep it running until cancelled; then stop it."""
        pauses = Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
        while True:
            begun_s = trio.current_time()
            try:
                self._process = child = await self.start()
            except OSError as exc:  # no memory or no descriptor, which may pass: the server continues
                self._again = trio.Event()
                await self._pause(pauses, f"cannot start {self.name}: {exc.strerror or exc}")
                continue
            LOGGER.info("%s %d started", self.name, child.pid)
            try:
                code = await child.wait()
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await _end(child)
                raise
            self._process, self._again = None, trio.Event()
            if code in self.final_codes:
                LOGGER.error("%s ended with exit code %d. Read its error, then send SIGHUP to start it again.", self.name, code)
                await self._again.wait()
                pauses.reset()
                continue
            if trio.current_time() - begun_s >= SETTLED_S:
                pauses.reset()
            await self._pause(pauses, f"{self.name} ended with exit code {code}")

    async def _pause(self, pauses: Backoff, why: str) -> None:
        """Wait before the next start; `reload` ends it."""
        pause_s = pauses.pause_s()
        LOGGER.warning("%s, starting again in %.1f s", why, pause_s)
        with trio.move_on_after(pause_s):
            await self._again.wait()

    def reload(self) -> None:
        """Send the process SIGHUP, or start it again at once where none runs."""
        self._again.set()
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)


async def _end(child: trio.Process) -> None:
    child.terminate()
    with trio.move_on_after(END_S):
        await child.wait()
    if child.returncode is None:
        child.kill()
        await child.wait()


def reachable(address: Address) -> Address:
    """The address of a listener as this machine connects to it."""
    return Address(ANY_HOST.get(address.host, address.host), address.port)
