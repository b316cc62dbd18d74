"""Every row runs to its end with tiny counts. No figure is asserted: they are about the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.tools.bench import table as rows
from triolog.tools.bench.measuring.bench import Bench
from triolog.tools.bench.measuring.child import LoadFailedError
from triolog.tools.bench.measuring.machine import IN_MEMORY, filesystem_of
from triolog.tools.bench.measuring.measure import Verdict
from triolog.tools.bench.measuring.scale import Scale
from triolog.tools.bench.peers.nats_peer import nats
from triolog.tools.bench.peers.peer import PeerMissingError, executable
from triolog.tools.bench.peers.redis_peer import redis
from triolog.tools.bench.rows import produce as produce_rows
from triolog.tools.bench.rows.device import per_record as device_row

TINY: Final = Scale("tiny", 1, 0.0005)
ALWAYS: Final = "produce"
"""The row of the commit tier; `test_loads.py` runs `offset-lookup` through the command."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path), TINY, lambda text: None, with_peers=False)


@pytest.mark.parametrize("name", [name if name == ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in rows.ROWS])
def test_a_row_measures_all_but_its_peers_and_leaves_nothing_behind(bench: Bench, name: str) -> None:
    result = rows.BENCHMARK.measure(name, bench)
    assert result.failure == ""
    assert result.number == list(rows.ROWS).index(name) + 1
    for line in result.lines:
        assert all(sample > 0 for sample in line.samples), line
        assert line.samples or line.note == "peers are left out" or name in ("device-bytes", "flash"), line
    assert [line for line in result.lines if line.verdict is not Verdict.NOT_MEASURED]
    assert list(Path(bench.directory).iterdir()) == []


@pytest.mark.long
def test_without_a_loop_device_the_servers_writes_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = rows.BENCHMARK.measure("device-bytes", bench)
    assert result.failure == ""
    assert "no loop device (loop devices are root's)" in result.notes[0]
    assert [line.note for line in result.lines if line.name.startswith("bare loop")] == ["loop devices are root's"] * 3
    if filesystem_of(bench.directory)[0] not in IN_MEMORY:
        assert any(line.samples for line in result.lines if line.name.startswith("fsync"))


def test_a_row_that_fails_says_why_and_others_go_on(bench: Bench) -> None:
    def fails(_: Bench) -> rows.RowResult:
        raise LoadFailedError("the disk is on fire")

    benchmark = attrs.evolve(rows.BENCHMARK, rows={"first": fails, "fetch": fails})
    result = benchmark.measure("fetch", bench)
    assert (result.number, result.failure) == (2, "LoadFailedError: the disk is on fire")


def test_interleaving_takes_turns_and_does_not_count_the_first_round(bench: Bench) -> None:
    order: list[str] = []

    def take(name: str) -> Callable[[], float]:
        return lambda: order.append(name) or float(len(order))  # type: ignore[func-returns-value]

    samples = Bench(bench.directory, Scale("two", 2, 1), bench.say).interleave({"a": take("a"), "b": take("b")})
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["a", "b"]
    assert order[2:4] != order[4:]
    assert all(min(each) > 2 and len(each) == 2 for each in samples.values())


def test_a_peers_figure_says_which_version_it_was() -> None:
    shapes = [f"{connections}x{in_flight}" for connections, in_flight in produce_rows.SMALL_APPENDS]
    samples = {f"{who} {shape}": [1.0] for who in ("triolog", "Redis") for shape in shapes} | {"fdatasync": [1.0]}
    small = produce_rows._small_lines(samples, "", "Redis server v=7")
    assert [line.note for line in small if line.name.startswith("Redis")] == ["Redis server v=7"] * len(shapes)
    large = produce_rows._large_lines({name: [1.0] for name in ("prebuilt", "Producer", "NATS")}, "", "nats-server: v2")
    assert [line.note for line in large if line.name.startswith("NATS")] == ["nats-server: v2"]
    assert device_row._line("Redis", 200.0, "Redis server v=7").note == "2 x 100 B; Redis server v=7"


def test_redis_appends_synced_entries(tmp_path: Path) -> None:
    try:
        executable("redis-server", "")
        executable("redis-benchmark", "")
    except PeerMissingError as exc:
        pytest.skip(f"redis-server: {exc}")
    with redis(str(tmp_path)) as peer:
        assert re.fullmatch(r"Redis server v=[0-9.]+", peer.version)
        assert peer.xadd_rate(connections=2, in_flight=4, requests=64, value_bytes=100) > 0
    assert list(tmp_path.rglob("*.aof"))


@pytest.mark.long
def test_nats_publishes_to_files(tmp_path: Path) -> None:
    try:
        with nats(str(tmp_path)) as peer:
            assert peer.publish_rate(messages=200, value_bytes=100, in_flight=50) > 0
    except PeerMissingError as exc:
        pytest.skip(str(exc))
