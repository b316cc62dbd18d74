"""What may be used at once, and how fast that comes back: a bucket of tokens.

As Kafka measures changes of topics (`TokenBucket` with `controller.quota.window.num` 11 and
`controller.quota.window.size.seconds` 1): it holds what the bound gives in eleven seconds, is full at first, and may be below
zero, which is to be waited out.
"""

from __future__ import annotations

from typing import Final

import attrs

BURST_S: Final = 11.0


@attrs.define(eq=False, repr=False)
class TokenBucket:
    """What one user or client has left. Owner: `ClientQuotas`. Times are seconds that only grow."""

    tokens: float
    last_s: float
    """When it was looked at last."""

    @classmethod
    def full(cls, bound: float, now_s: float) -> TokenBucket:
        return cls(bound * BURST_S, now_s)

    def refill(self, bound: float, now_s: float) -> None:
        """What has come back since it was looked at last."""
        self.tokens = min(bound * BURST_S, self.tokens + bound * (now_s - self.last_s))
        self.last_s = now_s

    def take(self, amount: float, bound: float, now_s: float) -> None:
        """Something is used, whether it is there or not."""
        self.refill(bound, now_s)
        self.tokens -= amount

    def missing_s(self, bound: float, now_s: float) -> float:
        """After how long nothing is owed any more; 0 where nothing is."""
        self.refill(bound, now_s)
        return max(0.0, -self.tokens / bound)
