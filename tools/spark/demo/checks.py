"""What the Spark demo claims, as functions of what was collected; each answers with a Check, none asks anybody anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...demo.checks import Check
from ...demo.flights import Flight
from .job_process import Run
from .results import Results
from .tables import DAY_MS, Group, Sums, together


def job_killed_in_the_middle(runs: Sequence[Run], kills: int) -> Check:
    """As many processes of the job died by SIGKILL as were to, each between two batches it had to do; the last one did not."""
    statuses = [run.exit_status for run in runs]
    points = [f"{run.killed.part} after batch {run.killed.batch}" for run in runs if run.killed is not None]
    return Check(
        "the job was killed in the middle and came to its end",
        statuses == [*[-9] * kills, 0] and len(points) == kills,
        f"exit statuses {', '.join(map(str, statuses))}; killed in {', '.join(points)}",
    )


def nothing_dropped(runs: Sequence[Run], delay_ms: int, span_ms: int, disorder_ms: int) -> Check:
    """The delay is not below the span of all times, so no order of reading makes a record late; and Spark dropped none."""
    dropped = sum(line.get("dropped", 0) for run in runs for line in run.lines)
    return Check(
        "the watermark dropped nothing",
        not dropped and delay_ms >= span_ms >= disorder_ms,
        f"{dropped} rows dropped; delay {_days(delay_ms)}, all times within {_days(span_ms)}, "
        f"the latest record comes {_days(disorder_ms)} behind one before it",
    )


def departures_once(flights: Sequence[Flight], results: Results) -> Check:
    """Each flight is in the topic of departures once; beside them stands the closing record."""
    missing = sum(flight.row not in results.departures for flight in flights)
    doubled = results.departures.total() - len(results.departures)
    return Check(
        "every flight is in the topic of departures exactly once",
        not missing and not doubled and len(results.departures) == len(flights) and results.without_row == 1,
        f"{results.departures.total():,} records: {missing:,} missing, {doubled:,} doubled, {results.without_row} closing",
    )


def hours_equal(name: str, found: Mapping[Group, Sums], repeated: int, expected: Mapping[Group, Sums]) -> Check:
    """The groups are those of the recomputation, each once, with its sums."""
    missing = len(expected.keys() - found.keys())
    foreign = len(found.keys() - expected.keys())
    wrong = [group for group, sums in expected.items() if group in found and found[group] != sums]
    example = [f"{group} has {found[group]}, the files give {expected[group]}" for group in wrong[:1]]
    return Check(
        name,
        bool(expected) and not (missing or foreign or wrong or repeated),
        "; ".join(
            [
                f"{len(expected):,} groups: {missing} missing, {foreign} foreign, {len(wrong)} wrong, {repeated} repeated",
                *example,
            ]
        ),
    )


def totals_equal(found: Mapping[Group, Sums], expected: Mapping[Group, Sums]) -> Check:
    """All groups added are what the files add up to."""
    ours, theirs = together(found.values()), together(expected.values())
    return Check(
        "totals equal a plain recomputation from the CSV files",
        ours == theirs and bool(ours.flights),
        f"{_said(ours)}; the files: {_said(theirs)}",
    )


def _said(sums: Sums) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in zip(Sums._fields, sums, strict=True))


def _days(ms: int) -> str:
    return f"{ms / DAY_MS:.1f} days"
