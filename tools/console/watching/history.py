"""Samples of the last 15 minutes, in arrays of doubles. The number of series is bounded, so memory is too.

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
