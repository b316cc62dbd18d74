"""How long things took, as a histogram of fixed classes: cheap enough to be counted always, exact enough for p50 and p99."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import attrs

DURATION_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the classes, inclusive; above the last one there is one more. From what a request in the page cache takes
(0.1 ms) to what clients give up after."""


@attrs.define(eq=False, repr=False)
class Durations:
    """Counts by class. Owner: who measures."""

    seconds: float = 0.0
    counts: list[int] = attrs.field(factory=lambda: [0] * (len(DURATION_BOUNDS_S) + 1))

    def add(self, seconds: float) -> None:
        """One more that took so long."""
        self.seconds += seconds
        self.counts[bisect_left(DURATION_BOUNDS_S, seconds)] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> Durations:
        """As it is now."""
        return Durations(self.seconds, list(self.counts))
