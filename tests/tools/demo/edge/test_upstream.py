from __future__ import annotations

import pytest
from triolog.protocol.types import Record
from triolog.tools.demo.edge.upstream import Arrived

from tests.tools.demo.flight_rows import departing

FLIGHT = departing(1000, row=7)
RECORD = Record(3, 1000, FLIGHT.key, FLIGHT.value, (("row", b"7"),))


def arrived(*records: Record) -> Arrived:
    found = Arrived({FLIGHT.row: FLIGHT})
    for record in records:
        found.add(record)
    return found


def test_what_was_written_arrives_with_what_was_lost_before_it() -> None:
    found = arrived(RECORD._replace(headers=(("row", b"7"), ("triolog.gap", b"120-131"))), RECORD)
    assert (found.rows, found.gaps, found.differing) == ([b"7", b"7"], [(120, 131)], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"value": b"{}"},
        {"key": None},
        {"timestamp": 1001},
        {"headers": ()},
        {"headers": (("row", b"8"),)},
        {"headers": (("row", b"7"), ("other", None))},
    ],
)
def test_whatever_is_changed_differs(changes: dict[str, object]) -> None:
    found = arrived(RECORD._replace(**changes), RECORD)
    [difference] = found.differing
    assert difference.startswith("offset 3 upstream: Record(")
