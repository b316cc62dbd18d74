from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.storage.directory.log_directory import DirectoryLock

from tests.support.stopped_logs import StoppedLogs

from .conftest import call, json_lines


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def first(logs: StoppedLogs, suffix: str) -> Path:
    return sorted(logs.partition().glob(f"*{suffix}"))[0]


def test_dry_run_then_repair_then_nothing(logs: StoppedLogs) -> None:
    log = first(logs, ".log")
    flip(log, 90)
    damaged = log.read_bytes()
    planned = call("repair", logs.path, "--dry-run")
    assert planned.exit_code == 1
    assert planned.stdout.splitlines()[-1].endswith("planned; nothing was changed")
    assert log.read_bytes() == damaged
    done = call("repair", logs.path)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:-1] == planned.stdout.splitlines()[:-1]
    assert done.stdout.splitlines()[0].startswith(f"quarantine  flights-0/{log.name} (offsets 0 to ")
    assert done.stdout.splitlines()[-1].endswith("no byte deleted; checked again: no damage is left")
    assert call("verify", logs.path).exit_code == 0
    assert call("repair", logs.path).stdout == "nothing is damaged\n"


def test_what_is_left_ends_with_1_and_is_named(logs: StoppedLogs) -> None:
    (logs.path / "topics.json").write_bytes(b"{")
    result = call("repair", logs.path)
    assert result.exit_code == 1
    assert "left        topics.json: topics: " in result.stdout
    assert result.stdout.splitlines()[-1].endswith("1 damage left")


def test_json_lines_are_actions_and_a_verdict(logs: StoppedLogs) -> None:
    flip(first(logs, ".log"), 90)
    found = json_lines("repair", "--json", logs.path)
    assert [found[0][name] for name in ("type", "kind", "first_offset")] == ["action", "quarantine", 0]
    verdict = {"type": "verdict", "ok": True, "dry_run": False, "damages": 1, "actions": len(found) - 1, "left": 0}
    assert found[-1] == verdict


@pytest.mark.parametrize("command", [("repair",), ("repair", "--dry-run"), ("reindex",)])
def test_a_directory_that_a_server_holds_is_refused(logs: StoppedLogs, command: tuple[str, ...]) -> None:
    flip(first(logs, ".log"), 90)
    before = {path: path.read_bytes() for path in logs.path.rglob("*") if path.is_file()}
    lock = DirectoryLock.acquire(str(logs.path))
    try:
        result = call(*command, logs.path)
    finally:
        lock.release()
    assert result.exit_code == 3
    assert "another server (triolog, process " in result.stderr
    assert {path: path.read_bytes() for path in before} == before


def test_reindex_makes_every_index_as_it_was(logs: StoppedLogs) -> None:
    indexes = list(logs.path.rglob("*index"))
    before = {path: path.read_bytes() for path in indexes}
    for path in indexes:
        path.unlink()
    result = call("reindex", logs.path)
    assert result.exit_code == 0, result.stdout
    assert {path: path.read_bytes() for path in logs.path.rglob("*index")} == before
    for number in range(2):
        sorted(logs.partition(number).glob("*.index"))[0].unlink()
    assert call("reindex", logs.partition(1)).exit_code == 0
    assert call("verify", logs.partition(1)).exit_code == 0
    assert call("verify", logs.partition(0)).exit_code == 1, "the others are left"


def test_reindex_leaves_a_damaged_segment_and_names_it(logs: StoppedLogs) -> None:
    log = first(logs, ".log")
    flip(log, 90)
    result = call("reindex", logs.path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith(f"left  flights-0/{log.name}: the log is damaged at position 0: ")
    (failed,) = [line for line in json_lines("reindex", "--json", logs.path) if line.get("failure")]
    assert failed["file"] == f"flights-0/{log.name}"
