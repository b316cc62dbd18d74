"""What people see of the demo: a progress bar, figures, verdicts, the walk through the indexes as a tree, tables with bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .checks import NO_RECORD, Check
from .day import DAY, DayReader, FlightsLine, by_carrier, by_hour
from .disk_usage import PartitionUsage
from .flights import AIRPORTS, NEW_YORK, Flight
from .producing import Production
from .question import QUESTION, Answered
from .reading import PartitionCopy
from .story import FlightsNarrator, Lookup

PIPE_WIDTH: Final = 120
BAR_WIDTH: Final = 30
EIGHTHS: Final = " ▏▎▍▌▋▊▉"


class Lines:
    """What a demo's terminal is made of: chapters, lines, verdicts."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def checked(self, check: Check) -> None:
        """A claim was judged."""
        verdict = "[bold green]    ok[/]" if check.ok else "[bold red]FAILED[/]"
        self._console.print(f"  {verdict}  {check.name}[dim]: {check.detail}[/]", soft_wrap=True)

    def _verdict(self, failed: int, checks: int) -> None:
        self._console.print()
        self._say(f"All {checks} checks held." if not failed else f"[bold red]{failed} of {checks} checks FAILED.[/]")

    def _chapter(self, title: str) -> None:
        self._console.print(f"\n[bold]{title}[/]", soft_wrap=True)

    def _say(self, text: str) -> None:
        self._console.print(f"  {text}", soft_wrap=True)


class PlainTerminal(Lines):
    """For a story that says by itself what there is to be seen."""

    def chapter(self, title: str) -> None:
        """What comes now."""
        self._chapter(title)

    def say(self, text: str) -> None:
        """A line of it."""
        self._say(text)

    def ended(self, failed: int, checks: int) -> None:
        """Whether all claims held."""
        self._verdict(failed, checks)


class FlightsTerminal(Lines, FlightsNarrator):
    """Tells the story on a console; the progress bar only where that is a terminal."""

    def __init__(self, console: Console, flights: Sequence[Flight]) -> None:
        super().__init__(console)
        self._count = len(flights)
        self._record_bytes = sum(len(flight.key or b"") + len(flight.value) for flight in flights) / len(flights)
        self._progress: Progress | None = None

    def loaded(self, seconds: float) -> None:
        """The source was read."""
        size = self._count * self._record_bytes / 1e6
        self._chapter("A year of departures from New York")
        self._say(f"{self._count:,} flights of 2013 read in {seconds:.1f} s, {size:,.1f} MB as JSON")

    def started(self, pid: int, address: tuple[str, int], data_dir: Path) -> None:
        self._say(f"triolog serve is process {pid} at {address[0]}:{address[1]}, durability fsync, data in {data_dir}")
        self._chapter("In: a partition for each airport, the tail number as key, the departure as timestamp")
        if self._console.is_terminal and not self._console.quiet:
            speed = _Speed(self._record_bytes)
            columns = (TextColumn("  "), BarColumn(BAR_WIDTH), MofNCompleteColumn(), speed, TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.add_task("", total=self._count)
            self._progress.start()

    def producing(self, acknowledged: int) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=acknowledged)

    def produced(self, production: Production) -> None:
        self.close()
        rate = self._count / production.seconds
        kill = production.kill
        self._say(
            f"{self._count:,} records acknowledged in {production.seconds:.2f} s: {rate:,.0f} records/s, "
            f"{rate * self._record_bytes / 1e6:.1f} MB/s, the kill included"
        )
        self._say(
            f"SIGKILL after {kill.at_s:.2f} s; a new process accepted within {kill.recovery_ms:.0f} ms; "
            f"the next record was acknowledged {kill.resumed_ms:.0f} ms after the kill"
        )

    def read_back(self, copies: Sequence[PartitionCopy], seconds: float) -> None:
        stored = sum(map(len, copies))
        self._chapter("Out again: everything, compared with the source")
        self._say(f"{stored:,} records read in {seconds:.2f} s: {stored / seconds:,.0f} records/s, each compared")

    def looked_up(self, lookup: Lookup) -> None:
        self._chapter(f"Where does {DAY} begin?")
        self._say(f"Looked up in {len(lookup.answers)} partitions with one request: {lookup.median_us:,.0f} us, there and back")
        tree = Tree(f"first record at or after {DAY} 00:00 {NEW_YORK}", guide_style="dim")
        for partition, walk in lookup.walks.items():
            draw_walk(tree, f"[bold]{AIRPORTS[partition]}[/]", walk)
        self._console.print(tree)
        self._say("The records are out of order: the file holds the months in the order 1, 10, 11, 12, 2, ...,")
        self._say("so what comes first at or after that midnight left in another month, and the day lies further on.")

    def consumed(self, day: DayReader, seconds: float) -> None:
        departures = list(day.departures.values())
        repeated = day.found_count - len(departures)
        self._chapter(f"{DAY} by time")
        self._say(
            f"{day.consumed_count:,} records read from there to the end in {seconds:.2f} s, because out of order no offset "
            f"ends a day; {day.found_count:,} lie in it, {repeated} of them repeated"
        )
        self._console.print(_flights_table("carrier", by_carrier(departures), self._console))
        self._console.print(_flights_table("departure", by_hour(departures), self._console))

    def stopped(self, usage: Sequence[PartitionUsage]) -> None:
        self._chapter("On disk, after an orderly stop")
        self._console.print(_usage_table(usage))

    def answered(self, answered: Answered) -> None:
        self._chapter("A question in SQL")
        for line in QUESTION.splitlines():
            self._say(line)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("carrier")
        for name in ("latest", "aircraft"):
            table.add_column(name, justify="right")
        for airline in answered.airlines:
            latest = "-" if airline.latest is None else f"{airline.latest:+} min"
            table.add_row(airline.carrier, latest, str(airline.aircraft))
        self._console.print(table)
        self._say(
            f"answered in {answered.seconds:.2f} s from {answered.records:,} of {answered.total:,} records, without a server: "
            "`triolog sql`"
        )

    def ended(self, failed: int, checks: int, look_at: Path, *, is_kept: bool, is_shown: bool, html: Path | None) -> None:
        """The story is over."""
        self._verdict(failed, checks)
        if is_kept:
            self._say(f"Look at it with: triolog dump {look_at}")
        elif not is_shown:
            self._say("The data is removed now; `triolog demo --keep` leaves it there for `triolog dump`.")
        if html is not None:
            self._say(f"The same with drawings, as a page: {html}")

    def close(self) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def open_console(*, quiet: bool) -> Console:
    """Standard output; wider than a terminal's default where it is none."""
    console = Console(highlight=False, emoji=False, quiet=quiet)
    return console if console.is_terminal else Console(highlight=False, emoji=False, quiet=quiet, width=PIPE_WIDTH)


