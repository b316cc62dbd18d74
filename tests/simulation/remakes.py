"""When a topic is deleted and created again in a world: drawn from the seed, beside what the others do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from .groups.lives import Life

STEPS: Final = 16


def remakes(seed: str, busy_ms: Sequence[int], *, is_rough: bool) -> list[Life]:
    """The steps of the one that does so, and what the operator does soon after some of them."""
    rng = random.Random(f"{seed}/remakes")
    steps: list[Life] = []
    for _ in range(STEPS):
        at_ms = rng.choice(busy_ms) + int(rng.expovariate(1 / 1500))
        what = rng.choice(("fill", "remake", "remake"))
        steps.append((at_ms, "remaker 0", what, {"count": rng.choice((1, 2, 5, 12)), "share": rng.choice((0.0, 0.5, 1.0))}))
        if is_rough and rng.random() < 0.3:
            end = {"for_ms": 0, "after": rng.randrange(30), "when": "now", "again": 0}
            steps.append((at_ms + rng.choice((5, 200, 1000)), "operator", rng.choice(("kill", "power")), end))
    return steps
