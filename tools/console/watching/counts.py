"""Counts of connections as they were a little while ago, so that their rates can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
        """What the next rates are counted from."""
        if time_ms - self._time_ms >= LEAST_MS:
            self._counts, self._time_ms = counts, time_ms
