from __future__ import annotations

import runpy
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from triolog.tools.cli.terminal.grammar import Group, ignored, option
from triolog.tools.cli.terminal.remote import DEFAULT_SERVER, plain_server_option

from ..conftest import call


@click.group(cls=Group)
def outer() -> None:
    """Food."""


@outer.group("fruits", cls=Group)
def group() -> None:
    """Fruit."""


@group.command("list")
@option("-n", "--max", "limit", also=("--limit",), type=int, default=9, show_default=True, help="At most N.")
@option("--order", "order", means={"--from-first": "first"}, multiple=True)
@ignored("-e", "--exit")
@ignored("--replicas", takes_value=True)
@click.argument("topic", required=False)
def list_fruit(limit: int, order: tuple[str, ...], topic: str | None) -> None:
    click.echo(f"{limit} {order} {topic}")


@group.command
def remove() -> None:
    click.echo("removed")


def outcome(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(outer, ["fruit", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("ls", "--limit", "3", "--from-first"), "3 ('first',) None"),
        (("LIST", "-n3", "-e", "--replicas", "3", "a"), "3 () a"),
        (("lists", "--topic", "a"), "9 () a"),
        (("--list", "-t", "a"), "9 () a"),
        (("--limit", "4", "--list"), "4 () None"),
        (("kafka-list.sh",), "9 () None"),
        (("rm",), "removed"),
        (("delete",), "removed"),
    ],
)
def test_other_spellings_work(arguments: tuple[str, ...], printed: str) -> None:
    assert outcome(*arguments) == (0, f"{printed}\n")


def test_other_spellings_are_not_shown() -> None:
    shown = outcome("list", "--help")[1]
    assert "-n, --max INTEGER  At most N.  [default: 9]" in shown
    assert not [word for word in ("--limit", "--from-first", "--exit", "--replicas", "--topic") if word in shown]
    assert "  list\n  remove\n" in outcome("--help")[1]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("produc", "Did you mean `triolog produce`?"),
        ("topics crate", "Did you mean `triolog topics create`?"),
        ("topics produce", "Did you mean `triolog produce`?"),
        ("create", "Did you mean `triolog topics create NAME`?"),
        ("kcat -C -t flights", "Did you mean `triolog consume TOPIC`?"),
        ("XLEN flights", "Did you mean `triolog offsets TOPIC`?"),
        ("topics alter t --partitions 4", "Did you mean `triolog topics add-partitions NAME TOTAL`?"),
        ("xyzzy", "`triolog -h` lists the commands"),
        ("-s localhost topics list", "Options follow the command, as in `triolog topics list --server localhost`"),
        ("topics create t --partitons 3", "Did you mean --partitions?"),
        ("topics create t --xyzzy", "`triolog topics create -h` lists the options"),
        ("consume t --format jsn", "Did you mean json?"),
        ("topics create", "Usage: triolog topics create [OPTIONS] NAME"),
        ("topics create a b", "Usage: triolog topics create [OPTIONS] NAME"),
        ("spark exprt", "Did you mean `triolog spark export`?"),
    ],
)
def test_a_wrong_word_is_one_line_with_the_nearest_spelling(arguments: str, hint: str) -> None:
    result = call(*arguments.split())
    [line] = result.stderr.splitlines()
    assert (result.exit_code, line.startswith("Error: "), line.endswith(hint)) == (2, True, True), line


@pytest.mark.parametrize("arguments", [(), ("topics",), ("topics", "create"), ("spark",), ("forward", "status"), ("serve",)])
def test_short_help_is_the_long_one(arguments: tuple[str, ...]) -> None:
    assert call(*arguments, "-h").stdout == call(*arguments, "--help").stdout != ""


def test_a_group_without_a_command_shows_its_help() -> None:
    result = call("topic")
    assert (result.exit_code, result.stderr) == (2, call("topics", "-h").stdout)


def test_no_line_of_help_is_cut_off_or_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = runpy.run_path(str(Path(__file__).parents[4] / "packaging/man_pages.py"))
    for ctx in pages["contexts"]():
        lines = ctx.get_help().splitlines()
        assert [line for line in lines if len(line) > 80] == [], ctx.command_path
        assert not isinstance(ctx.command, click.Group) or not [line for line in lines[1:] if line.endswith("...")]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", "localhost:9095"),
        ("localhost:1", "localhost:1"),
        ("7", "127.0.0.1:7"),
        (":7", "127.0.0.1:7"),
        ("[::1]", "[::1]:9095"),
        ("::1", "[::1]:9095"),
        ("[::1]:7", "[::1]:7"),
        ("triolog://localhost:7/", "localhost:7"),
        ("x", "x:9095"),
    ],
)
@pytest.mark.parametrize("name", ["--server", "-s", "--bootstrap-server", "--brokers", "-b"])
def test_an_address_without_host_or_port_has_the_default_one(name: str, text: str, address: str) -> None:
    @click.command
    @plain_server_option
    def show(server: object) -> None:
        click.echo(server)

    assert CliRunner().invoke(show, [name, text]).output == f"{address}\n"
    assert CliRunner().invoke(show, []).output == f"{DEFAULT_SERVER}\n"
