"""Rates between two samples: of connections, and of what reached the disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from .history import shortened

LEAST_MS: Final = 500
"""Between two counts, so that a rate means something."""
Counts = Mapping[str, Mapping[str, int]]


@attrs.define(eq=False, repr=False)
class CountedBefore:
    """Owner: the watcher. As many connections as a view shows."""

    _counts: Counts = attrs.field(factory=dict)
    _time_ms: int = 0

    def rates(self, name: str, now: Mapping[str, int], time_ms: int) -> dict[str, float | None]:
        """Per second, by the same names; None where there was no count before, or the system does not tell."""
        before, span_ms = self._counts.get(name), time_ms - self._time_ms
        if before is None or span_ms <= 0:
            return dict.fromkeys(f"{field}_per_second" for field in now)
        rates: dict[str, float | None] = {}
        for field, value in now.items():
            is_known = 0 <= before[field] <= value
            rates[f"{field}_per_second"] = shortened((value - before[field]) * 1000 / span_ms) if is_known else None
        return rates

    def keep(self, counts: Counts, time_ms: int) -> None:
        """Keep the counts as the base of the next rates, unless the last ones are younger than LEAST_MS."""
        if time_ms - self._time_ms >= LEAST_MS:
            self._counts, self._time_ms = counts, time_ms


PROCESS: Final = "written_by_process"
DISK: Final = "disk:"
"""Begins the name of a disk's series."""

Body = Mapping[str, Any]


def disk_name(directory: Body) -> str:
    """The disks below a log directory as one name; empty where there is none."""
    return "+".join(directory["disks"])


def wear_series(before: Body, after: Body) -> dict[str, float]:
    """By series; without those of which the system does not tell, and of counters that fell."""
    old, new = before.get("wear"), after.get("wear")
    if old is None or new is None:
        return {}
    counters = [(PROCESS, old["process_written_bytes"], new["process_written_bytes"])]
    old_disks = {disk_name(each): each["disk_written_bytes"] for each in old["directories"]}
    for name, written in {disk_name(each): each["disk_written_bytes"] for each in new["directories"]}.items():
        if name:
            counters.append((f"{DISK}{name}", old_disks.get(name), written))
    seconds = max(0.001, (after["time_ms"] - before["time_ms"]) / 1000)
    return {
        name: (last - first) / seconds
        for name, first, last in counters
        if first is not None and last is not None and last >= first
    }
