from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from triolog.protocol.extras import how_to_install
from triolog.tools.cli.main import SUBCOMMANDS, LazyGroup, Subcommand, main
from triolog.tools.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_CONNECTED, OutputClosedError

PLANTED = "planted_subcommand"
WITHOUT = """
import importlib.machinery, sys
import triolog.tools.cli as cli
finder, find = importlib.machinery.PathFinder, importlib.machinery.PathFinder.find_spec
finder.find_spec = lambda name, *more: None if name == "cramjam" else find(name, *more)
cli.run()
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LazyGroup]:
    source = 'import click\n\n@click.command()\ndef command():\n    """Long help."""\n    click.echo("called")\n'
    (tmp_path / f"{PLANTED}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield LazyGroup("planted", subcommands={"greet": Subcommand(PLANTED, "Say a word.")})
    sys.modules.pop(PLANTED, None)


def test_help_and_completion_list_subcommands_without_importing_them_and_a_call_runs_one(group: LazyGroup) -> None:
    assert "greet  Say a word." in CliRunner().invoke(group, ["--help"]).output
    offered = group.shell_complete(click.Context(group), "gr")
    assert [(item.value, item.help) for item in offered] == [("greet", "Say a word.")]
    assert group.shell_complete(click.Context(group), "x") == []
    result = CliRunner().invoke(group, ["shout"])
    assert (result.exit_code, "no such command 'shout'" in result.output) == (2, True)
    assert PLANTED not in sys.modules
    assert CliRunner().invoke(group, ["greet"]).output == "called\n"
    assert PLANTED in sys.modules


def test_the_documentation_has_every_client_command_and_every_exit_code() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()
    headings = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}
    # operations, Spark, README, the tutorial of damage, edge, benchmarks
    elsewhere = {"serve", "spark", "demo", "damage-demo", "edge-demo", "bench", "bench-kafka"}
    assert headings == SUBCOMMANDS.keys() - elsewhere | {"Times", "Positions in a log"}
    for asked in ("--version", "-V", "version"):
        assert CliRunner().invoke(main, [asked]).output == f"triolog {version('triolog')}\n"
    for code in (0, EXIT_FAILED, 2, EXIT_NOT_CONNECTED, EXIT_INTERRUPTED):
        assert f"\n| {code} | " in text


def test_the_command_names_the_missing_packages_of_its_extra_in_one_line() -> None:
    program = "import sys; sys.modules.update(rich=None, yaml=None); import triolog.tools.cli as cli; cli.run()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    message = f"the triolog command needs rich, PyYAML: {how_to_install('cli')}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_the_command_names_a_package_of_the_core_that_has_no_wheel_for_this_machine(tmp_path: Path) -> None:
    addresses = ("--native", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    command = [sys.executable, "-c", WITHOUT, "serve", "--data-dir", str(tmp_path), *addresses]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"triolog needs the package cramjam, built for Python {sys.version_info[0]}.")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("raised", "exit_code"), [(KeyboardInterrupt, EXIT_INTERRUPTED), (OutputClosedError, 0)])
def test_ctrl_c_and_a_reader_that_is_gone_end_any_subcommand_quietly(
    group: LazyGroup, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException], exit_code: int
) -> None:
    def fail() -> None:
        raise raised

    monkeypatch.setattr(importlib.import_module(PLANTED), "command", click.Command("greet", callback=fail))
    result = CliRunner().invoke(group, ["greet"])
    assert (result.exit_code, result.output) == (exit_code, "")
