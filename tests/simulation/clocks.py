"""Worlds whose machine has no clock that runs while it is off: it starts in 1970, and its time service answers some time later.

The server checks the clock there (`server.system.clock`). Programs on the machine stamp their records with the clock as it is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from triolog.server.logs.undated_records import EARLIEST_MS
from triolog.server.system.clock import MAX_STEP_MS

from .groups.lives import Life

IN_1970_MS: Final = 600_000
TRUE_MS: Final = EARLIEST_MS + 100 * 86_400_000
"""The true time when the world begins."""
WRONG_MS: Final = TRUE_MS + 30 * 60_000
CLOCKS: Final = {"1970": IN_1970_MS, "true": TRUE_MS, "ahead": WRONG_MS}
"""What the clock shows when the world begins, or would have shown then."""
HOLD_S: Final = 30.0
"""In place of an hour, for which a clock that has jumped ahead is not trusted."""
LONGEST_STEP_MS: Final = MAX_STEP_MS
"""A larger step is a jump, by which no record becomes older."""
IN_ONE_OF: Final = 5


def starts_in_1970(seed: str) -> bool:
    return random.Random(f"{seed}/clock").randrange(IN_ONE_OF) == 0


def clock_steps(seed: str, busy_ms: Sequence[int]) -> list[Life]:
    """The clock becomes right between two busy times. In some worlds it is wrong again for a while."""
    rng = random.Random(f"{seed}/clock steps")
    at_ms = rng.choice(busy_ms[1:-2]) + rng.randrange(3000)
    steps: list[Life] = [(at_ms, "operator", "set_clock", {"to": "true"})]
    if (wrong := rng.choice(("", "1970", "ahead"))) != "":
        for to in (wrong, "true"):
            at_ms += rng.choice((2000, 20_000, 60_000))
            steps.append((at_ms, "operator", "set_clock", {"to": to}))
    return steps
