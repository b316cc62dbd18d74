from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from triolog.server.storage.directory.log_directory import DirectoryLock, holder_of
from triolog.tools.cli.doctor import directory, log_lines, redaction, report

from tests.support.damaged_batches import flip
from tests.support.stopped_logs import StoppedLogs

from ..conftest import call
from .conftest import Doctor


def test_the_report_is_one_private_file_and_its_place_is_printed(here: Path, logs: StoppedLogs) -> None:
    flip(min(logs.partition().glob("*.log")), 80)
    result = call("doctor", logs.path)
    assert (result.exit_code, result.stderr) == (1, "")
    lines = result.stdout.strip().splitlines()
    assert lines[0].split() == ["symptom", "evidence", "reason", "next", "step"]
    assert "damaged" in result.stdout
    assert "triolog repair DIR --dry-run shows the repairs" in result.stdout
    assert lines[-2].endswith("1 problem, 0 notes")
    [path] = here.glob("triolog-doctor-*.zip")
    assert lines[-1] == f"report for a maintainer: {path.name}. Read it before you send it"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as file:
        names = ["configuration.json", "directory-1.json", "report.json", "report.txt", "system.json", "verify-1.json"]
        assert file.namelist() == names
        assert json.loads(file.read("system.json"))["packages"]["triolog"]
        assert b"triolog repair DIR" in file.read("report.txt")
        [finding] = json.loads(file.read("verify-1.json"))["findings"]
    assert (finding["severity"], finding["check"], finding["position"]) == ("damage", "batch", 0)


def test_equal_parts_are_equal_files_and_a_file_is_not_replaced(tmp_path: Path) -> None:
    parts = {"b.txt": "text\n", "a.json": {"z": 1, "a": [2]}}
    for name in ("one", "two"):
        report.write_report(str(tmp_path / name), dict(reversed(parts.items())) if name == "one" else parts)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with pytest.raises(FileExistsError):
        report.write_report(str(tmp_path / "one"), parts)


def test_a_wrong_command_line_and_a_place_that_cannot_be_written_are_refused(here: Path, logs: StoppedLogs) -> None:
    for code, arguments, words in (
        (2, ("no/such/directory",), "is not a directory"),
        (2, ("localhost:port",), "is not HOST:PORT"),
        (3, (logs.path, "--output", logs.path / "report.zip"), "would be in the log directory"),
        (3, (logs.path, "--output", here / "none" / "report.zip"), "No such file or directory. Name another"),
        (3, (logs.path, "--log", "none.log"), "none.log: No such file"),
    ):
        result = call("doctor", *arguments)
        assert (result.exit_code, words in result.stderr) == (code, True), result.output
    assert list(here.glob("*.zip")) == []


def test_the_holder_of_a_lock_is_read_without_a_lock(logs: StoppedLogs) -> None:
    assert holder_of(str(logs.path)) is None
    lock = DirectoryLock.acquire(str(logs.path))
    try:
        assert holder_of(str(logs.path)) == f"triolog, process {os.getpid()}"
    finally:
        lock.release()
    (logs.path / ".lock").write_text("triolog, process 1\n")
    assert holder_of(str(logs.path)) is None, "a server that was killed leaves its name"
    DirectoryLock.acquire(str(logs.path)).release()


def test_limits_cut_the_report_and_it_says_so(
    logs: StoppedLogs, tmp_path: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MAX_VERIFIED", 1)
    flip(min(logs.partition(1).glob("*.log")), 80)
    (logs.partition(1) / "odd").touch()
    found = doctor(logs.path)
    assert found.part("verify-1.json")["not_verified"] == ["flights-0"]
    assert found.symptoms == {"damaged"}, "suspect partitions are verified first"

    monkeypatch.setattr(redaction, "MAX_ENTRIES", 2)
    assert redaction.Redaction().clean([1, 2, 3, 4]) == [1, 2, "2 left out"]
    assert redaction.Redaction().clean({"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2, "left_out": 1}

    monkeypatch.setattr(log_lines, "MAX_LOG_BYTES", 200)
    monkeypatch.setattr(log_lines, "MAX_LOG_LINES", 1)
    line = "time=2026-01-01T00:00:00.000Z level=info logger=triolog.x message=%s\n"
    log = doctor(logs.path, log="".join(line % f"line-{number}" for number in range(9))).texts["log.txt"]
    assert log == "2026-01-01T00:00:00.000Z info triolog.x line-8\n"

    monkeypatch.setattr(report, "MAX_REPORT_BYTES", 10)
    report.write_report(str(tmp_path / "cut.zip"), {"a": "1234567890123", "b": "more"})
    with zipfile.ZipFile(tmp_path / "cut.zip") as file:
        assert [file.read(name) for name in "ab"] == [b"1234567890\n... cut\n", b"\n... cut\n"]


def test_the_time_for_verifying_is_limited(logs: StoppedLogs) -> None:
    from triolog.tools.cli.terminal.progress import NoProgress

    found = directory.inspect_directory(str(logs.path), seconds=-1, reserve_bytes=0, bar=NoProgress())
    assert (found.verified["partitions"], len(found.verified["not_verified"])) == (0, 2)


def test_damage_that_is_gone_at_the_second_check_is_none(
    logs: StoppedLogs, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the server writes during the first check: here the file is repaired between the two."""
    log = min(logs.partition().glob("*.log"))
    flip(log, 80)
    read_again = directory.read_partition

    def repaired(*arguments: Any) -> Any:
        if "flights-0" in arguments[1]:
            flip(log, 80)
        return read_again(*arguments)

    lock = DirectoryLock.acquire(str(logs.path))
    try:
        assert doctor(logs.path).symptoms == {"damaged"}
        monkeypatch.setattr(directory, "read_partition", repaired)
        assert doctor(logs.path).symptoms == set()
    finally:
        lock.release()


def test_a_log_on_standard_input_is_read(logs: StoppedLogs, here: Path) -> None:
    line = (
        'time=2026-01-01T00:00:00Z level=info logger=triolog.x message="group g rebalances after generation 3: a member left"'
    )
    result = call("doctor", logs.path, "--log", "-", "--json", input=f"{line}\nsomething else\n")
    [finding] = json.loads(result.stdout)["findings"]
    assert (result.exit_code, finding["symptom"], finding["is_problem"]) == (0, "rebalance", False)


def test_a_directory_of_which_nothing_can_be_understood_has_a_report(tmp_path: Path, doctor: Doctor) -> None:
    for name in ("topics.json", "meta.properties", "security.json", "clock.json", "recovery-point-offset-checkpoint"):
        (tmp_path / "odd" / name).mkdir(parents=True)
    (tmp_path / "odd" / "t-0").mkdir()
    (tmp_path / "odd" / "t-0" / f"{0:020d}.log").mkdir()
    (tmp_path / "odd" / "t-0" / "quarantine-checkpoint").write_bytes(b"\xff\x00")
    found = doctor(tmp_path / "odd")
    assert found.problems
    assert found.texts["report.txt"]
