from __future__ import annotations

import pytest

from tests.clients.clients import CLIENTS
from tests.clients.compatibility_table import BEGIN, END, PAGE, Cells, Outcome, Table, differences, documented, replaced
from tests.clients.scenarios import FEATURES

EMPTY = f"before\n{BEGIN}\n{END}\nbehind\n"
CELLS = {
    ("one", "read"): Outcome.PASSED,
    ("two", "read"): Outcome.FAILED,
    ("one", "groups: static"): Outcome.CANNOT,
    ("two", "groups: static"): Outcome.PASSED,
}
TABLE = Table(
    cells=CELLS,
    versions={"one": "1.0, lib 2", "two": "3"},
    cannot={("one", "groups: static"): "one has no static members"},
)


def test_what_is_written_is_read_again() -> None:
    page = replaced(EMPTY, TABLE)
    assert documented(page) == CELLS
    assert replaced(page, TABLE) == page
    assert page.splitlines() == [
        "before",
        BEGIN,
        "|  | one 1.0, lib 2 | two 3 |",
        "|---|---|---|",
        "| read | yes | fails |",
        "| groups: static | - (1) | yes |",
        "",
        "1. one has no static members",
        END,
        "behind",
    ]


MISSING = {cell: outcome for cell, outcome in CELLS.items() if cell != ("two", "groups: static")}


@pytest.mark.parametrize(
    ("found", "unasked", "said"),
    [
        (CELLS, set(), []),
        ({**CELLS, ("one", "read"): Outcome.FAILED}, set(), ["read with one: the page says yes, the run says fails"]),
        ({**CELLS, ("two", "new"): Outcome.PASSED}, set(), ["new with two: the page says nothing, the run says yes"]),
        (MISSING, set(), ["groups: static with two: the page says yes, the run says nothing"]),
        (MISSING, {("two", "groups: static")}, []),
        ({("two", "read"): Outcome.FAILED, ("two", "groups: static"): Outcome.PASSED}, set(), []),  # `one` is not here
    ],
)
def test_a_run_that_found_something_else_is_told_where(found: Cells, unasked: set[tuple[str, str]], said: list[str]) -> None:
    assert differences(found, replaced(EMPTY, TABLE), unasked=unasked) == said


def test_the_page_has_every_client_and_what_is_declared_is_a_feature() -> None:
    assert documented(PAGE.read_text()).keys() == {(client, name) for client in CLIENTS for name in FEATURES}
    assert {name for client in CLIENTS.values() for name in client.cannot} <= FEATURES.keys()
