from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import triolog
from click.testing import CliRunner, Result
from triolog.protocol.errors import InvalidRequestError, TriologError
from triolog.protocol.types import MAX_TIMESTAMP
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.main import main
from triolog.tools.cli.terminal import remote
from triolog.tools.cli.terminal.failures import FailedError, NotConnectedError
from triolog.tools.cli.terminal.places import read_position
from triolog.tools.cli.terminal.remote import ServerAddress, call_server
from triolog.tools.cli.terminal.times import parse_zone
from triolog.tools.client.connection import Client
from triolog.tools.client.errors import ConnectionLostError
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime, Place, Shifted

from tests.tools.cli.conftest import Cli

UTC = parse_zone("UTC")
MORNING_MS = 1_783_159_200_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *((word, EARLIEST) for word in ("start", "earliest", "beginning", "Oldest")),
        *((word, LATEST) for word in ("end", "latest", "END")),
        ("max", AtTime(MAX_TIMESTAMP)),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("-10", Shifted(LATEST, -10)),
        ("+10", Shifted(EARLIEST, 10)),
        *((f"{at}2026-07-04T10:00", AtTime(MORNING_MS)) for at in ("", "@")),
        ("@2026-07-04T10:00:00Z", AtTime(MORNING_MS)),
        ("@1783159200", AtTime(MORNING_MS)),
        ("@1783159200.5", AtTime(MORNING_MS + 500)),
        *((f"{at}@{MORNING_MS}", AtTime(MORNING_MS)) for at in ("", "s", "e")),
        ("s@5", AtTime(5)),
    ],
)
def test_every_form_is_one_position(text: str, place: Place) -> None:
    assert read_position(text, UTC, "--offset") == place


@pytest.mark.parametrize("text", ["10m", "@10m"])
def test_a_duration_is_that_long_ago(text: str) -> None:
    place = read_position(text, UTC, "--offset")
    assert isinstance(place, AtTime)
    assert abs(time.time() * 1000 - 600_000 - place.timestamp) < 60_000


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ernd", "Did you mean end?"),
        ("erliest", "Did you mean earliest?"),
        ("noon", "Write start, end, 42, -10"),
        ("--5", "Write start, end"),
        ("@noon", "invalid time 'noon': use 10m"),
        ("2026-13-04", "invalid time '2026-13-04': use 10m"),
        ("5:10", "Write start, end"),
    ],
)
def test_an_error_names_the_option_and_the_nearest_form(text: str, hint: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        read_position(text, UTC, "--offset")
    assert f"{text!r} is not a position. {hint}" in raised.value.message
    assert raised.value.param_hint == "--offset"


def test_commands_agree_on_positions(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    for number in range(20):
        broker.append("t", [(MORNING_MS + number * 1000, None, b"%d" % number, ())])
    cli.ok("topics", "trim", "t", "-o", "5", "-y")
    zone = ("--timezone", "UTC")
    for text, offset in (
        *(("start", 5), ("end", 20), ("7", 7), ("-3", 17), ("-100", 5), ("+2", 7), ("max", 19)),
        *(("@2026-07-04T10:00:12", 12), (f"s@{MORNING_MS + 9000}", 9)),
    ):
        assert [each["offset"] for each in cli.json("offsets", "t", "-o", text, *zone)] == [offset], text
        assert [each["offset"] for each in cli.lines("consume", "t", "-o", text, *zone)][:1] == [offset][: offset < 20], text
        moved = cli.json("groups", "reset", "g", "t", "-o", text, *zone)
        assert [each["offset"] for each in moved["offsets"]] == [offset], text
        if text != "max":
            [walk] = cli.json("explain", "t", "-o", text, *zone) if offset < 20 else [None]
            assert walk is None or walk["walk"]["answer"]["offset"] == offset, text
    assert [each["offset"] for each in cli.lines("consume", "t", "-o", "-5", "--until", "-3")] == [15, 16]
    cli.ok("topics", "trim", "t", "-o", "-2", "-y")
    assert [each["offset"] for each in cli.json("offsets", "t", "-o", "start")] == [18]


def test_spellings_of_the_last_release_and_a_position_exclude_each_other(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    for arguments in (
        ("consume", "t", "--from", "5", "-o", "start"),
        ("groups", "reset", "g", "t", "--to-time", "5", "--to", "1"),
    ):
        assert " exclude each other" in cli.refused(*arguments, code=2)
    assert "no new position" in cli.refused("groups", "reset", "g", "t", code=2)


PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    keys = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with triolog.blocking.open(users={"alice": PASSWORD}, topics=["topic"], security=keys, native="127.0.0.1:0") as broker:
        yield "{}:{}".format(*broker.native)


def topics(server: str, *options: str, **variables: str) -> Result:
    environment = {"TRIOLOG_SERVER": server, "TRIOLOG_PASSWORD": None, "TRIOLOG_USER": None, **variables}
    return CliRunner().invoke(main, ["topics", "list", *options], env=environment)


def test_the_password_is_from_a_file_or_a_variable(server: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    for result in (
        topics(server, "--user", "alice", "--password-file", str(file)),
        topics(server, "--user", "alice", TRIOLOG_PASSWORD=PASSWORD),
        topics(server, TRIOLOG_USER="alice", TRIOLOG_PASSWORD_FILE=str(file)),
    ):
        assert (result.exit_code, "topic" in result.stdout) == (0, True), result.output


def test_what_is_wrong_with_a_login_is_said_without_the_password(server: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff secret")
    said = {
        "login failed at": topics(server, "--user", "alice", TRIOLOG_PASSWORD="a secret"),
        "--user NAME": topics(server),
        "--password-file needs --user": topics(server, "--password-file", str(file)),
        "cannot read the password": topics(server, "--user", "alice", "--password-file", str(file)),
    }
    for words, result in said.items():
        assert result.exit_code != 0
        assert words in result.output
        assert "secret" not in result.output
        assert "Traceback" not in result.output


def test_the_password_is_asked_for_at_the_terminal_and_nowhere_else(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", lambda prompt: PASSWORD if prompt == "Password of alice: " else "")
    assert topics(server, "--user", "alice").exit_code == 0

    def no_terminal(_: str) -> str:
        raise OSError(6, "No such device or address: '/dev/tty'")

    monkeypatch.setattr("getpass.getpass", no_terminal)
    result = topics(server, "--user", "alice")
    assert result.exit_code != 0
    assert "no terminal for the password prompt of alice" in result.output


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
