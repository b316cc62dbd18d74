"""A server with a console: the process that shows it is a child, started when the server serves, and again when it has died.

It is a process of its own so that neither its memory nor its processor time is the server's. The socket on which browsers come
is opened here and handed down, so its address is known before the child runs, and stays when that is started again: browsers
wait.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from ....server.config.address import Address
from ....server.listeners.addresses import Addresses
from ...client.backoff import Backoff

LOGGER: Final = logging.getLogger(__name__)
FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 60_000
SETTLED_S: Final = 60.0
"""A child that has lived as long begins anew with short pauses."""
END_S: Final = 5.0
"""How long it may take to end."""
WRONG_COMMAND_LINE: Final = 2
"""Exit code after which trying again is of no use."""
BACKLOG: Final = 128
ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
OURS: Final = "TRIOLOG_"
"""Variables that are meant for the server, or for other commands, begin so."""

Started = Callable[[Addresses], None]


@attrs.define(eq=False, repr=False)
class ConsoleChild:
    """The socket of a console, and the process behind it. Owner: the process that serves."""

    listening: socket.socket
    options: Sequence[str] = ()

    @classmethod
    def listen(cls, address: Address, options: Sequence[str] = ()) -> ConsoleChild:
        """Raises OSError when it cannot be listened there."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            listening = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot listen on {address}: {exc.strerror}; choose another address") from exc
        return cls(listening, options)

    @property
    def address(self) -> Address:
        host, port = self.listening.getsockname()[:2]
        return Address(host, port)

    async def beside(self, serve: Callable[[Started], Awaitable[None]], started: Started) -> None:
        """Serve until the server ends; show it meanwhile. `started` is told the console's address with the others."""
        with self.listening:
            async with trio.open_nursery() as nursery:

                def both(addresses: Addresses) -> None:
                    assert addresses.native is not None
                    nursery.start_soon(self._supervise, self._command(addresses))
                    started(attrs.evolve(addresses, console=self.address))

                await serve(both)
                nursery.cancel_scope.cancel()

    def _command(self, addresses: Addresses) -> list[str]:
        native, control = addresses.native, addresses.control
        assert native is not None
        return [
            *(sys.executable, "-m", "triolog.tools.cli", "console"),
            *("--server", str(_reachable(native)), "--listen-fd", str(self.listening.fileno()), "--parent", str(os.getpid())),
            *(("--control", str(_reachable(control))) if control is not None else ()),
            *self.options,
        ]

    async def _supervise(self, command: Sequence[str]) -> None:
        """Keep it running until cancelled; then it is stopped."""
        backoff = Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        start = partial(
            trio.lowlevel.open_process, stdin=subprocess.DEVNULL, env=variables, pass_fds=(self.listening.fileno(),)
        )
        while True:
            begun_s = trio.current_time()
            child = await start(command)
            LOGGER.info("console process %d shows the server on http://%s/", child.pid, self.address)
            try:
                code = await child.wait()
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await _end(child)
                raise
            if code == WRONG_COMMAND_LINE:
                LOGGER.error("the console process does not start; it says why, and is not started again")
                return
            if trio.current_time() - begun_s >= SETTLED_S:
                backoff.reset()
            pause_s = backoff.pause_s()
            LOGGER.warning("the console process has ended with exit code %d; it is started again in %.1f s", code, pause_s)
            await trio.sleep(pause_s)


def _reachable(address: Address) -> Address:
    """From this machine."""
    return Address(ANY_HOST.get(address.host, address.host), address.port)


async def _end(child: trio.Process) -> None:
    child.terminate()
    with trio.move_on_after(END_S):
        await child.wait()
        return
    child.kill()
    await child.wait()
