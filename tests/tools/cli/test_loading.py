"""What commands load: `serve` no client and nothing for terminals, the help and the completion nothing at all."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.server_process import ServerFolder, python_command

REPORT: Final = """
import atexit, json, os, sys
atexit.register(lambda: open(os.environ["MODULES_FILE"], "w").write(json.dumps(sorted(sys.modules))))
"""
"""At the end, so that what stopping loads is seen too."""

NEVER_SERVED: Final = (
    "rich",
    "pygments",
    "pandas",
    "numpy",
    "concurrent.futures",
    "multiprocessing",
    "zoneinfo",
    "asyncio",
    "triolog.tools.client",
    "triolog.tools.bench",
    "triolog.tools.demo",
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


def test_help_loads_no_subcommand(tmp_path: Path) -> None:
    text, modules = modules_of(tmp_path, "--help")
    for words in ("Exit codes:", "_TRIOLOG_COMPLETE=bash_source triolog", "consume", "Print records, by offset or by time."):
        assert words in text
    assert loaded(modules, TERMINAL) == []


def test_completion_of_subcommands_loads_no_subcommand(tmp_path: Path) -> None:
    text, modules = modules_of(tmp_path, _TRIOLOG_COMPLETE="bash_complete", COMP_WORDS="triolog ", COMP_CWORD="1")
    assert {
        "plain,serve",
        "plain,topics",
        "plain,produce",
        "plain,consume",
        "plain,offsets",
        "plain,explain",
        "plain,dump",
    } <= set(text.split())
    assert loaded(modules, TERMINAL) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("triolog con", ["consume"]),
        ("triolog --v", ["--version"]),
        ("triolog topics d", ["describe", "delete"]),
        ("triolog consume t --format ", ["json", "raw", "table"]),
        ("triolog produce t --compr", ["--compression"]),
    ],
)
def test_bash_completes(tmp_path: Path, words: str, expected: list[str]) -> None:
    cword = str(len(words.split(" ")) - 1)
    text, modules = modules_of(tmp_path, _TRIOLOG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=cword)
    assert sorted(text.split()) == [f"plain,{word}" for word in sorted(expected)]
    assert loaded(modules, ("rich",)) == []


def test_bash_gets_a_script_to_evaluate(tmp_path: Path) -> None:
    text, modules = modules_of(tmp_path, _TRIOLOG_COMPLETE="bash_source")
    assert "_TRIOLOG_COMPLETE=bash_complete" in text
    assert loaded(modules, TERMINAL) == []


@pytest.mark.parametrize("arguments", [("topics", "--help"), ("consume", "--help"), ("dump", "--help"), ("produce", "--help")])
def test_help_of_a_subcommand_loads_no_rich(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    text, modules = modules_of(tmp_path, *arguments)
    assert text.startswith("Usage: triolog ")
    assert loaded(modules, ("rich", "trio")) == []
