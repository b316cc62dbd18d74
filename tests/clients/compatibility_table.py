"""The table client by feature in docs/kafka-compatibility.md: written by a run, and what a run is compared with."""

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

    def lines(self) -> list[str]:
        clients = list(dict.fromkeys(client for client, _ in self.cells))
        features = list(dict.fromkeys(feature for _, feature in self.cells))
        notes = list(dict.fromkeys(why for cell, why in self.cannot.items() if cell in self.cells))
        rows = [["", *(f"{client} {self.versions[client]}" for client in clients)], ["---"] * (1 + len(clients))]
        for feature in features:
            rows.append([feature, *(self._text((client, feature), notes) for client in clients)])
        table = ["| " + " | ".join(row) + " |" for row in rows]
        table[1] = "|" + "|".join(rows[1]) + "|"
        return [*table, "", *(f"{number}. {why}" for number, why in enumerate(notes, 1))]

    def _text(self, cell: tuple[str, str], notes: list[str]) -> str:
        outcome = self.cells[cell]
        return f"{outcome} ({notes.index(self.cannot[cell]) + 1})" if outcome is Outcome.CANNOT else str(outcome)


def documented(page: str) -> dict[tuple[str, str], Outcome]:
    """The cells that the page has, without versions and footnotes."""
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in _between(page) if line.startswith("|")]
    if not rows:
        return {}
    clients = [text.split()[0] for text in rows[0][1:]]
    return {
        (client, row[0]): Outcome(re.sub(r" \(\d+\)$", "", text))
        for row in rows[2:]
        for client, text in zip(clients, row[1:], strict=True)
    }


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
