"""The table of all APIs of Kafka in docs/kafka-compatibility.md: what two releases have, and what is served here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
from triolog.protocol.kafka.apis import APIS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kafka-compatibility.md"
BEGIN: Final = "<!-- APIs: made by TRIOLOG_WRITE_TABLE=1 make test ARGS=tests/kafka/test_message_definitions.py -->"
END: Final = "<!-- end of APIs -->"
REFERENCE: Final = "4.3.1"
NEWEST: Final = "4.4.0"
NOTHING: Final = "-"

Apis = Mapping[int, tuple[str, range]]
"""Name and versions by key."""


@attrs.frozen
class AllApis:
    """The table."""

    reference: Apis
    newest: Apis
    reasons: Mapping[int, str]
    """Why something else is served than the newest release has."""

    def lines(self) -> list[str]:
        rows = [["key", "API", "here", f"Kafka {REFERENCE}", f"Kafka {NEWEST}", "why it differs"]]
        for key, (name, _) in self._all():
            why = self.reasons.get(key, "") if self._differs(key) else ""
            rows.append([str(key), name, served(key), *self._versions(key), why])
        made = ["| " + " | ".join(row).strip() + " |" for row in rows]
        return [made[0], "|---:|---|---|---|---|---|", *made[1:]]

    def without_reason(self) -> list[str]:
        """Names of APIs that differ from the newest release, and it is not said why."""
        return [name for key, (name, _) in self._all() if self._differs(key) and not self.reasons.get(key)]

    def _all(self) -> list[tuple[int, tuple[str, range]]]:
        return sorted({**self.reference, **self.newest}.items())

    def _differs(self, key: int) -> bool:
        return served(key) != self._versions(key)[-1]

    def _versions(self, key: int) -> list[str]:
        return [_text(apis[key][1]) if key in apis else NOTHING for apis in (self.reference, self.newest)]


def served(key: int) -> str:
    """The versions that are advertised here."""
    return _text(range(APIS[key].lowest, APIS[key].highest + 1)) if key in APIS else NOTHING


def reasons_in(page: str) -> dict[int, str]:
    """What the page says of differences, by key."""
    rows = [line.strip("|").split("|") for line in page.split(BEGIN)[1].split(END)[0].splitlines()]
    return {int(row[0]): row[-1].strip() for row in rows if row[0].strip().isdecimal()}


def replaced(page: str, table: AllApis) -> str:
    """The page with another table."""
    before, rest = page.split(BEGIN)
    return "\n".join([before + BEGIN, *table.lines(), END + rest.split(END)[1]])


def _text(versions: range) -> str:
    return f"{versions[0]}-{versions[-1]}"
