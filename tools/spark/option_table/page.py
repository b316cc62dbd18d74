"""The tables of options in docs/spark.md, made from the code.

`python -m triolog.tools.spark.option_table.page` prints the page with its tables renewed; `--write` puts it in place. A test
compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .option import Meaning, Option, OptionTable
from .reading import READING
from .writing import WRITING

PAGE: Final = Path("docs/spark.md")
BEGIN: Final = "<!-- {name}: made by triolog.tools.spark.option_table.page -->"
END: Final = "<!-- end of {name} -->"


def accepted_table(table: OptionTable) -> str:
    """Return the options that have an effect, as a Markdown table."""
    rows = ["| option | default | means | Spark's Kafka source or sink |", "|---|---|---|---|"]
    rows += [
        f"| `{option.name}` | {_cell(option.default)} | {_cell(option.text)} | {_cell(_relation(option))} |"
        for option in table.options.values()
        if option.meaning.is_accepted
    ]
    return "\n".join(rows)


def refused_table() -> str:
    """Return the options of Spark's Kafka source and sink that are refused, by their reason, as a Markdown table."""
    found: dict[tuple[str, Meaning, str], list[str]] = {}
    for table in (READING, WRITING):
        for option in table.options.values():
            if not option.meaning.is_accepted:
                found.setdefault((table.what, option.meaning, option.text), []).append(f"`{option.name}`")
    rows = ["| of | refused | options | why |", "|---|---|---|---|"]
    rows += [
        f"| {what} | {'unless `strictOptions` is `false`' if meaning is Meaning.UNUSED else 'always'} | {_joined(names)} | "
        f"{_cell(text)} |"
        for (what, meaning, text), names in found.items()
    ]
    return "\n".join(rows)


def renewed(page: str) -> str:
    """Return the page with its tables as the code has them. Raises ValueError when a marker is missing."""
    tables = {
        "options of reading": accepted_table(READING),
        "options of writing": accepted_table(WRITING),
        "refused options": refused_table(),
    }
    for name, table in tables.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"the page lacks {begin} or {end}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def _relation(option: Option) -> str:
    return f"different: {option.difference}" if option.meaning is Meaning.DIFFERENT else option.meaning.value


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    text = renewed(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
