"""A small request costs no more than it did: calls of functions and turns of the event loop, the same on every machine, idle or
busy. The table is in `counts.py`; its numbers only go down."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from triolog.tools.bench.counting.meters import COUNTED_ON
from triolog.tools.bench.counting.requests import LOADS, count_files, count_garbage
from triolog.tools.bench.measuring.child import run_load

from tests.server.listeners import counts
from tests.server.listeners.counts import ABOVE, BELOW, COUNTS, PRODUCE_FILES, PRODUCE_FOLDER_CHANGES, differences, measured

pytestmark = pytest.mark.merge  # every function call of a request is counted

LOAD: Final = "Produce, 1 record"

only_where_counted = pytest.mark.skipif(
    sys.version_info[:2] != COUNTED_ON, reason="other interpreters than CPython {}.{} call otherwise".format(*COUNTED_ON)
)


@pytest.fixture(scope="module")
def every_load() -> dict[tuple[str, int], tuple[float, float]]:
    """All of the table, counted in one process as `--write` does it."""
    return measured()


@only_where_counted
@pytest.mark.parametrize("load", LOADS)
def test_a_request_costs_what_the_table_says(load: str, every_load: dict[tuple[str, int], tuple[float, float]]) -> None:
    found = {connections: counts for (name, connections), counts in every_load.items() if name == load}
    assert found.keys() == COUNTS[load].keys()
    assert [text for connections, counts in found.items() for text in differences(load, connections, counts)] == []


def test_a_request_leaves_nothing_that_refers_to_itself() -> None:
    """It would keep the request's records until the next collection of garbage, which counts objects and not bytes."""
    assert run_load(count_garbage, connections=1) == dict.fromkeys(LOADS, 0.0)


def test_a_produce_passes_through_few_files() -> None:
    path = run_load(count_files, load=LOAD)
    assert len(path["files"]) <= PRODUCE_FILES, path["files"]
    assert path["folder_changes"] <= PRODUCE_FOLDER_CHANGES


def test_every_load_has_its_line() -> None:
    assert list(COUNTS) == list(LOADS)
    assert all(list(line) == [1, 50] for line in COUNTS.values())


def test_what_costs_more_fails_and_what_costs_less_lowers_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(counts.COUNTS, LOAD, {1: (200, 2.0)})
    assert list(differences(LOAD, 1, (200 * (1 + ABOVE), 2.0))) == []
    assert list(differences(LOAD, 1, (200 * (1 - BELOW), 2.0))) == []
    [more] = differences(LOAD, 1, (205, 2.0))
    assert more == f"{LOAD}, connections: 1: 205 calls a request, 200 in the table: it may only go down"
    [turn] = differences(LOAD, 1, (200, 2.25))
    assert turn.endswith("2.25 turns a request, 2 in the table: it may only go down")
    [less] = differences(LOAD, 1, (180, 2.0))
    assert less.endswith(f"lower the table, `python -m tests.server.listeners.counts --write '{LOAD}'`")
