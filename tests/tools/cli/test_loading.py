from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from triolog.tools.cli.completion import SHELLS

from tests.support.server_process import ServerFolder, python_command

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


def test_serve_loads_neither_client_nor_terminal_nor_a_protocol_that_it_does_not_speak(tmp_path: Path) -> None:
    report = tmp_path / "modules.json"
    with ServerFolder(tmp_path, command=python_command(REPORT)) as folder:
        server = folder.start(extra_environment={"MODULES_FILE": str(report)})
        assert server.stop() == 0
    modules = set(json.loads(report.read_text()))
    assert loaded(modules, NEVER_SERVED) == []
    assert loaded(modules, ("triolog.server.listeners.kafka", "triolog.protocol.kafka.messages", "re2", "h11")) == []
    assert {"triolog.server.broker", "cramjam"} <= modules  # batches are checked, however they are compressed


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
