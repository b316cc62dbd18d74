"""A rate over a sliding window: what was used in the last samples, divided by the time that they cover.

As Kafka measures (`Rate` and `SampledStat` with `quota.window.num` 11 and `quota.window.size.seconds` 1): use is added to a
sample until that is a second old; eleven samples are kept, and one whose last use is eleven seconds old is forgotten. A window
that has just begun counts as ten seconds, so that a burst is measured by what it is over ten seconds.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import attrs

SAMPLE_COUNT: Final = 11
SAMPLE_S: Final = 1.0
LEAST_WINDOW_S: Final = SAMPLE_S * (SAMPLE_COUNT - 1)


@attrs.define(eq=False, repr=False)
class _Sample:
    began_s: float
    last_s: float
    amount: float


@attrs.define(eq=False, repr=False)
class QuotaRate:
    """What one user, client or address has used. Owner: `ClientQuotas`. Times are seconds that only grow."""

    kept: float = 0.0
    """What the samples hold, those included that are too old to count: not more was used."""
    _samples: deque[_Sample] = attrs.field(factory=lambda: deque(maxlen=SAMPLE_COUNT))

    def add(self, amount: float, now_s: float) -> None:
        """Something was used; a negative amount takes back what was added."""
        samples = self._samples
        if samples and now_s - samples[-1].began_s < SAMPLE_S:
            samples[-1].amount += amount
            samples[-1].last_s = now_s
            self.kept += amount
        else:
            samples.append(_Sample(now_s, now_s, amount))
            self.kept = sum(sample.amount for sample in samples)

    @property
    def last_s(self) -> float:
        """When something was used last."""
        return self._samples[-1].last_s if self._samples else -math.inf

    def is_unused(self, now_s: float) -> bool:
        """Whether nothing is in the window."""
        samples = self._samples
        while samples and now_s - samples[0].last_s >= SAMPLE_COUNT * SAMPLE_S:
            samples.popleft()
        return not samples

    def window_s(self, now_s: float) -> float:
        """How long the window is that the rate is about."""
        if self.is_unused(now_s):
            return LEAST_WINDOW_S
        elapsed_s = now_s - self._samples[0].began_s
        full_s = elapsed_s // SAMPLE_S * SAMPLE_S
        return elapsed_s + max(0.0, LEAST_WINDOW_S - full_s)

    def per_second(self, now_s: float) -> float:
        """Use a second."""
        window_s = self.window_s(now_s)
        return sum(sample.amount for sample in self._samples) / window_s

    def over_s(self, bound: float, now_s: float) -> float:
        """After how long without use the rate would be at the bound again; 0 when it is not above it."""
        rate = self.per_second(now_s)
        return (rate - bound) / bound * self.window_s(now_s) if rate > bound else 0.0
