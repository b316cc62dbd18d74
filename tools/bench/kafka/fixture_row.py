"""Brokers as the pytest plug-in makes them, one for each test; every one has to find its ports."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from ..measuring.child import LoadFailedError
from ..measuring.report import Line, RowResult, absent, at_most, percentile
from .brokers import Brokers

STARTS: Final = 200
TIMEOUT_S: Final = 3600.0
TESTS: Final = """
import socket

import pytest


@pytest.mark.parametrize("number", range({count}))
def test_a_broker_answers(number, triolog_broker):
    host, _, port = triolog_broker.bootstrap_servers.rpartition(":")
    socket.create_connection((host, int(port))).close()
"""
TIMES: Final = """
import json
import pathlib

taken = {{}}


def pytest_runtest_logreport(report):
    if report.when != "call":
        taken[report.nodeid] = taken.get(report.nodeid, 0) + report.duration * 1000


def pytest_sessionfinish():
    pathlib.Path({answer!r}).write_text(json.dumps(list(taken.values())))
"""


def fixture(brokers: Brokers) -> RowResult:
    """Measure set-up and tear-down as pytest counts them; the first start imports the server and is not counted."""
    title = "fixture triolog_broker: set-up and tear-down"
    target = at_most(20, "ms")
    if importlib.util.find_spec("pytest") is None:
        return RowResult(title, [absent("median", "pytest is not installed", target)])
    bench = brokers.bench
    count = brokers.starts or bench.scale.count(STARTS, least=5)
    rounds = 1 if brokers.starts else bench.scale.rounds
    taken = []
    for number in range(rounds):
        bench.say(f"{count} starts, round {number + 1} of {rounds}")
        with bench.workspace() as directory:
            taken.append(_starts(directory, count))
    lines = [
        Line("median", "ms", [percentile(each, 0.5) for each in taken], target),
        Line("p99", "ms", [percentile(each, 0.99) for each in taken]),
        Line("starts without a port clash", "", [float(sum(map(len, taken)) + rounds)]),
    ]
    return RowResult(title, lines, [f"{rounds} x {count:,} tests, each with a broker of its own that a client connects to"])


def _starts(directory: str, count: int) -> list[float]:
    answer = Path(directory, "taken.json")
    Path(directory, "conftest.py").write_text(TIMES.format(answer=str(answer)), encoding="utf-8")
    Path(directory, "test_starts.py").write_text(TESTS.format(count=count + 1), encoding="utf-8")
    Path(directory, "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if run.returncode:
        raise LoadFailedError(f"a broker did not start: {run.stdout[-2000:]}{run.stderr[-500:]}")
    taken: list[float] = json.loads(answer.read_text(encoding="utf-8"))
    if len(taken) != count + 1:
        raise LoadFailedError(f"{len(taken)} of {count + 1} brokers were counted")
    return taken[1:]
