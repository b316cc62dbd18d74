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
from triolog.server.config.version import VERSION, VERSION_DATE
from triolog.server.fake.faults.rules import DISK_EFFECTS, EFFECTS
from triolog.tools.cli.main import SUBCOMMANDS

TESTS: Final = Path(__file__).resolve().parent
DOCS: Final = TESTS.parent / "docs"
CODE_TABLES: Final = runpy.run_path(str(DOCS / "code_tables.py"))
FACTS: Final = "## Facts of Kafka's tests"
STATUSES: Final = ("tested", "deviation", "listener", "not applicable")
PAGES: Final = sorted(
    str(path.relative_to(TESTS.parent))
    for path in (*DOCS.rglob("*.md"), *TESTS.parent.glob("*.md"))
    if path.name not in {"CHANGELOG.md", "kafka-migration.md"} and not re.match(r"20\d\d-", path.name)
)
"""Pages that name paths of the present tree. The changelog and dated reports name earlier ones, the migration page Kafka's."""
NODE: Final = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROOTS: Final = ("docs", "packaging", "protocol", "server", "tests", "tools", "triolog")
PATH: Final = re.compile(r"`(\w+(?:/\w+)+)/?(?:\.(\w+))?`")
FILE: Final = re.compile(r"`(\w+)\.py`")
MODULE: Final = re.compile(r"\btriolog\.((?:protocol|server|tools)(?:\.\w+)+)")
NAME: Final = re.compile(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)*|\w*[a-z]_\w+(?:\.\w+)*)(?:\(\))?`")
"""A class, or a function or method whose name has an underscore."""
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


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """The functions and classes of a module and of its classes."""
    return frozenset(re.findall(r"^(?: {4})?(?:(?:async )?def|class) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


@functools.cache
def code_files() -> dict[str, Path]:
    """The files and folders of the code and the docs by each end of their path, without suffixes. The least deep one counts."""
    found: dict[str, Path] = {}
    paths = [path for root in ROOTS for path in (TESTS.parent / root, *(TESTS.parent / root).rglob("*"))]
    for path in sorted(paths, key=lambda each: len(each.parts)):
        parts = path.relative_to(TESTS.parent).with_suffix("").parts
        for start in range(len(parts)):
            found.setdefault("/".join(parts[start:]), path)
    return found


@functools.cache
def words_in(place: Path) -> frozenset[str]:
    """The words of a module, or of all modules below a folder."""
    files = place.rglob("*.py") if place.is_dir() else (place,)
    return frozenset(word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8")))


def dead_paths(text: str) -> list[str]:
    """The paths and modules of this tree that a page names and that do not exist, or whose module lacks the name after them."""
    files, dead = code_files(), []
    heads = {*ROOTS, *(place.name for root in ROOTS for place in (TESTS.parent / root).iterdir() if place.is_dir())}
    for path, name in PATH.findall(text):
        place = files.get(path)
        is_known = place is not None and (not name or f".{name}" == place.suffix or name in words_in(place))
        if path.split("/")[0] in heads and path.islower() and not is_known:
            dead.append(f"{path}.{name}" if name else path)
    dead += [f"{name}.py" for name in FILE.findall(text) if name not in files]
    for module in MODULE.findall(text):
        path, _, last = module.replace(".", "/").rpartition("/")
        if f"{path}/{last}" not in files and not (path in files and last in words_in(files[path])):
            dead.append(module)
    return dead


def dead_names(text: str) -> list[str]:
    """The classes, functions and methods that a page names, and that no module has."""
    used = frozenset[str]().union(*(words_in(TESTS.parent / root) for root in ("protocol", "server", "tools")))
    return [name for name in NAME.findall(text) if not used.issuperset(name.split("."))]


@pytest.mark.parametrize("name", CODE_TABLES["PAGES"])
def test_the_tables_of_a_page_are_those_of_the_code(name: str) -> None:
    page = (TESTS.parent / name).read_text(encoding="utf-8")
    assert page == CODE_TABLES["renewed"](page, CODE_TABLES["PAGES"][name]()), "run: python docs/code_tables.py --write"


def test_the_date_of_the_version_is_that_of_the_changelog() -> None:
    """The server takes no clock for right that shows an earlier day."""
    text = (TESTS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(\d[^]]*)\] - (\S+)$", text, re.MULTILINE)[0] == (VERSION, VERSION_DATE)


def test_a_page_without_the_marker_of_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        CODE_TABLES["renewed"]("no markers", {"server keys": ""})


def test_the_tables_of_rights_have_every_call() -> None:
    page = (DOCS / "reference" / "rights.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `?(\w+)`? \|", page, re.MULTILINE)) - {"call"}
    assert names == {*messages.REQUESTS, *(api.name for api in APIS.values())}


def test_the_reference_of_commands_has_each_with_its_options() -> None:
    hooks = runpy.run_path(str(DOCS / "site_hooks.py"))
    page = hooks["command_page"]()
    assert [name for name in SUBCOMMANDS if f"\n\n## triolog {name}\n\n```\ntriolog {name} " not in page] == []
    assert "\n## triolog topics add-partitions\n" in page
    assert "\n| `--isolation [read_uncommitted|read_committed]` | " in page
    assert hooks["COMMANDS"] in (DOCS / "reference" / "commands.md").read_text()


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
        if KAFKA_TESTS.search(path.read_text(encoding="utf-8"))  # parsing all of them takes seconds
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
        assert [f"{file}::{name}" for file, name in named if name not in names_in(folder / file)] == []


def test_every_kind_of_rule_is_in_the_table_of_effects() -> None:
    page = TESTING_PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| `", "| one"))]
    assert [effect for effect in EFFECTS if not any(f"`{effect}=" in row for row in rows)] == []
    assert [name for name in DISK_EFFECTS if f'faults.disk("{name}"' not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_path_and_module_that_a_page_names_exists(page: str) -> None:
    assert dead_paths((TESTS.parent / page).read_text(encoding="utf-8")) == []


def test_every_class_and_function_that_the_architecture_names_exists() -> None:
    assert dead_names((DOCS / "architecture.md").read_text(encoding="utf-8")) == []


def test_a_dead_path_and_a_dead_name_are_reported() -> None:
    """And a live one is not."""
    text = """`storage/log/prepare.prepare_steps` `storage/log/prepare.gone` `storage/gone/prepare` `server/storage/` `any/gone`
    `tests/support/counts.py` `tests/support/gone.py` `docs/cli.md` `prepare.py` `gone.py` triolog.server.storage.indexes.index
    triolog.server.storage.indexes.gone `Log.doomed` `GoneIndex` `Log.gone_for_good` `try_heartbeat` `heartbeat_gone()`"""
    assert dead_paths(text) == [
        "storage/log/prepare.gone",
        "storage/gone/prepare",
        "tests/support/gone.py",
        "gone.py",
        "server.storage.indexes.gone",
    ]
    assert dead_names(text) == ["GoneIndex", "Log.gone_for_good", "heartbeat_gone"]
