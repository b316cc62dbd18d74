"""Samples of the last 15 minutes, in arrays of doubles, and rates between two samples. The number of series is bounded, so
memory is too.

A series with only zeros for that long is evicted for another one. A series that finds no space is left out and counted.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

SPAN_MS: Final = 15 * 60_000
SAMPLES: Final = 900
"""One a second."""
MAX_SERIES: Final = 256
"""With all of them 1.8 MiB."""
NOTHING: Final = math.nan
DIGITS: Final = 4


@attrs.define(eq=False, repr=False)
class History:
    """Owner: the watcher that samples."""

    left_out: int = 0
    """Values of the last sample for which there was no series."""
    _times: array[float] = attrs.field(factory=lambda: array("d", [NOTHING]) * SAMPLES)
    _series: dict[str, array[float]] = attrs.field(factory=dict)
    _next: int = 0

    def add(self, time_ms: int, values: Mapping[str, float | None], optional: Mapping[str, float] | None = None) -> None:
        """A sample. Of the `optional` values those are kept that have a series, or are not 0 and find room for one."""
        slot = self._next
        self._next = (slot + 1) % SAMPLES
        self._times[slot] = time_ms
        for series in self._series.values():
            series[slot] = NOTHING
        for name, value in values.items():
            self._of(name)[slot] = NOTHING if value is None else value
        self.left_out = 0
        for name, value in (optional or {}).items():
            series_or_none = self._series.get(name)
            if series_or_none is None and value:
                series_or_none = self._with_room(name)
                self.left_out += series_or_none is None
            if series_or_none is not None:
                series_or_none[slot] = value

    def _of(self, name: str) -> array[float]:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = array("d", [NOTHING]) * SAMPLES
        return series

    def _with_room(self, name: str) -> array[float] | None:
        if len(self._series) >= MAX_SERIES:
            silent = next((each for each, series in self._series.items() if not any(v > 0 for v in series)), None)
            if silent is None:
                return None
            del self._series[silent]
        return self._of(name)

    def read(self, names: Iterable[str], now_ms: int, points: int) -> dict[str, Any]:
        """`{"times": [...], "series": {name: [...]}}`: of the last 15 minutes about `points` moments at even distances, each
        with the largest value of its stretch; None where there is none. Names without a series are left out."""
        order = [(self._next + i) % SAMPLES for i in range(SAMPLES)]
        slots = [slot for slot in order if self._times[slot] > now_ms - SPAN_MS]
        stretch_ms = SPAN_MS / points
        stretches: dict[int, list[int]] = {}
        for slot in slots:
            stretches.setdefault(int(self._times[slot] // stretch_ms), []).append(slot)
        groups = list(stretches.values())
        return {
            "times": [int(self._times[group[-1]]) for group in groups],
            "series": {
                name: [_largest(series, group) for group in groups]
                for name in names
                if (series := self._series.get(name)) is not None
            },
        }


def _largest(series: array[float], slots: list[int]) -> float | None:
    values = [series[slot] for slot in slots if not math.isnan(series[slot])]
    return shortened(max(values)) if values else None


def shortened(value: float) -> float:
    """To as many digits as a chart shows."""
    if value == int(value):
        return int(value)
    return round(value, max(0, DIGITS - 1 - math.floor(math.log10(abs(value)))))


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
