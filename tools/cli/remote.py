"""What every command that asks a server has in common: `--server`, the connection, and the server's errors in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from .failures import FailedError, NotConnectedError

if TYPE_CHECKING:
    from ..client.connection import Client

T = TypeVar("T")

DEFAULT_SERVER: Final = "127.0.0.1:9095"
CONNECT_TIMEOUT_MS: Final = 5_000


class ServerAddress(NamedTuple):
    """Where the native protocol of a server is."""

    host: str
    port: int

    def __str__(self) -> str:
        from ..client.config import address_text

        return address_text(self)


def _read_address(ctx: click.Context, param: click.Parameter, value: str) -> ServerAddress:
    """`HOST:PORT` or `[IPV6]:PORT`."""
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, as in {DEFAULT_SERVER}", ctx, param)
    return ServerAddress(host, int(port))


server_option = click.option(
    "--server",
    callback=_read_address,
    metavar="HOST:PORT",
    envvar="TRIOLOG_SERVER",
    default=DEFAULT_SERVER,
    show_default=True,
    show_envvar=True,
    help="Where the server is.",
)


def call_server(address: ServerAddress, function: Callable[[Client], Awaitable[T]]) -> T:
    """Run `function` with a connected client. What the client and the server raise becomes one line and an exit code."""
    import trio

    from ...protocol.errors import TriologError
    from ..client.config import ClientConfig
    from ..client.connection import connect
    from ..client.errors import ConnectionLostError

    async def main() -> T:
        config = ClientConfig(client_id="triolog-cli", connect_timeout_ms=CONNECT_TIMEOUT_MS)
        async with connect(*address, config=config) as client:
            return await function(client)

    try:
        return trio.run(main)
    except BaseException as exc:
        error = _first(exc)
        if isinstance(error, ConnectionLostError):
            reason = error.message.removeprefix(f"could not connect to {address}: ")
            raise NotConnectedError(
                f"no connection to {address}: {reason}; is `triolog serve` running there? "
                "--server HOST:PORT or TRIOLOG_SERVER names another one"
            ) from exc
        if isinstance(error, TriologError):
            raise FailedError(f"{address}: {error}") from exc
        if error is exc:
            raise
        raise error from exc


def _first(error: BaseException) -> BaseException:
    """The one that counts of a group: an interruption before all others."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt)), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
