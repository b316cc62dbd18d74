"""Every function and every class that a user calls has a table of its parameters in the Python reference.

`make docs` builds the pages and their tables anew each time, so this looks at the tables themselves, by the same extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

griffe: Any = pytest.importorskip("griffe", reason="griffe comes with the extra docs")

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ("client", "blocking-client", "embedded", "pytest-plugin")
ENTRY: Final = re.compile(r"^::: (\S+)((?:\n {4}.*)*)", re.MULTILINE)
CONSTRUCTED: Final = {
    "Admin",
    "Appender",
    "BlockingAdmin",
    "BlockingAppender",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "ClientConfig",
    "ConsumerConfig",
    "LoginConfig",
    "ProducerConfig",
    "TlsConfig",
}
"""Classes on the pages that a program makes objects of."""


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = spec_from_file_location("parameter_tables", ROOT / "docs/parameter_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def package(tables: ModuleType) -> Any:
    extensions = griffe.load_extensions(tables.ParameterTables())
    return griffe.load("triolog", search_paths=[str(ROOT)], extensions=extensions, allow_inspection=False)


def entries() -> Iterator[tuple[str, str, list[str] | None]]:
    """What the pages show, which of its members they leave out, and which inherited ones they show (None: all)."""
    for page in PAGES:
        for path, options in ENTRY.findall((ROOT / f"docs/reference/{page}.md").read_text(encoding="utf-8")):
            inherited = re.search(r"inherited_members: \[(.+)]", options)
            hidden = "|".join(["^_", *re.findall(r'"!([^"]+)"', options)])
            yield path, hidden, None if inherited is None else inherited[1].split(", ")


def shown(package: Any) -> Iterator[Any]:
    """Functions and methods on the pages."""
    for path, hidden, inherited in entries():
        entry = package[path.removeprefix("triolog.")]
        if entry.is_function:
            yield entry
        if entry.is_class:
            for name, member in entry.all_members.items():
                found = member.final_target if member.is_alias else member
                is_listed = inherited is None or name in entry.members or name in inherited
                if is_listed and not re.search(hidden, name) and found.is_function and "property" not in found.labels:
                    yield found


def rows_of(found: Any) -> dict[str, Any]:
    sections = [] if found.docstring is None else found.docstring.parsed
    return {row.name: row for section in sections if section.kind.value == "parameters" for row in section.value}


def test_every_call_has_a_table_of_its_parameters(package: Any) -> None:
    calls = {call.path: [each.name for each in call.parameters if each.name not in ("self", "cls")] for call in shown(package)}
    assert len(calls) > 90
    wanting = {path: names for path, names in calls.items() if list(rows_of(package[path.removeprefix("triolog.")])) != names}
    assert wanting == {}, "say what each means in its docstring or in docs/parameter_tables.py"


def test_every_class_that_is_constructed_has_a_table(package: Any) -> None:
    found = {path.rpartition(".")[2]: package[path.removeprefix("triolog.")] for path, *_ in entries()}
    assert {name for name, each in found.items() if each.is_class and rows_of(each)} == CONSTRUCTED
    defaults = {name: str(row.default) for name, row in rows_of(found["ProducerConfig"]).items()}
    assert (defaults["linger_ms"], defaults["acks"], defaults["compression_level"]) == ("5", "ACKS_ALL", "None")
    assert rows_of(found["BlockingProducer"])["client"].default is None


def test_a_row_has_a_type_a_meaning_and_a_unit(package: Any, tables: ModuleType) -> None:
    rows = [(call.path, row) for call in shown(package) for row in rows_of(call).values()]
    rows += [(path, row) for path, *_ in entries() for row in rows_of(package[path.removeprefix("triolog.")]).values()]
    assert len(rows) > 250
    for path, row in rows:
        assert row.annotation is not None, (path, row.name)
        assert re.fullmatch(r"[^a-z].*\.", row.description, re.DOTALL), (path, row.name, row.description)
        for suffix, unit in tables.UNITS.items():
            assert not row.name.endswith(suffix) or f"Unit: {unit}" in row.description, (path, row.name)


def test_no_meaning_is_left_over(package: Any, tables: ModuleType) -> None:
    calls = [(call.path, name) for call in shown(package) for name in rows_of(call)]
    calls += [(path, name) for path, *_ in entries() for name in rows_of(package[path.removeprefix("triolog.")])]
    names = {key for path, name in calls for key in tables.keys_of(path, name)}
    assert tables.MEANINGS.keys() - names == set()


def test_sentences_that_say_what_parameters_mean_move_into_the_table(tables: ModuleType) -> None:
    docstring = "Read on.\n\n`a`: its age in ms. `b`, `c`: the rest. Never\nwaits. `d`: is no parameter."
    rest, said = tables.stated(docstring, {"a", "b", "c"})
    assert rest == "Read on.\n\nNever waits. `d`: is no parameter."
    assert said == {"a": "Its age in ms.", "b": "The rest.", "c": "The rest."}
