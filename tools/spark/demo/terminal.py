"""What people see of the Spark demo: what the job does, its kills, a table with bars, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ...demo.terminal import Lines, bar
from .job_process import Run
from .plot import by_local_hour, sums_by_carrier
from .story import JobNarrator
from .tables import DAY_MS, Group, Sums, together


class JobTerminal(Lines, JobNarrator):
    """Tells the story on a console."""

    def produced(self, count: int, seconds: float, address: tuple[str, int]) -> None:
        self._chapter("A year of departures from New York, in a log")
        self._say(f"{count:,} flights in {seconds:.1f} s into topic flights at {address[0]}:{address[1]}, retention.ms=-1")

    def watermark(self, delay_ms: int, span_ms: int, disorder: int) -> None:
        self._chapter("Through Spark, exactly once")
        self._say(
            f"The file holds the months in the order 1, 10, 11, 12, 2, ...: a record comes up to {disorder / DAY_MS:.0f} days"
        )
        self._say(
            f"behind one before it. The watermark waits {delay_ms / DAY_MS:.0f} days, as long as all times span, so no order of"
        )
        self._say("reading makes a record late; one closing record behind the last flight closes every hour.")

    def job_said(self, line: Mapping[str, Any]) -> None:
        if "batch" in line:
            state = f", {line['state_rows']:,} hours in state" if line["state_rows"] else ""
            self._say(f"{line['part']:<10} batch {line['batch']:>2}: {line['rows']:>7,} rows in {line['seconds']:.1f} s{state}")
        else:
            self._say(f"{line['part']}")

    def job_ended(self, runs: Sequence[Run], seconds: float) -> None:
        for run in runs:
            if run.killed is not None:
                self._say(f"SIGKILL {run.killed.share:.0%} of a batch after number {run.killed.batch} of {run.killed.part}")
        self._say(f"{len(runs)} processes of the job, {seconds:.1f} s in all")

    def result(self, hours: Mapping[Group, Sums], picture: Path | None) -> None:
        self._chapter("Delay by carrier")
        carriers = sums_by_carrier(hours)
        self._console.print(sums_table("carrier", carriers, self._console))
        self._chapter("Delay by hour")
        by_hour: dict[int, list[Sums]] = {}
        for airport in by_local_hour(hours).values():
            for hour, sums in airport.items():
                by_hour.setdefault(hour, []).append(sums)
        rows = [(f"{hour:02d}:00", together(by_hour[hour])) for hour in sorted(by_hour)]
        self._console.print(sums_table("departure", rows, self._console))
        if picture is not None:
            self._say(f"The picture: {picture}")
        self._chapter("What was claimed")

    def ended(self, failed: int, checks: int) -> None:
        """The story is over."""
        self._verdict(failed, checks)


def sums_table(heading: str, rows: Sequence[tuple[str, Sums]], console: Console) -> Table:
    """A line for each row, with a bar as long as its flights."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(heading)
    for name in ("flights", "never left", "mean delay", "in wet hours", "known seats"):
        table.add_column(name, justify="right")
    table.add_column("flights", min_width=30)
    most = max((sums.flights for _, sums in rows), default=0)
    for label, sums in rows:
        delay = "-" if sums.mean_delay is None else f"{sums.mean_delay:+.1f} min"
        cells = (f"{sums.flights:,}", str(sums.flights - sums.departed or "-"), delay, f"{sums.wet:,}", f"{sums.seats:,}")
        table.add_row(label, *cells, f"[cyan]{bar(sums.flights, most, ascii_only=console.options.ascii_only)}[/]")
    return table
