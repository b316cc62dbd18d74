"""docs/guarantees.md: no promise without a test that is there. docs/operations/threats.md: no defence without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.test_docs import names_in

TESTS: Final = Path(__file__).resolve().parent
DOCS: Final = TESTS.parent / "docs"
HEADS: Final = {
    "guarantees.md": "| promise | durability | clients | held by |",
    "operations/threats.md": "| threat | what is done | held by |",
}
NAMED: Final = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
TOPICS: Final = (
    "SIGKILL",
    "power cut",
    "order",
    "sends again",
    "transaction",
    "group's offset",
    "share group",
    "compaction",
    "retention",
    "lookup by time",
    "forward",
    "gap",
    "full device",
    "append that returns",
    "Kafka serves them as they are",
)
"""What somebody looks for on the page of guarantees."""


def rows(page: str) -> Iterator[list[str]]:
    """The cells of each row of a page's tables with that head."""
    lines = iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line == HEADS[page]:
            next(lines)
            while (row := next(lines, "")).startswith("|"):
                yield [cell.strip() for cell in row.strip("|").split(" | ")]


@pytest.mark.parametrize("page", HEADS)
def test_every_promise_names_a_test_and_every_test_that_is_named_is_there(page: str) -> None:
    found = list(rows(page))
    assert len(found) > 15
    for promise, *_, held_by in found:
        named = NAMED.findall(held_by)
        assert named, f"{promise}: no test holds it"
        assert NAMED.sub("", held_by).replace("<br>", "").strip() == "", f"{promise}: {held_by}"
        missing = [f"{file}::{name}" for file, name in named if name not in names_in(TESTS / file)]
        assert missing == [], promise


def test_no_promise_is_outside_of_the_tables() -> None:
    """Every table of the page with promises has the column that names tests, and every section of promises has such a table."""
    sections = (DOCS / "guarantees.md").read_text(encoding="utf-8").split("\n## ")[1:]
    *promises, not_promised = sections
    assert not_promised.startswith("What is not promised")
    assert all(HEADS["guarantees.md"] in section for section in promises)


def test_what_is_looked_for_is_there() -> None:
    promises = "\n".join(cells[0] for cells in rows("guarantees.md"))
    assert [topic for topic in TOPICS if topic not in promises] == []
