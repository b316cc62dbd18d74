from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from triolog.tools.bench.measuring.machine import IN_MEMORY, Machine, default_parent, filesystem_of, read_machine
from triolog.tools.bench.measuring.report import Line, Report, RowResult, absent, at_least, at_most


@pytest.fixture
def machine() -> Machine:
    return Machine("A CPU [fast]", 2, 24.0, "6.1", "3.11.7", "ext4", "/dev/vda", 0.12, 0.0)


@pytest.fixture
def report(machine: Machine) -> Report:
    lines = [
        Line("ours", "ms", [1.0, 3.0, 2.0], at_most(2, "ms"), "of [many]"),
        Line("rate", "records/s", [12345.6], at_least(20_000, "records/s")),
        absent("theirs", "redis-server not installed"),
    ]
    rows = [RowResult("one row", lines, ["a note"]), RowResult("another", [], failure="it broke")]
    return Report(datetime.date(2026, 11, 20), machine, "full", rows)


def test_json_holds_every_sample_and_what_follows_from_them(report: Report) -> None:
    row, failed = json.loads(json.dumps(report.to_json()))["rows"]
    assert [line["samples"] for line in row["lines"]] == [[1.0, 3.0, 2.0], [12345.6], []]
    assert [line["median"] for line in row["lines"]] == [2.0, 12345.6, None]
    assert [line["verdict"] for line in row["lines"]] == ["met", "missed", "not measured"]
    assert (row["failure"], failed["failure"]) == (None, "it broke")
    assert report.has_failures


def test_the_page_shows_medians_spreads_verdicts_and_reasons(report: Report) -> None:
    text = report.to_markdown()
    for shown in ("A CPU [fast]", "2 ms", "1 .. 3", "<= 2 ms", "met", "12,346 records/s", "missed", "of [many]"):
        assert shown in text
    for shown in ("not measured", "redis-server not installed", "a note", "it broke", "fdatasync after 200 B p50 0.120 ms"):
        assert shown in text


def test_a_run_is_kept_as_json_and_as_a_page(report: Report, tmp_path: Path) -> None:
    paths = report.save(tmp_path / "docs" / "benchmarks")
    assert [path.name for path in paths] == ["2026-11-20.json", "2026-11-20.md"]
    assert json.loads(paths[0].read_text()) == report.to_json()
    page = paths[1].read_text()
    assert "| ours | 2 ms | 1 .. 3 | <= 2 ms | met | of [many] |" in page
    assert "ext4 on /dev/vda" in page


def test_files_are_on_the_nearest_mount_and_not_in_memory_by_default() -> None:
    assert filesystem_of("/proc/self")[0] == "proc"
    assert filesystem_of("/")[0] != "proc"
    assert filesystem_of(default_parent())[0] not in IN_MEMORY


def test_the_machine_line_says_what_was_measured_on(tmp_path: Path) -> None:
    machine = read_machine(str(tmp_path), syncs=3)
    assert machine.cores >= 1
    assert machine.sync_p50_ms > 0
    assert list(tmp_path.iterdir()) == []
