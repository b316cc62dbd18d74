"""Files of a log directory that are too large, or that no program wrote: one clear line of every command, and a way back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from triolog.server.storage.disk import checkpoints

from tests.support.stopped_logs import StoppedLogs

from .conftest import call

STATE_FILES = ["topics.json", "security.json", "groups.json", "client-metrics.json"]
COMMANDS = {
    "verify": (1,),
    "repair --dry-run": (1,),
    "repair": (0, 1),
    "du": (0,),
    "reindex": (0,),
    "compact --topic flights --force": (0,),
    "gaps list --data-dir": (0,),
    "export --topic flights": (0,),
}


@pytest.mark.parametrize("name", [*STATE_FILES, "topics-in-creation.json", "meta.properties", "producer-id-block"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_too_large_is_no_traceback(name: str, command: str, logs: StoppedLogs) -> None:
    path = logs.path / name
    path.touch()
    os.truncate(path, checkpoints.limit_of(name) + 1)  # sparse
    result = call(*command.split(), logs.path)
    assert result.exit_code in COMMANDS[command], result.output
    if command in ("verify", "repair --dry-run") or (command == "reindex" and name == "topics.json"):
        assert f"{name} has {checkpoints.limit_of(name) + 1} bytes, at most" in result.output


def test_repair_returns_to_the_copy_from_before_the_last_change(logs: StoppedLogs) -> None:
    path = logs.path / "topics.json"
    good = path.read_bytes()
    path.with_name("topics.json.previous").write_bytes(good)
    path.write_bytes(b"{")
    assert "`triolog repair" in call("verify", logs.path).stdout
    result = call("repair", logs.path)
    assert result.exit_code == 0
    assert "rewrite     topics.json: restored from before the last change" in result.stdout
    assert (path.read_bytes(), path.with_name("topics.json.corrupt-0").read_bytes()) == (good, b"{")
    assert call("verify", logs.path).exit_code == 0


def test_millions_of_lines_in_a_checkpoint_are_one_finding(logs: StoppedLogs) -> None:
    path: Path = logs.path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n3000000\n" + b"flights 0 1\n" * 3_000_000)
    result = call("verify", logs.path)
    assert (result.exit_code, len(result.stdout.splitlines()) < 10) == (1, True)
    assert "has 3000002 lines. A checkpoint has at most 1000000 entries" in result.stdout
