"""The code that every command for a server shares: `--server`, the connection, the login, texts for the server's errors."""

from __future__ import annotations

import getpass
import os
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from .failures import FailedError, NotConnectedError
from .grammar import F, complete_address, option

if TYPE_CHECKING:
    from ...client.connection import Client
    from ...client.login import LoginConfig
    from ...client.tls import TlsConfig

T = TypeVar("T")

DEFAULT_SERVER: Final = "127.0.0.1:9095"
CONNECT_TIMEOUT_MS: Final = 5_000


class ServerAddress(NamedTuple):
    """The address of a server's native protocol."""

    host: str
    port: int

    def __str__(self) -> str:
        from ...client.config import address_text

        return address_text(self)


def read_address(ctx: click.Context, param: click.Parameter, value: str) -> ServerAddress:
    """Host and port; one that is missing is the default's."""
    host, _, port = complete_address(value, DEFAULT_SERVER).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not value or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, as in {DEFAULT_SERVER}", ctx, param)
    return ServerAddress(host, int(port))


plain_server_option = option(
    *("-s", "--server"),
    others=("-b", "--bootstrap-server", "--brokers", "--broker-list"),
    read_other=lambda text: text.removesuffix(":9092"),  # the server of that Kafka listener
    callback=read_address,
    metavar="HOST[:PORT]",
    envvar="TRIOLOG_SERVER",
    default=DEFAULT_SERVER,
    show_default=True,
    show_envvar=True,
    help="Address of the server's native protocol.",
)

SAID_META: Final = "triolog.connection"
"""What the options of the connection say, by name."""


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """For `call_server`, past the commands, which have no use for it."""
    if value:
        ctx.meta.setdefault(SAID_META, {})[param.name] = value


def server_option(command: F) -> F:
    """`--server`, how the connection is encrypted, and who asks."""
    return plain_server_option(login_options(command))


def server_option_beside_user(command: F) -> F:
    """The same for a command whose `--user` is somebody else."""
    return plain_server_option(login_options(command, "--login-user"))


def login_options(command: F, user: str = "--user") -> F:
    """The same without `--server`, for a command that gets the address in another way."""
    file = click.Path(exists=True, dir_okay=False)
    for each in (
        _kept(
            "--password-file",
            variable="TRIOLOG_PASSWORD_FILE",
            type=file,
            help="File with the user's password.  [default: TRIOLOG_PASSWORD, else a prompt]",
        ),
        _kept(user, "login_user", variable="TRIOLOG_USER", help="Log in as this user."),
        _kept("--tls-cert", variable="TRIOLOG_TLS_CERT", type=file, help="PEM file with a client certificate and its key."),
        _kept(
            "--tls-ca",
            variable="TRIOLOG_TLS_CA",
            type=file,
            help="Use TLS and trust the CA in this PEM file.",
        ),
        _kept(
            "--tls",
            variable="TRIOLOG_TLS",
            is_flag=True,
            help="Use TLS and trust the system's CAs.",
        ),
    ):
        command = each(command)
    return command


def _kept(*names: str, variable: str, **how: Any) -> Callable[[F], F]:
    """An option that is no argument of the command: `_said` has it."""
    return click.option(*names, envvar=variable, show_envvar=True, expose_value=False, callback=_keep, **how)


def _said() -> dict[str, Any]:
    context = click.get_current_context(silent=True)
    return {} if context is None else context.meta.get(SAID_META, {})


def _tls() -> TlsConfig | None:
    """As the options of the command say. Raises FailedError."""
    from ...client.tls import TlsConfig

    said = _said()
    if not said.keys() & {"tls", "tls_ca", "tls_cert"}:
        return None
    config = TlsConfig(ca_file=said.get("tls_ca"), certificate_file=said.get("tls_cert"))
    try:
        config.context()
    except OSError as exc:
        raise FailedError(f"cannot use --tls-ca or --tls-cert: {exc}") from exc
    return config


def _login() -> LoginConfig | None:
    """As the options of the command say. Raises FailedError."""
    from ...client.login import LoginConfig, PasswordFile

    user, file = _said().get("login_user"), _said().get("password_file")
    if user is None:
        if file is not None:
            raise click.UsageError("--password-file needs --user")
        return None
    return LoginConfig(user=user, password=_password(user) if file is None else PasswordFile(file))


def _password(user: str) -> str:
    """Raises FailedError."""
    if not (password := os.environ.get("TRIOLOG_PASSWORD") or asked_password(user)):
        raise FailedError(f"the password of {user} is empty")
    return password


def asked_password(user: str, instead: str = "--password-file FILE or TRIOLOG_PASSWORD") -> str:
    """Ask for a password at the terminal, whatever standard input is. Raises FailedError, which names what to use instead."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # it would be shown
            return getpass.getpass(f"Password of {user}: ")
    except (OSError, EOFError, getpass.GetPassWarning) as exc:
        raise FailedError(f"no terminal for the password prompt of {user}. Use {instead}") from exc


def access() -> tuple[TlsConfig | None, LoginConfig | None]:
    """Return TLS and login configuration from the options of the command. Raises FailedError."""
    return _tls(), _login()


def call_server(address: ServerAddress, function: Callable[[Client], Awaitable[T]]) -> T:
    """Run `function` with a connected client. What the client and the server raise becomes one line and an exit code."""
    import trio

    from ....protocol.errors import SaslAuthenticationError, TriologError
    from ...client.config import ClientConfig
    from ...client.connection import connect
    from ...client.errors import ConnectionLostError

    tls, login = access()

    async def main() -> T:
        config = ClientConfig(client_id="triolog-cli", connect_timeout_ms=CONNECT_TIMEOUT_MS, tls=tls, login=login)
        async with connect(*address, config=config) as client:
            return await function(client)

    try:
        return trio.run(main)
    except BaseException as exc:
        error = _first(exc)
        if isinstance(error, ConnectionLostError):
            reason = error.message.removeprefix(f"could not connect to {address}: ")
            hint = "Is `triolog serve` running there? --server HOST:PORT or TRIOLOG_SERVER names another one"
            if "before it responded to hello" in reason:
                hint = (
                    f"Is {address.port} the port for Kafka clients? Commands use the native one: --server {address.host}:9095"
                )
            raise NotConnectedError(f"no connection to {address}: {reason}. {hint}") from exc
        if isinstance(error, SaslAuthenticationError):
            raise NotConnectedError(f"login failed at {address}: {error.message}. Use --user NAME to log in") from exc
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
