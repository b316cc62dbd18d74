"""Every row runs to its end with tiny counts. No figure is asserted: they are about the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.tools.bench import table as rows
from triolog.tools.bench.measuring.bench import Bench, Scale
from triolog.tools.bench.measuring.child import LoadFailedError
from triolog.tools.bench.measuring.machine import IN_MEMORY, filesystem_of
from triolog.tools.bench.measuring.report import Verdict

TINY: Final = Scale("tiny", 1, 0.0005)
ALWAYS: Final = "synced-appends"
"""The row of the commit tier; `test_loads.py` runs `in-process` through the command."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path), TINY, lambda text: None)


@pytest.mark.parametrize("name", [name if name == ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in rows.ROWS])
def test_a_row_measures_all_and_leaves_nothing_behind(bench: Bench, name: str) -> None:
    result = rows.BENCHMARK.measure(name, bench)
    assert result.failure == ""
    for line in result.lines:
        assert all(sample > 0 for sample in line.samples), line
        assert line.samples or name == "flash", line
    assert [line for line in result.lines if line.verdict is not Verdict.NOT_MEASURED]
    assert list(Path(bench.directory).iterdir()) == []


@pytest.mark.long
def test_without_a_loop_device_the_servers_writes_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = rows.BENCHMARK.measure("flash", bench)
    assert result.failure == ""
    assert "no loop device (loop devices are root's)" in result.notes[0]
    if filesystem_of(bench.directory)[0] not in IN_MEMORY:
        assert any(line.samples for line in result.lines if line.name.startswith("fsync"))


def test_a_row_that_fails_says_why_and_others_go_on(bench: Bench) -> None:
    def fails(_: Bench) -> rows.RowResult:
        raise LoadFailedError("the disk is on fire")

    benchmark = attrs.evolve(rows.BENCHMARK, rows={"first": fails, "fetch": fails})
    result = benchmark.measure("fetch", bench)
    assert (result.title, result.failure) == ("fetch", "LoadFailedError: the disk is on fire")


def test_interleaving_takes_turns_and_does_not_count_the_first_round(bench: Bench) -> None:
    order: list[str] = []

    def take(name: str) -> Callable[[], float]:
        return lambda: order.append(name) or float(len(order))  # type: ignore[func-returns-value]

    samples = Bench(bench.directory, Scale("two", 2, 1), bench.say).interleave({"a": take("a"), "b": take("b")})
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["a", "b"]
    assert order[2:4] != order[4:]
    assert all(min(each) > 2 and len(each) == 2 for each in samples.values())
