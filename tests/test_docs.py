"""Documentation that code can check."""

from __future__ import annotations

import ast
import functools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.native import messages
from triolog.server.fake.faults.rules import DISK_EFFECTS, EFFECTS
from triolog.tools.cli.main import SUBCOMMANDS
from triolog.tools.cli.reference.command_page import command_page
from triolog.tools.cli.reference.config_table import renewed, renewed_forward, renewed_rights

TESTS: Final = Path(__file__).resolve().parent
DOCS: Final = TESTS.parent / "docs"
FACTS: Final = "## Facts of Kafka's tests"
STATUSES: Final = ("tested", "deviation", "listener", "not applicable")
NODE: Final = re.compile(r"`([\w/]+\.py)::(\w+)`")
KAFKA_TESTS: Final = re.compile(r"\b([A-Z]\w*Test)\.([a-z]\w+(?:,\s+(?:test|should)[A-Z]\w+)*)")
"""A class and one of its tests; further ones of the same class follow behind commas."""


@attrs.frozen
class Fact:
    """A row of the tables. `nodes` are (file below tests, function), `reason` is what else the last cell says."""

    text: str
    kafka_tests: frozenset[str]
    status: str
    nodes: tuple[tuple[str, str], ...]
    reason: str


def kafka_tests_in(text: str) -> Iterator[str]:
    for found in KAFKA_TESTS.finditer(text):
        yield from (f"{found[1]}.{name}" for name in re.split(r",\s+", found[2]))


@functools.cache
def facts() -> tuple[Fact, ...]:
    _, _, section = (DOCS / "testing.md").read_text(encoding="utf-8").partition(f"{FACTS}\n")
    _, _, tables = section.partition("\n### ")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables.splitlines() if line.startswith("|")]
    found = []
    for cells in rows:
        if cells[0] != "fact" and set(cells[0]) != {"-"}:
            text, kafka, status, answer = cells
            nodes = tuple((file, name) for file, name in NODE.findall(answer))
            reason = re.sub(r"<br>|[ ,;]", "", NODE.sub("", answer))
            found.append(Fact(text, frozenset(kafka_tests_in(kafka)), status, nodes, reason))
    return tuple(found)


@functools.cache
def docstrings(path: Path) -> dict[str, str]:
    """By name, of the module's functions and classes and of those inside them; '' is the module's own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {"": ast.get_docstring(tree) or ""}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = ast.get_docstring(node) or ""
    return found


def test_the_configuration_tables_are_those_of_the_code() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == renewed(page), "run: python -m triolog.tools.cli.reference.config_table --write"
    page = (DOCS / "forward.md").read_text(encoding="utf-8")
    assert page == renewed_forward(page), "run: python -m triolog.tools.cli.reference.config_table --write"


def test_the_tables_of_rights_have_every_call_as_the_code_guards_it() -> None:
    page = (DOCS / "reference" / "rights.md").read_text(encoding="utf-8")
    assert page == renewed_rights(page), "run: python -m triolog.tools.cli.reference.config_table --write"
    names = set(re.findall(r"^\| `?(\w+)`? \|", page, re.MULTILINE)) - {"call"}
    assert names == {*messages.REQUESTS, *(api.name for api in APIS.values())}


def test_the_reference_of_commands_has_each_with_its_options() -> None:
    page = command_page()
    assert [name for name in SUBCOMMANDS if f"\n\n## triolog {name}\n\n```\ntriolog {name} " not in page] == []
    assert "\n## triolog topics add-partitions\n" in page
    assert "\n| `--isolation [read_uncommitted|read_committed]` | " in page
    assert runpy.run_path(str(DOCS / "site_hooks.py"))["COMMANDS"] in (DOCS / "reference" / "commands.md").read_text()


def test_the_diagrams_are_those_that_are_drawn() -> None:
    drawn = runpy.run_path(str(DOCS / "diagrams" / "draw.py"))["drawn"]()
    assert {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "diagrams").glob("*.svg")} == drawn


def test_the_pictures_of_the_command_line_are_those_that_are_drawn() -> None:
    drawn = runpy.run_path(str(DOCS / "pictures" / "draw.py"))["drawn"]()
    found = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")}
    assert found == drawn, "run: python docs/pictures/draw.py"


def test_the_tables_of_facts_are_read() -> None:
    assert len(facts()) > 200
    assert all(fact.kafka_tests for fact in facts())
    names = [name for fact in facts() for name in fact.kafka_tests]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_a_fact_is_tested_where_the_table_says_so_or_has_a_reason() -> None:
    for fact in facts():
        assert fact.status in STATUSES, fact
        assert fact.nodes or fact.status not in ("tested", "deviation"), f"names no test: {fact}"
        assert fact.reason or fact.status == "tested", f"gives no reason: {fact}"
        named: set[str] = set()
        for file, name in fact.nodes:
            assert name in docstrings(TESTS / file), f"{file} has no {name}"
            named |= set(kafka_tests_in(docstrings(TESTS / file)[name]))
        if fact.nodes:
            assert fact.kafka_tests <= named, f"the docstring of the test does not name Kafka's: {fact}"


def test_every_test_of_kafka_that_a_docstring_names_is_in_the_tables() -> None:
    known = {name for fact in facts() for name in fact.kafka_tests}
    named = {
        name: f"{path.relative_to(TESTS)}::{function}"
        for path in sorted(TESTS.rglob("*.py"))
        for function, text in docstrings(path).items()
        for name in kafka_tests_in(text)
    }
    assert {name: place for name, place in named.items() if name not in known} == {}


def test_the_page_counts_its_facts_right() -> None:
    page = (DOCS / "testing.md").read_text(encoding="utf-8")
    found = {status: sum(fact.status == status for fact in facts()) for status in STATUSES}
    for status, count in found.items():
        assert f"\n| `{status}` | {count} |" in page, f"{status}: {count}"


TESTING_PAGE: Final = DOCS / "testing-with-triolog.md"
EFFECTS_IN: Final = "| effect | a real client meets it in `tests/clients/` |"


@pytest.mark.parametrize(("head", "folder"), [(EFFECTS_IN, TESTS / "clients"), ("| wanted | here | test |", TESTS)])
def test_every_row_about_the_fake_names_tests_that_are_there(head: str, folder: Path) -> None:
    lines = TESTING_PAGE.read_text().splitlines()
    start = lines.index(head)
    table = lines[start + 2 : lines.index("", start)]
    assert len(table) > 20
    for line in table:
        named = NODE.findall(line)
        assert named, f"no test is named: {line}"
        assert [f"{file}::{name}" for file, name in named if name not in docstrings(folder / file)] == []


def test_every_kind_of_rule_is_in_the_table_of_effects() -> None:
    page = TESTING_PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| `", "| one"))]
    assert [effect for effect in EFFECTS if not any(f"`{effect}=" in row for row in rows)] == []
    assert [name for name in DISK_EFFECTS if f'faults.disk("{name}"' not in page] == []
