from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner
from triolog.protocol.extras import how_to_install
from triolog.server.config.broker_config import DEFAULT_NATIVE
from triolog.server.listeners.opening import Addresses
from triolog.tools.cli import serve
from triolog.tools.cli.completion import SHELLS
from triolog.tools.cli.main import SUBCOMMANDS, LazyGroup, Subcommand, main
from triolog.tools.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_CONNECTED, OutputClosedError

from tests.support.server_process import ServerFolder, python_command
from tests.tools.cli.conftest import call

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


@pytest.mark.merge
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


def test_garbage_is_looked_for_seldom_while_logs_are_opened_and_as_always_once_they_are_served(tmp_path: Path) -> None:
    usual, ready = gc.get_threshold(), tmp_path / "ready"
    with serve.seldom_collecting():
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 50 * usual[0]  # 2,000 from Python 3.13 on, 700 before
        serve._started(str(ready), Addresses(DEFAULT_NATIVE, None))
        assert gc.get_threshold() == usual
    assert gc.get_threshold() == usual
    assert "native" in json.loads(ready.read_text(encoding="utf-8"))
    with contextlib.suppress(OSError), serve.seldom_collecting():
        raise OSError("a start that fails")
    assert gc.get_threshold() == usual


@pytest.mark.parametrize(("soft", "raised"), [(256, serve.OPEN_MAX), (20_000, 20_000)])
def test_an_unlimited_hard_limit_raises_the_soft_one_for_macos(soft: int, raised: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (soft, resource.RLIM_INFINITY)

    def set_as_on_macos(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[0] == resource.RLIM_INFINITY:
            raise ValueError("invalid argument")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", set_as_on_macos)
    serve._raise_descriptor_limit()
    assert limits == (raised, resource.RLIM_INFINITY)


def test_a_configuration_file_without_data_directories_and_kafkas_options_are_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("node_id = 5\n")
    assert "names no data_dirs. Add them, or give --data-dir DIR" in call("serve", "-c", file).stderr
    assert "Did you mean --kafka PORT (for Kafka clients)" in call("serve", "--port", "9092").stderr
    assert "--kafka HOST:PORT and --native HOST:PORT" in call("serve", "--host", "0.0.0.0").stderr
    assert "other machines can reach" in call("serve", "-d", tmp_path / "data", "--kafka", "0.0.0.0").stderr


REPORT: Final = """
import atexit, json, os, sys
atexit.register(lambda: open(os.environ["MODULES_FILE"], "w").write(json.dumps(sorted(sys.modules))))
"""
"""At the end, so that what stopping loads is seen too."""

NEVER_SERVED: Final = (
    *("rich", "pygments", "pandas", "numpy", "concurrent.futures", "email", "importlib.metadata", "multiprocessing"),
    *("zoneinfo", "asyncio", "triolog.tools.client", "triolog.tools.bench", "triolog.tools.demo"),
)
TERMINAL: Final = ("rich", "trio", "msgpack", "triolog.server", "triolog.protocol", "triolog.tools.client")


def loaded(modules: set[str], names: tuple[str, ...]) -> list[str]:
    return [name for name in sorted(modules) if any(name == prefix or name.startswith(f"{prefix}.") for prefix in names)]


def modules_of(tmp_path: Path, *arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Standard output of a command, and the modules it loaded."""
    report = tmp_path / "modules.json"
    variables = {**os.environ, "MODULES_FILE": str(report), **environment}
    run = subprocess.run([*python_command(REPORT), *arguments], env=variables, capture_output=True, text=True, check=True)
    return run.stdout, set(json.loads(report.read_text()))


@pytest.mark.merge
def test_serve_loads_neither_client_nor_terminal_nor_a_protocol_that_it_does_not_speak(tmp_path: Path) -> None:
    report = tmp_path / "modules.json"
    with ServerFolder(tmp_path, command=python_command(REPORT)) as folder:
        server = folder.start(extra_environment={"MODULES_FILE": str(report)})
        assert server.stop() == 0
    modules = set(json.loads(report.read_text()))
    assert loaded(modules, NEVER_SERVED) == []
    assert loaded(modules, ("triolog.server.listeners.kafka", "triolog.protocol.kafka.messages", "re2", "h11")) == []
    assert {"triolog.server.broker", "cramjam"} <= modules  # batches are checked, however they are compressed


@pytest.mark.merge
def test_help_and_completion_load_no_subcommand_that_they_do_not_need(tmp_path: Path) -> None:
    text, modules = modules_of(tmp_path, "--help")
    for words in ("Exit codes:", "triolog completion bash", "consume", "Print records from a position on"):
        assert words in text
    assert loaded(modules, TERMINAL) == []
    for name in ("topics", "consume", "dump", "produce"):
        text, modules = modules_of(tmp_path, name, "--help")
        assert text.startswith("Usage: ")
        assert loaded(modules, ("rich", "trio")) == []
    for words, expected, unloaded in (
        ("triolog ", {"serve", "topics", "produce", "consume", "offsets", "explain", "dump"}, TERMINAL),
        ("triolog topics d", {"describe", "delete"}, ("rich",)),
        ("triolog consume t --format ", {"json", "raw", "table"}, ("rich",)),
    ):
        cword = str(len(words.split(" ")) - 1)
        text, modules = modules_of(tmp_path, _TRIOLOG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=cword)
        offered = {word.removeprefix("plain,") for word in text.split()}
        assert expected <= offered if words == "triolog " else expected == offered
        assert loaded(modules, unloaded) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_to_evaluate(tmp_path: Path, shell: str) -> None:
    """By the command, and by click's variable."""
    text, modules = modules_of(tmp_path, "completion", shell)
    assert f"_TRIOLOG_COMPLETE={shell}_complete" in text
    assert loaded(modules, TERMINAL) == []
    assert modules_of(tmp_path, _TRIOLOG_COMPLETE=f"{shell}_source")[0] == text


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_with_the_script_that_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "triolog"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m triolog.tools.cli "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(triolog completion bash)"
        COMP_WORDS=(triolog topics cr) COMP_CWORD=2
        _triolog_completion triolog
        echo "${COMPREPLY[@]}"
    """
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(["bash", "--norc", "-c", script], env=variables, capture_output=True, text=True, check=True)
    assert run.stdout == "create\n"
