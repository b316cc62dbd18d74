"""A server with a console: the process that shows it is a child, started when the server serves, and again when it has died.

It is a process of its own so that neither its memory nor its processor time is the server's. The socket on which browsers come
is opened here and handed down, so its address is known before the child runs, and stays when that is started again: browsers
wait.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from ....server.config.values import Address
from ....server.listeners.addresses import Addresses
from ...forward.process.supervised_child import SupervisedChild, reachable

WRONG_COMMAND_LINE: Final = 2
"""Exit code after which trying again is of no use."""
BACKLOG: Final = 128
OURS: Final = "TRIOLOG_"
"""Variables that are meant for the server, or for other commands, begin so."""

Started = Callable[[Addresses], None]


@attrs.define(eq=False, repr=False)
class ConsoleChild:
    """The socket of a console, and the process behind it. Owner: the process that serves."""

    listening: socket.socket
    options: Sequence[str] = ()
    decodes: bool = True
    """By the schema registry of the server, if it has one. The console has no password for one with users."""

    @classmethod
    def listen(cls, address: Address, options: Sequence[str] = (), *, decodes: bool = True) -> ConsoleChild:
        """Raises OSError when it cannot be listened there."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            listening = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot listen on {address}: {exc.strerror}. Choose another address") from exc
        return cls(listening, options, decodes)

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
                    nursery.start_soon(self._child(addresses).supervise)
                    started(attrs.evolve(addresses, console=self.address))

                await serve(both)
                nursery.cancel_scope.cancel()

    def _child(self, addresses: Addresses) -> SupervisedChild:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        how = {"stdin": subprocess.DEVNULL, "env": variables, "pass_fds": (self.listening.fileno(),)}
        return SupervisedChild(
            name=f"console process on http://{self.address}/",
            start=partial(trio.lowlevel.open_process, self._command(addresses), **how),
            final_codes=frozenset({WRONG_COMMAND_LINE}),
        )

    def _command(self, addresses: Addresses) -> list[str]:
        native, control, registry = addresses.native, addresses.control, addresses.schema_registry
        assert native is not None
        return [
            *(sys.executable, "-m", "triolog.tools.cli", "console"),
            *("--server", str(reachable(native)), "--listen-fd", str(self.listening.fileno()), "--parent", str(os.getpid())),
            *(("--control", str(reachable(control))) if control is not None else ()),
            *(("--schema-registry", f"http://{reachable(registry)}") if registry is not None and self.decodes else ()),
            *self.options,
        ]