class _Speed(ProgressColumn):
    """Records and megabytes a second, over the whole time so far."""

    def __init__(self, record_bytes: float) -> None:
        super().__init__()
        self._record_bytes = record_bytes

    def render(self, task: Task) -> Text:
        rate = task.completed / task.elapsed if task.elapsed else 0
        return Text(f"{rate:>9,.0f} rec/s {rate * self._record_bytes / 1e6:>6.1f} MB/s")


def draw_walk(tree: Tree, label: str, walk: dict[str, Any]) -> None:
    """Add to a tree how a lookup by time went: segment, both indexes, what was read, the answer."""
    offset, timestamp = walk["answer"]["offset"], walk["answer"]["timestamp"]
    found = "no such record" if (offset, timestamp) == NO_RECORD else f"offset {offset:,}, {_local(timestamp)}"
    branch = tree.add(f"{label}: {found}")
    for step in walk["segments"]:
        segment = branch.add(
            f"segment {step['segment']:020d}, number {step['number'] + 1} of {walk['segment_count']}: "
            f"its largest timestamp is {_local(step['max_timestamp'])}"
        )
        time_index, offset_index = step["time_index"], step["offset_index"]
        segment.add(
            f"time index, {time_index['entries']} entries: {_slot(time_index['slot'])} leads to offset {time_index['offset']:,}"
        )
        segment.add(
            f"offset index, {offset_index['entries']} entries: {_slot(offset_index['slot'])} "
            f"leads to position {offset_index['position']:,}"
        )
        origin = "all of it cached" if step["cached"] else "not all of it cached"
        segment.add(f"log: {step['bytes_scanned']:,} bytes in {len(step['reads'])} reads, {origin}")


def _slot(slot: int) -> str:
    return "below its first entry, the segment's start" if slot < 0 else f"entry {slot}"


def _local(timestamp: int) -> str:
    return f"{datetime.fromtimestamp(timestamp / 1000, ZoneInfo(NEW_YORK)):%Y-%m-%d %H:%M}"


def _flights_table(heading: str, lines: Sequence[FlightsLine], console: Console) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(heading)
    for name in ("flights", "never left", "mean delay"):
        table.add_column(name, justify="right")
    table.add_column("flights", min_width=BAR_WIDTH)
    most = max((line.flights for line in lines), default=0)
    for line in lines:
        delay = "-" if line.mean_delay is None else f"{line.mean_delay:+.1f} min"
        drawn = bar(line.flights, most, ascii_only=console.options.ascii_only)
        table.add_row(line.label, f"{line.flights:,}", str(line.never_left or "-"), delay, f"[cyan]{drawn}[/]")
    return table


def bar(count: int, most: int, *, ascii_only: bool = False) -> str:
    """A bar of up to BAR_WIDTH characters; anything above nothing can be seen."""
    eighths = max(round(count * BAR_WIDTH * 8 / most), 1) if count else 0
    if ascii_only:
        return "#" * ((eighths + 7) // 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def _usage_table(usage: Iterable[PartitionUsage]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("directory")
    for name in ("files", "segments", "log bytes", "offset index entries", "time index entries", "all bytes"):
        table.add_column(name, justify="right")
    for part in usage:
        counts = (part.files, part.segments, part.log_bytes, part.offset_index_entries, part.time_index_entries)
        table.add_row(part.directory.name, *(f"{count:,}" for count in (*counts, part.total_bytes)))
    return table
