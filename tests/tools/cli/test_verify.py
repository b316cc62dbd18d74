from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import Result
from triolog.server.storage.directory.log_directory import DirectoryLock

from tests.support.stopped_logs import StoppedLogs

from .conftest import call, json_lines


def verify(*arguments: object) -> Result:
    return call("verify", *arguments)


def damage_first_log(logs: StoppedLogs) -> Path:
    log = sorted(logs.partition().glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    return log


def test_a_clean_directory_ends_with_0_and_a_line_for_each_partition(logs: StoppedLogs) -> None:
    result = verify(logs.path)
    assert (result.exit_code, result.stderr) == (0, "")
    first, second, last = result.stdout.splitlines()
    assert first.startswith("ok      flights-0: ")
    assert second.startswith("ok      flights-1: ")
    assert last.endswith("of log: no damage")
    (logs.partition() / "evil\x1b[2J").touch()
    result = verify(logs.path)
    assert "\x1b" not in result.stdout, "nor does a name reach the terminal as it is"
    assert "evil\\x1b[2J" in result.stdout


def test_damage_ends_with_1_and_names_file_position_size_and_offsets(logs: StoppedLogs) -> None:
    log = damage_first_log(logs)
    result = verify(logs.path)
    assert result.exit_code == 1
    damage = next(line for line in result.stdout.splitlines() if line.startswith("damage"))
    assert damage.startswith(f"damage  flights-0/{log.name} (")
    assert "bytes at position 0, offset" in damage
    assert "carries CRC" in damage
    assert "FAILED  flights-0: " in result.stdout
    assert "ok      flights-1: " in result.stdout
    assert "triolog repair --dry-run" in result.stdout.splitlines()[-1]


def test_json_lines_are_findings_partitions_and_a_verdict_and_nothing_is_changed(logs: StoppedLogs) -> None:
    damage_first_log(logs)
    before = {path: path.read_bytes() for path in logs.path.rglob("*") if path.is_file()}
    found = json_lines("verify", "--json", logs.path)
    finding = next(line for line in found if line["type"] == "finding")
    assert (finding["severity"], finding["check"], finding["position"]) == ("damage", "batch", 0)
    partitions = [line for line in found if line["type"] == "partition"]
    assert [(line["partition"], line["ok"]) for line in partitions] == [(0, False), (1, True)]
    assert found[-1]["type"] == "verdict"
    assert found[-1]["ok"] is False
    assert found[-1]["damages"] == sum(line["type"] == "finding" and line["severity"] == "damage" for line in found)
    after = {path: path.read_bytes() for path in logs.path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == before


def test_a_partition_and_a_topic_can_be_named(logs: StoppedLogs) -> None:
    damage_first_log(logs)
    assert verify(logs.partition(1)).exit_code == 0
    assert verify(logs.path, "--topic", "flights").exit_code == 1
    missing = verify(logs.path, "--topic", "trains")
    assert missing.exit_code == 3
    assert "has no partition of topic 'trains'" in missing.stderr


@pytest.mark.parametrize("part", ["", "flights-1"])
def test_a_directory_that_a_server_holds_is_refused_with_its_process(logs: StoppedLogs, part: str) -> None:
    lock = DirectoryLock.acquire(str(logs.path))
    try:
        result = verify(logs.path / part)
    finally:
        lock.release()
    assert result.exit_code == 3
    assert f"another server (triolog, process {os.getpid()}) holds" in result.stderr
    assert verify(logs.path).exit_code == 0
