from __future__ import annotations

import socket
import threading

import click
import pytest
from click.testing import CliRunner
from triolog.protocol.errors import InvalidRequestError, TriologError
from triolog.tools.cli.main import main
from triolog.tools.cli.terminal import remote
from triolog.tools.cli.terminal.failures import FailedError, NotConnectedError
from triolog.tools.cli.terminal.remote import ServerAddress, call_server
from triolog.tools.client.connection import Client
from triolog.tools.client.errors import ConnectionLostError

from ..conftest import Cli


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def here(cli: Cli) -> ServerAddress:
    host, _, port = cli.address.rpartition(":")
    return ServerAddress(host, int(port))


def test_without_a_server_every_command_exits_3_with_one_line(closed_port: int) -> None:
    for command in (
        *("topics list", "topics delete t --yes", "produce t", "consume t", "offsets t", "explain t --offset 0"),
        *("top --once", "gaps list", "groups list", "quotas list", "connections", "transactions list"),
    ):
        result = CliRunner().invoke(main, [*command.split(), "--server", f"127.0.0.1:{closed_port}"])
        assert (result.exit_code, result.stdout) == (3, ""), command
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"Error: no connection to 127.0.0.1:{closed_port}: ")
        assert "Is `triolog serve` running there?" in line


def test_addresses_are_of_an_option_or_a_variable_and_what_is_none_is_a_usage_error(cli: Cli, closed_port: int) -> None:
    for address in ("localhost:0", "localhost:65536", "localhost:x", ""):
        assert "is not HOST:PORT" in cli.refused("topics", "list", "--server", address, code=2)
    for address in (f"127.0.0.1:{closed_port}", f"[::1]:{closed_port}"):
        assert f"no connection to {address}" in cli.refused("topics", "list", "--server", address, code=3)


def test_a_server_that_breaks_off_is_not_connected() -> None:
    async def never(_: Client) -> None:
        raise AssertionError("there was no hello")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        visitor = threading.Thread(target=lambda: listener.accept()[0].close())
        visitor.start()
        with pytest.raises(NotConnectedError):
            call_server(ServerAddress("127.0.0.1", listener.getsockname()[1]), never)
        visitor.join()


@pytest.mark.parametrize(
    ("raised", "expected", "words"),
    [
        (InvalidRequestError("no"), FailedError, "INVALID_REQUEST: no"),
        (TriologError("closed"), FailedError, "closed"),
        (ConnectionLostError("gone"), NotConnectedError, "no connection to .*: gone"),
        (click.UsageError("which?"), click.UsageError, "which?"),
        (KeyboardInterrupt("now"), KeyboardInterrupt, "now"),
        (ZeroDivisionError("ours"), ZeroDivisionError, "ours"),
    ],
)
@pytest.mark.parametrize("is_grouped", [False, True])
def test_errors_become_what_the_command_line_shows(
    cli: Cli, raised: BaseException, expected: type[BaseException], words: str, is_grouped: bool
) -> None:
    async def fail(_: Client) -> None:
        raise BaseExceptionGroup("two", [BaseExceptionGroup("one", [raised])]) if is_grouped else raised

    with pytest.raises(expected, match=words):
        call_server(here(cli), fail)
    group = BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [KeyboardInterrupt()])])
    assert isinstance(remote._first(group), KeyboardInterrupt), "it counts more than what it caused"
