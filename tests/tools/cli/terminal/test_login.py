from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import triolog
from click.testing import CliRunner, Result
from triolog.tools.cli.main import main

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
