"""Every row runs to its end with tiny counts. No figure is asserted: they are about the machine."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import attrs
import pytest
from click.testing import CliRunner
from triolog.protocol.limits import MIB
from triolog.protocol.records.record import iter_records
from triolog.tools.bench import command
from triolog.tools.bench import table as rows
from triolog.tools.bench.loads import append_on_schedule, keyed_batches
from triolog.tools.bench.measuring import wire
from triolog.tools.bench.measuring.bench import Bench, Scale
from triolog.tools.bench.measuring.child import LoadFailedError, LoadProcess, run_load
from triolog.tools.bench.measuring.loop_device import NoLoopDeviceError, loop_device
from triolog.tools.bench.measuring.machine import IN_MEMORY, filesystem_of, sync_rate
from triolog.tools.bench.measuring.report import Line, RowResult, Verdict
from triolog.tools.bench.measuring.server import bytes_read, children, memory_mib
from triolog.tools.bench.measuring.wire import Pipeline

TINY: Final = Scale("tiny", 1, 0.0005)
ALWAYS: Final = "synced-appends"
"""The row of the commit tier; `test_loads.py` runs `in-process` through the command."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path), TINY, lambda text: None)


@pytest.mark.merge
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
    assert "no loop device (loop devices need root)" in result.notes[0]
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


def test_a_load_runs_elsewhere_and_answers(tmp_path: Path) -> None:
    assert run_load(sync_rate, directory=str(tmp_path), count=2)["rate"] > 0


@pytest.mark.merge
def test_a_load_that_fails_or_does_not_start_is_named_with_what_it_wrote(tmp_path: Path) -> None:
    with pytest.raises(LoadFailedError, match=r"(?s)machine:sync_rate ended with 1: .*FileNotFoundError"):
        run_load(sync_rate, directory=str(tmp_path / "nowhere"), count=2)
    nobody = ["127.0.0.1", 1]
    arguments = {"address": nobody, "topic": "t", "connections": 1, "rate": 1.0, "seconds": None, "value_bytes": 1}
    with LoadProcess(append_on_schedule, arguments) as load:
        with pytest.raises(LoadFailedError, match=r"(?s)append_on_schedule did not start: .*ConnectionRefusedError"):
            load.wait_until_started()


def test_a_loop_device_counts_what_reaches_it(tmp_path: Path) -> None:
    try:
        with loop_device(str(tmp_path), size_bytes=64 * MIB) as device:
            before = device.bytes_written()
            Path(device.directory, "file").write_bytes(bytes(MIB))
            assert MIB <= device.bytes_written() - before < 2 * MIB
    except NoLoopDeviceError as exc:
        pytest.skip(str(exc))
    assert not list((tmp_path / "mounted").iterdir())


def test_a_process_is_asked_for_its_children_its_memory_and_its_reads(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(MIB))
    before = bytes_read(os.getpid())
    assert path.read_bytes()
    assert bytes_read(os.getpid()) - before >= MIB
    with LoadProcess(sync_rate, {"directory": str(tmp_path), "count": 10**9}) as load:
        assert load._process.pid in children(os.getpid())
        while memory_mib(load._process.pid)["VmHWM"] <= 1:  # it is still the fork that becomes the load
            assert load._process.poll() is None
    assert load._process.pid not in children(os.getpid())


def test_keyed_batches_have_half_as_many_keys_as_records_at_most() -> None:
    keys = [
        record.key
        for batch in keyed_batches(total_bytes=200_000, value_bytes=100)
        for record in iter_records(memoryview(batch))
    ]
    assert 0.38 < len(set(keys)) / len(keys) < 0.5


@pytest.mark.merge
def test_the_command_prints_json_of_the_rows_that_were_asked_for(tmp_path: Path) -> None:
    arguments = ["--quick", "--json", "--only", "in-process", "--dir", str(tmp_path)]
    result = CliRunner().invoke(command.command, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [row["title"] for row in report["rows"]] == ["in-process broker: one record a call, page cache"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.merge
def test_processes_find_compiled_modules_where_none_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    seen: list[list[str]] = []

    def row(bench: Bench) -> RowResult:
        run_load(sync_rate, directory=bench.directory, count=1)
        seen.append([path.name for path in Path(bench.directory, "bytecode").rglob("machine.*.pyc")])
        return RowResult("one", [Line("a", "x", [1.0])])

    monkeypatch.setattr(rows, "ROWS", {"one": row})
    monkeypatch.setattr(rows, "BENCHMARK", attrs.evolve(rows.BENCHMARK, rows=rows.ROWS))
    result = CliRunner().invoke(command.command, ["--only", "one", "--dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert [len(names) for names in seen] == [1]
    assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert "PYTHONPYCACHEPREFIX" not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_answers_no_more_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipeline = Pipeline(SimpleNamespace(socket=ours), [b"frame"] * 3, 3)  # type: ignore[arg-type]
        with pytest.raises(LoadFailedError, match="3 requests are unanswered"):
            wire.drive_pipelines([pipeline], 2)
