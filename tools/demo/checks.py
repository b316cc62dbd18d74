"""What the demo claims, as functions of what was produced, acknowledged and read. Each answers with a Check.

None of them asks the server anything: they judge collected facts against the source, so a test can hand them wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from .flights import AIRPORTS, Flight
from .reading import PartitionCopy

NO_RECORD: Final = (-1, -1)
"""How a lookup by time answers when there is no such record."""


class RecordPlace(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


@attrs.frozen
class Check:
    """A claim, whether it held, and the figures it was judged by."""

    name: str
    ok: bool
    detail: str


def every_flight_acknowledged(flights: Sequence[Flight], acknowledged: Sequence[RecordPlace]) -> Check:
    """Each record that was sent has an acknowledgement of its own, in the partition of its airport."""
    misplaced = sum(flight.partition != place.partition for flight, place in zip(flights, acknowledged, strict=False))
    distinct = len(set(acknowledged))
    return Check(
        "every flight was acknowledged, each at an offset of its own",
        len(flights) == len(acknowledged) == distinct and not misplaced,
        f"{len(acknowledged):,} of {len(flights):,} acknowledged at {distinct:,} places, {misplaced} in a wrong partition",
    )


def killed_in_the_middle(total: int, acknowledged_at_kill: int, exit_status: int) -> Check:
    """The server died by SIGKILL while there was something acknowledged to lose and something left to send."""
    return Check(
        "the server was killed in the middle of production",
        0 < acknowledged_at_kill < total and exit_status == -9,
        f"exit status {exit_status} with {acknowledged_at_kill:,} of {total:,} acknowledged",
    )


def offsets_are_consecutive(copies: Sequence[PartitionCopy]) -> Check:
    """Every partition reads as offsets 0 to n - 1: none is missing, none was given twice."""
    gaps = [f"{AIRPORTS[copy.partition]}: {copy.out_of_sequence}" for copy in copies if copy.out_of_sequence]
    return Check(
        "offsets are consecutive",
        not gaps,
        "; ".join(gaps) or ", ".join(f"{AIRPORTS[copy.partition]} 0-{len(copy) - 1:,}" for copy in copies),
    )


def records_equal_source(copies: Sequence[PartitionCopy]) -> Check:
    """Every record in the log, also a repeated one, is its row of the source: key, value, timestamp, partition."""
    wrong = sum(copy.differing_count for copy in copies)
    examples = [copy.first_difference for copy in copies if copy.first_difference]
    return Check(
        "every record read back equals its row of the source",
        not wrong and any(len(copy) for copy in copies),
        "; ".join([f"{wrong:,} of {sum(map(len, copies)):,} differ", *examples]),
    )


def acknowledged_are_there(
    flights: Sequence[Flight], acknowledged: Sequence[RecordPlace], copies: Sequence[PartitionCopy]
) -> Check:
    """At the offset that was acknowledged for a row stands that row: what was promised before the kill was kept."""
    rows = [copy.rows for copy in copies]
    lost = [
        (flight, place)
        for flight, place in zip(flights, acknowledged, strict=True)
        if not 0 <= place.offset < len(rows[place.partition]) or rows[place.partition][place.offset] != flight.row
    ]
    example = [f"row {flight.row.decode()} is not at {AIRPORTS[place[0]]} {place[1]:,}" for flight, place in lost[:1]]
    return Check(
        "every acknowledged record is at the offset acknowledged for it",
        bool(flights) and not lost,
        "; ".join([f"{len(lost):,} of {len(flights):,} are not", *example]),
    )


def every_row_once(flights: Sequence[Flight], copies: Sequence[PartitionCopy]) -> Check:
    """The rows in the log are the rows of the source, each once, although the producer sent some again after the kill."""
    stored = set().union(*(copy.rows for copy in copies))
    missing = sum(flight.row not in stored for flight in flights)
    duplicates = sum(map(len, copies)) - len(stored)
    return Check(
        "every row of the source is in the log exactly once",
        not missing and not duplicates and len(stored) == len(flights),
        f"{len(stored):,} distinct rows, {missing:,} missing, {duplicates:,} duplicates",
    )


def scan_for_time(timestamps: Iterable[int], timestamp: int) -> tuple[int, int]:
    """The offset and the timestamp of the first record at or after a time, by looking at all of them."""
    return next(((offset, found) for offset, found in enumerate(timestamps) if found >= timestamp), NO_RECORD)


def lookups_equal_scan(name: str, answers: Mapping[int, tuple[int, int]], copies: Sequence[PartitionCopy], at: int) -> Check:
    """A lookup by time found, in every partition, what a scan of everything read finds."""
    scanned = {copy.partition: scan_for_time(copy.timestamps, at) for copy in copies}
    wrong = [
        f"{AIRPORTS[partition]}: {answers.get(partition)}, a scan finds {expected}"
        for partition, expected in scanned.items()
        if answers.get(partition) != expected
    ]
    found = ", ".join(f"{AIRPORTS[partition]} {offset:,}" for partition, (offset, _) in answers.items())
    return Check(name, bool(copies) and not wrong, "; ".join(wrong) or found)


def day_equals_source(consumed: Mapping[bytes, bytes | None], flights: Iterable[Flight], start: int, end: int) -> Check:
    """The distinct rows consumed for a span of time are exactly those of the source, value for value."""
    expected = {flight.row: flight.value for flight in flights if start <= flight.timestamp < end}
    missing = len(expected.keys() - consumed.keys())
    foreign = len(consumed.keys() - expected.keys())
    differing = sum(consumed.get(row, value) != value for row, value in expected.items())
    return Check(
        "the day consumed by time is the day in the source",
        bool(expected) and not missing and not foreign and not differing,
        f"{len(expected):,} rows: {missing} missing, {foreign} that do not belong, {differing} that differ",
    )


def stopped_in_order(exit_status: int, clean_marker_exists: bool) -> Check:
    """SIGTERM ended the last process by itself, and it left the mark that makes the next start a quick one."""
    return Check(
        "the server stopped in order",
        exit_status == 0 and clean_marker_exists,
        f"exit status {exit_status}, {'marked' if clean_marker_exists else 'not marked'} as a clean shutdown",
    )


def answer_equals_source(found: Sequence[Any], expected: Sequence[Any]) -> Check:
    """The log's answer in SQL is what the source says."""
    differing = sum(mine != theirs for mine, theirs in zip(found, expected, strict=False)) + abs(len(found) - len(expected))
    return Check(
        "the answer in SQL is the source's",
        bool(expected) and not differing,
        f"{len(expected)} rows, {differing} that differ",
    )
