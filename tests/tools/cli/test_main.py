"""The `triolog` command imports a subcommand when it is called, and not before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from triolog.tools.cli.main import SUBCOMMANDS, LazyGroup, Subcommand, main
from triolog.tools.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_CONNECTED, OutputClosedError

PLANTED = "planted_subcommand"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LazyGroup]:
    source = 'import click\n\n@click.command()\ndef command():\n    """Long help."""\n    click.echo("called")\n'
    (tmp_path / f"{PLANTED}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield LazyGroup("planted", subcommands={"greet": Subcommand(PLANTED, "Say a word.")})
    sys.modules.pop(PLANTED, None)


def test_version_is_the_installed_one() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"triolog {version('triolog')}\n"


def test_help_lists_subcommands_without_importing_them(group: LazyGroup) -> None:
    assert "greet  Say a word." in CliRunner().invoke(group, ["--help"]).output
    assert PLANTED not in sys.modules


def test_a_call_imports_and_runs_the_subcommand(group: LazyGroup) -> None:
    assert CliRunner().invoke(group, ["greet"]).output == "called\n"
    assert PLANTED in sys.modules


def test_an_unknown_subcommand_is_a_usage_error(group: LazyGroup) -> None:
    result = CliRunner().invoke(group, ["shout"])
    assert result.exit_code == 2
    assert "No such command 'shout'" in result.output


def test_every_subcommand_of_the_table_is_a_command() -> None:
    modules = [importlib.import_module(subcommand.module) for subcommand in SUBCOMMANDS.values()]
    assert [module.__name__ for module in modules if not isinstance(module.command, click.Command)] == []


def test_the_documentation_has_every_client_command_and_every_exit_code() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()
    headings = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}
    # operations, Spark, README, the tutorial of damage, edge, benchmarks
    elsewhere = {"serve", "spark", "demo", "damage-demo", "edge-demo", "bench", "bench-kafka"}
    assert headings == SUBCOMMANDS.keys() - elsewhere | {"Times"}
    for code in (0, EXIT_FAILED, 2, EXIT_NOT_CONNECTED, EXIT_INTERRUPTED):
        assert f"\n| {code} | " in text


def test_ctrl_c_ends_any_subcommand_quietly(group: LazyGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    planted = importlib.import_module(PLANTED)
    monkeypatch.setattr(planted, "command", click.Command("greet", callback=interrupted))
    result = CliRunner().invoke(group, ["greet"])
    assert (result.exit_code, result.output) == (EXIT_INTERRUPTED, "")


def test_a_reader_that_is_gone_ends_any_subcommand_quietly(group: LazyGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_reads() -> None:
        raise OutputClosedError

    planted = importlib.import_module(PLANTED)
    monkeypatch.setattr(planted, "command", click.Command("greet", callback=nobody_reads))
    result = CliRunner().invoke(group, ["greet"])
    assert (result.exit_code, result.output) == (0, "")


def test_completion_offers_names_and_their_help_without_importing_them(group: LazyGroup) -> None:
    offered = group.shell_complete(click.Context(group), "gr")
    assert [(item.value, item.help) for item in offered] == [("greet", "Say a word.")]
    assert group.shell_complete(click.Context(group), "x") == []
    assert PLANTED not in sys.modules
