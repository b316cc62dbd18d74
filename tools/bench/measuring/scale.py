"""How much a benchmark does: the counts in the rows are those of a full run, a smaller run takes a share of them."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Scale:
    """`rounds`: how often each measure is taken, beside one that is not counted. `share`: of the full counts and times."""

    name: str
    rounds: int
    share: float

    def count(self, full: int, least: int = 1) -> int:
        """A number of things to do."""
        return max(least, round(full * self.share))

    def seconds(self, full: float, least: float = 0.05) -> float:
        """A time to measure for."""
        return max(least, full * self.share)


FULL: Final = Scale("full", 5, 1.0)
QUICK: Final = Scale("quick", 3, 0.1)
