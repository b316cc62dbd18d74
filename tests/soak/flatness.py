"""Whether a server grows: the slope of what it holds, within each life that is long enough to tell.

A life is judged from `WARM_S` on, where `JUDGED_S` are left of it. Until then caches fill, clients come, and the heap grows by
steps of some MiB that become rare: in the first soak it was 62 MiB after 5 minutes, 65 after 17, then +0.8 an hour.
Samples become medians of a minute, so that a round of compaction or a scrape counts for little; the slope is that of Theil and
Sen, the median of the slopes between all pairs of minutes, which a step or a few outliers do not move. A quantity is flat in a
life when its slope is at most `LIMITS`, in units an hour. A server is flat when every judged life is, and one at least was.

| quantity | may grow by, an hour | which is |
|---|---:|---|
| pss, private | 6 MiB | 9 bytes for each of 200 records a second; 64 bytes that are lost with one request of ten are as much |
| descriptors | 6 | segments of the load open some and close them again |
| threads | 1 | |
| tasks | 6 | |

Less is not found by this: a run of two hours has a life of one hour.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from .sampling import Sample

WARM_S: Final = 1200.0
JUDGED_S: Final = 1800.0
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
MIB: Final = 1 << 20
LIMITS: Final = {"pss": 6.0 * MIB, "private": 6.0 * MIB, "descriptors": 6.0, "threads": 1.0, "tasks": 6.0}
"""Of growth in an hour."""
EVERY_QUANTITY: Final = tuple(LIMITS)


@attrs.frozen(kw_only=True)
class Judgement:
    """One quantity in one life. `level`: its median there."""

    quantity: str
    life: int
    judged_s: float
    level: float
    growth: float
    """In an hour."""
    limit: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.limit

    def __str__(self) -> str:
        unit, name = (MIB, " MiB") if self.limit >= MIB else (1, "")
        return (
            f"life {self.life}, {self.judged_s / 60:.0f} minutes: {self.quantity} {self.level / unit:.1f}{name}, "
            f"{self.growth / unit:+.2f}{name} an hour, may be {self.limit / unit:+.0f}: {'flat' if self.is_flat else 'GROWS'}"
        )


@attrs.frozen
class Flatness:
    judgements: tuple[Judgement, ...]

    @property
    def is_flat(self) -> bool:
        """No life that is long enough: nobody can say so."""
        return bool(self.judgements) and all(each.is_flat for each in self.judgements)

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "not flat" if self.judgements else "not flat: no life is long enough to be judged"
        return "\n".join([verdict, *(f"  {each}" for each in self.judgements)])


def judge(samples: Iterable[Sample]) -> Flatness:
    """Of a run."""
    judgements: list[Judgement] = []
    by_life = itertools.groupby(sorted(samples, key=lambda each: (each.life, each.age_s)), key=lambda each: each.life)
    for life, group in by_life:
        warm = [sample for sample in group if sample.age_s >= WARM_S]
        if warm and warm[-1].age_s - WARM_S >= JUDGED_S:
            judgements += [_judge(quantity, life, warm) for quantity in LIMITS]
    return Flatness(tuple(judgements))


def _judge(quantity: str, life: int, samples: Sequence[Sample]) -> Judgement:
    minutes: dict[int, list[float]] = {}
    for sample in samples:
        minutes.setdefault(int(sample.age_s // MINUTE_S), []).append(float(getattr(sample, quantity)))
    points = [(minute * MINUTE_S, statistics.median(values)) for minute, values in minutes.items()]
    return Judgement(
        quantity=quantity,
        life=life,
        judged_s=samples[-1].age_s - WARM_S,
        level=statistics.median(value for _, value in points),
        growth=slope(points) * HOUR_S,
        limit=LIMITS[quantity],
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil and Sen's, of points whose first coordinates all differ."""
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2))
