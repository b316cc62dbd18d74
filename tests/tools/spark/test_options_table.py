from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

import pytest
from triolog.tools.spark.segments import segments_options
from triolog.tools.spark.sink import write_options
from triolog.tools.spark.source import options

TESTS: Final = Path(__file__).resolve().parent
PAGE: Final = TESTS.parents[2] / "docs" / "spark.md"
CODE: Final = {
    "## Options of reading": options.NAMES,
    "## Options of reading segment files": tuple(set(segments_options.NAMES) - set(options.NAMES)),
    "## Options of writing": write_options._NAMES,
}


def _table(heading: str) -> list[tuple[str, str, str]]:
    """(name, default, meaning) of each row below a heading."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    assert found, f"{PAGE.name} has no {heading}"
    section = section.partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in section.splitlines() if line.startswith("| `")]
    return [(cells[0].strip().strip("`"), cells[1].strip(), cells[2].strip()) for cells in rows]


@functools.cache
def _tested() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__).resolve())


@pytest.mark.parametrize("heading", CODE)
def test_the_table_has_the_options_of_the_code_and_no_others(heading: str) -> None:
    names = [name for name, _, _ in _table(heading)]
    assert sorted(names) == sorted(CODE[heading])


@pytest.mark.parametrize("heading", CODE)
def test_every_row_says_what_the_option_means(heading: str) -> None:
    assert [name for name, _, meaning in _table(heading) if len(meaning) < 10] == []


@pytest.mark.parametrize("name", sorted({name for names in CODE.values() for name in names}))
def test_every_option_is_named_by_a_test(name: str) -> None:
    assert re.search(rf"\b{re.escape(name)}\b", _tested()), f"no test below {TESTS.name} names the option {name}"
