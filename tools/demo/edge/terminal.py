"""What people see of the edge demo: two progress bars, how things stand, a table, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..terminal import BAR_WIDTH, Lines
from .accounts import TopicAccount
from .small_disk import SmallDisk
from .story import EdgeNarrator, Kill, WeekEnd
from .week import CANCELLATIONS, DAYS, DELAYS, DEPARTURES, Written

DUTIES: Final = {
    DEPARTURES: "most of it, gives up its oldest records first",
    DELAYS: "an hour late or more, disk.full.priority=10",
    CANCELLATIONS: "never left, disk.full.policy=refuse above 1 MiB",
}


class EdgeTerminal(Lines, EdgeNarrator):
    """Tells the story on a console; progress bars only where that is a terminal."""

    def __init__(self, console: Console, week: Sequence[Written]) -> None:
        super().__init__(console)
        self._week = week
        self._progress: Progress | None = None

    def started(self, disk: SmallDisk, source: int, upstream: str) -> None:
        self._chapter("A gateway without an uplink")
        self._say(f"triolog serve is process {source}, durability fsync; its disk: {disk.what}")
        self._say(f"room for {disk.room_bytes / 1e6:.1f} MB; {len(self._week):,} flights of a year come within a week")
        for topic, duty in DUTIES.items():
            self._say(f"{topic:<13} {sum(each.topic == topic for each in self._week):>7,}  {duty}")
        self._say(f"upstream: {upstream}, which nobody reaches for now; triolog forward keeps trying")

    def writing(self, settled: int) -> None:
        latest = self._week[min(settled, len(self._week) - 1)].flight.timestamp
        first = self._week[0].flight.timestamp
        day = f"day {min(DAYS, 1 + (latest - first) // 86_400_000)} of {DAYS}"
        self._draw(day, settled, len(self._week))

    def week_is_over(self, end: WeekEnd) -> None:
        self.close()
        self._say(
            f"{end.written:,} records acknowledged and {end.refused:,} refused in {end.seconds:.1f} s; {end.stored:,} are "
            f"stored, {end.dropped:,} had to go; the forwarder was turned away {end.turned_away} times"
        )

    def link_is_up(self, bytes_per_second: int) -> None:
        self._chapter(f"The link is back, with {bytes_per_second * 8 / 1e6:.0f} Mbit/s")

    def forwarding(self, forwarded: int, total: int) -> None:
        self._draw("forwarded", forwarded, total)

    def killed(self, kill: Kill) -> None:
        self.close()
        self._say(
            f"SIGKILL of {', '.join(kill.statuses)} after {kill.at_s:.1f} s, with {kill.forwarded:,} records upstream; "
            f"all there again within {kill.restart_ms:.0f} ms"
        )

    def drained(self, seconds: float, carried_bytes: int) -> None:
        self.close()
        self._say(f"nothing is left after {seconds:.1f} s, the kill included; the link carried {carried_bytes / 1e6:.1f} MB")

    def added_up(self, lines: Sequence[TopicAccount]) -> None:
        self._chapter("Everything upstream, compared with what was acknowledged")
        self._console.print(_table(lines))

    def ended(self, failed: int, checks: int, seconds: float) -> None:
        """The story is over."""
        self._verdict(failed, checks)
        self._say(f"{seconds:.0f} s in all.")

    def close(self) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _draw(self, description: str, done: int, total: int) -> None:
        if not self._console.is_terminal or self._console.quiet:
            return
        if self._progress is None:
            columns = (TextColumn("  {task.description:<12}"), BarColumn(BAR_WIDTH), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.add_task(description, total=total)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=description, completed=done, total=total)


def _table(lines: Sequence[TopicAccount]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic")
    for name in ("written", "refused", "forwarded", "dropped", "told upstream", "duplicates", "adds up"):
        table.add_column(name, justify="right")
    for line in lines:
        counts = (line.written, line.refused, line.forwarded, line.dropped, line.told, line.duplicates)
        verdict = "[bold green]yes[/]" if line.adds_up else "[bold red]NO[/]"
        table.add_row(line.topic, *(f"{count:,}" for count in counts), verdict)
    return table
