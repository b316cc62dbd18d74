"""The table of clients is the run's, and a run that finds something else is told where."""

from __future__ import annotations

from tests.clients.clients import CLIENTS
from tests.clients.compatibility_table import BEGIN, END, PAGE, Outcome, Table, differences, documented, replaced
from tests.clients.rows import FEATURES

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


def test_a_run_that_found_something_else_is_told_where() -> None:
    page = replaced(EMPTY, TABLE)
    assert differences(CELLS, page) == []
    [said] = differences({**CELLS, ("one", "read"): Outcome.FAILED}, page)
    assert said == "read with one: the page says yes, the run says fails"
    [said] = differences({**CELLS, ("two", "new"): Outcome.PASSED}, page)
    assert said == "new with two: the page says nothing, the run says yes"
    [said] = differences({cell: outcome for cell, outcome in CELLS.items() if cell != ("two", "groups: static")}, page)
    assert said == "groups: static with two: the page says yes, the run says nothing"


def test_a_client_that_is_not_here_is_not_compared() -> None:
    page = replaced(EMPTY, TABLE)
    assert differences({cell: outcome for cell, outcome in CELLS.items() if cell[0] == "two"}, page) == []


def test_what_a_run_did_not_ask_is_not_compared_and_all_the_rest_is() -> None:
    page = replaced(EMPTY, TABLE)
    unasked = ("two", "groups: static")
    asked = {cell: outcome for cell, outcome in CELLS.items() if cell != unasked}
    assert differences(asked, page, unasked={unasked}) == []
    [said] = differences({**asked, ("two", "read"): Outcome.PASSED}, page, unasked={unasked})
    assert said == "read with two: the page says fails, the run says yes"


def test_the_page_has_every_client_and_what_is_declared_is_a_feature() -> None:
    assert documented(PAGE.read_text()).keys() == {(client, name) for client in CLIENTS for name in FEATURES}
    assert {name for client in CLIENTS.values() for name in client.cannot} <= FEATURES.keys()
