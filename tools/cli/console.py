"""`triolog console`: serve the console of a running server, and say where."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from .terminal.failures import NotConnectedError
from .terminal.output import say
from .terminal.remote import ServerAddress, access, server_option

if TYPE_CHECKING:
    from ...server.config.values import Address
    from ..console.records.schemas import Schemas

ON_ANY_PORT: Final = "127.0.0.1:0"


@click.command
@click.option(
    *("--listen",), metavar="HOST:PORT", default=ON_ANY_PORT, show_default=True, help="Listen for browsers; port 0: any."
)
@click.option("--allow-changes", is_flag=True, help="Allow changes, with the rights that the server grants.")
@click.option("--control", metavar="HOST:PORT", help="Tests only: the control port of the same server.")
@click.option(
    "--control-token-file",
    type=click.Path(exists=True, dir_okay=False),
    help="Tests only: file with the token of the control port.",
)
@click.option(
    "--forward-state-dir",
    type=click.Path(file_okay=False),
    help="State directory of `triolog forward`.  [default: the usual one]",
)
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Decode keys and values that begin with the id of a schema by this registry.  [default: show them as bytes]",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen on an address that other machines can reach. Traffic from browsers is not encrypted.",
)
@click.option("--parent", type=int, hidden=True, help="Stop when this parent process ends.")
@click.option("--listen-fd", type=int, hidden=True, help="Inherited descriptor of a listening socket.")
@server_option
def command(
    server: ServerAddress,
    listen: str,
    allow_changes: bool,
    control: str | None,
    control_token_file: str | None,
    forward_state_dir: str | None,
    schema_registry: str | None,
    insecure: bool,
    parent: int | None,
    listen_fd: int | None,
) -> None:
    """Show a server in the browser: topics, records, time, groups, faults.

    Prints its URL and serves until Ctrl-C. If the server has logins, users log in on the page with their own rights. With
    --user every browser has the rights of that user.
    """
    import trio

    from ...protocol.errors import InvalidConfigError
    from ...server.config.values import is_loopback
    from ...server.listeners.http.access import read_token
    from ..console.process.serving import run_console
    from ..console.routes import ConsoleSettings
    from ..forward.process.place import default_state_dir

    if forward_state_dir is None and parent is None:
        usual = default_state_dir(os.environ)
        forward_state_dir = str(usual) if usual.is_dir() and usual.stat().st_uid == os.getuid() else None
    address, control_address = _address("--listen", listen), None if control is None else _address("--control", control)
    if not is_loopback(address.host) and not insecure and listen_fd is None:
        raise click.UsageError(
            f"--listen {address}: other machines can reach it, and nothing is encrypted. Listen on 127.0.0.1 and "
            f"connect through ssh -L {address.port or 'PORT'}:127.0.0.1:{address.port or 'PORT'}, or use "
            "--insecure"
        )
    try:
        token = None if control_token_file is None else read_token(control_token_file)
    except InvalidConfigError as exc:
        raise click.UsageError(exc.message) from exc
    tls, login = access()
    settings = ConsoleSettings(
        server=(server.host, server.port),
        listen=address,
        allow_changes=allow_changes,
        control=control_address,
        control_token=token,
        forward_state_dir=forward_state_dir,
        schemas=None if schema_registry is None else _schemas(schema_registry),
        tls=tls,
        login=login,
        parent=parent,
        listen_fd=listen_fd,
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s console: %(message)s")

    def started(where: Address) -> None:
        if parent is None:
            say(f"http://{where}/ shows {server}")
            sys.stdout.flush()

    try:
        trio.run(run_console, settings, started)
    except* OSError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise NotConnectedError(str(error.args[-1] if error.args else error)) from group


def _schemas(url: str) -> Schemas:
    """Return the decoder of a registry, whose packages are loaded here."""
    from ..console.records.schemas import Schemas
    from .terminal.schema_values import registry_at

    return Schemas(registry_at(url))


def _address(option: str, text: str) -> Address:
    from ...server.config.values import Address

    try:
        return Address.parse(text)
    except ValueError as exc:
        raise click.UsageError(f"{option}: {exc}") from exc
