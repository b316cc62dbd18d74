"""Keeps what the story tells, until it becomes a page, and hands it on to those who show it at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ....server.offline.space import PartitionSpace, Space, measure_partition, measure_rest
from ....server.storage.directory.inventory import read_directory
from ....server.storage.disk.filesystem import OsFileSystem
from ..checks import Check
from ..day import DayReader, FlightsLine, by_carrier, by_hour
from ..disk_usage import PartitionUsage
from ..producing import Production
from ..question import Answered
from ..reading import PartitionCopy
from ..story import FlightsNarrator, Lookup

MOST_POINTS: Final = 1_000
"""Of the curve; where there would be more, every other one goes."""


class PageNarrator(FlightsNarrator):
    """Owner of what a page is made of; `shown` is told everything, too. What has not happened is None, or empty."""

    def __init__(self, shown: FlightsNarrator) -> None:
        self._shown = shown
        self._begin: float | None = None
        self.acknowledged: list[tuple[float, float]] = []
        """Seconds after the start of production, and how many records were acknowledged then."""
        self.production: Production | None = None
        self.lookup: Lookup | None = None
        self.carriers: list[FlightsLine] = []
        self.hours: list[FlightsLine] = []
        self.partitions: list[PartitionSpace] = []
        self.rest = Space()
        self.answer: Answered | None = None

    def checked(self, check: Check) -> None:
        self._shown.checked(check)

    def started(self, pid: int, address: tuple[str, int], data_dir: Path) -> None:
        self._shown.started(pid, address, data_dir)

    def producing(self, acknowledged: int) -> None:
        now = time.perf_counter()
        self._begin = now if self._begin is None else self._begin
        if len(self.acknowledged) == MOST_POINTS:
            del self.acknowledged[1::2]
        self.acknowledged.append((now - self._begin, float(acknowledged)))
        self._shown.producing(acknowledged)

    def produced(self, production: Production) -> None:
        self.production = production
        self._shown.produced(production)

    def read_back(self, copies: Sequence[PartitionCopy], seconds: float) -> None:
        self._shown.read_back(copies, seconds)

    def looked_up(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self._shown.looked_up(lookup)

    def consumed(self, day: DayReader, seconds: float) -> None:
        departures = list(day.departures.values())
        self.carriers, self.hours = by_carrier(departures), by_hour(departures)
        self._shown.consumed(day, seconds)

    def stopped(self, usage: Sequence[PartitionUsage]) -> None:
        fs = OsFileSystem()
        found = read_directory(fs, str(usage[0].directory.parent))
        self.partitions = [measure_partition(fs, files) for files in found.partitions]
        self.rest = measure_rest(fs, found)
        self._shown.stopped(usage)

    def answered(self, answered: Answered) -> None:
        self.answer = answered
        self._shown.answered(answered)
