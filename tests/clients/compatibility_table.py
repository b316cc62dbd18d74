"""The tables client by feature in docs/kafka-compatibility.md, one for a family of clients: a run writes or compares them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kafka-compatibility.md"
BEGIN: Final = "<!-- clients: made by TRIOLOG_WRITE_TABLE=1 make test ARGS=tests/clients/test_conformance.py -->"
END: Final = "<!-- end of clients -->"


class Outcome(StrEnum):
    PASSED = "yes"
    FAILED = "fails"
    CANNOT = "-"
    """The library does not have it."""


Cells = Mapping[tuple[str, str], Outcome]
"""By client and feature."""


@attrs.frozen(kw_only=True)
class Table:
    """What a run has found. A client that did not run has no version."""

    cells: Cells
    versions: Mapping[str, str]
    cannot: Mapping[tuple[str, str], str]
    """Client and feature -> why the library cannot."""
    families: Mapping[str, str]
    """Client -> the heading of its table: one with all clients would be too wide to read."""

    def lines(self) -> list[str]:
        notes = list(dict.fromkeys(why for cell, why in self.cannot.items() if cell in self.cells))
        tables = [line for family in dict.fromkeys(self.families.values()) for line in self._table(family, notes)]
        return [*tables, *(f"{number}. {why}" for number, why in enumerate(notes, 1))]

    def _table(self, family: str, notes: list[str]) -> list[str]:
        clients = [client for client, of in self.families.items() if of == family]
        features = dict.fromkeys(feature for _, feature in self.cells)
        head = ["", *(f"{client} {self.versions[client]}" for client in clients)]
        rows = [[feature, *(self._text((client, feature), notes) for client in clients)] for feature in features]
        lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
        return [f"**{family}**", "", lines[0], "|" + "---|" * len(head), *lines[1:], ""]

    def _text(self, cell: tuple[str, str], notes: list[str]) -> str:
        outcome = self.cells[cell]
        return f"{outcome} ({notes.index(self.cannot[cell]) + 1})" if outcome is Outcome.CANNOT else str(outcome)


def documented(page: str) -> dict[tuple[str, str], Outcome]:
    """The cells that the page has, without versions and footnotes."""
    found: dict[tuple[str, str], Outcome] = {}
    clients: list[str] = []
    for line in _between(page):
        if not line.startswith("| "):
            continue
        feature, *texts = (part.strip() for part in line.strip("|").split("|"))
        if not feature:
            clients = [text.split()[0] for text in texts]
        else:
            outcomes = (Outcome(re.sub(r" \(\d+\)$", "", text)) for text in texts)
            found |= {(client, feature): outcome for client, outcome in zip(clients, outcomes, strict=True)}
    return found


def replaced(page: str, table: Table) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return "\n".join([before + BEGIN, *table.lines(), END + after])


def differences(found: Cells, page: str, *, unasked: Collection[tuple[str, str]] = ()) -> list[str]:
    """What a run and the page say differently, a line each. The run may lack clients that are not here and what it did not
    ask, and no other features."""
    said = {cell: outcome for cell, outcome in documented(page).items() if cell not in unasked}
    clients = {client for client, _ in found}
    cells = [cell for cell in {**said, **found} if cell[0] in clients]
    return [
        f"{feature} with {client}: the page says {said.get((client, feature), 'nothing')}, "
        f"the run says {found.get((client, feature), 'nothing')}"
        for client, feature in cells
        if said.get((client, feature)) != found.get((client, feature))
    ]


def _between(page: str) -> list[str]:
    return page.split(BEGIN)[1].split(END)[0].splitlines()
