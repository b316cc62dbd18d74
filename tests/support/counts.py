"""How much the suite does: `TRIOLOG_TEST` chooses between the full counts and, by default, a tenth of them.

What hypothesis draws is the same on every run, so that a change is judged by what it changed; `TRIOLOG_TEST_DRAWS=random`
searches for examples that nobody has seen yet.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "TRIOLOG_TEST"
QUICK: Final = "quick"
FULL: Final = "full"

DRAWS_VARIABLE: Final = "TRIOLOG_TEST_DRAWS"
FIXED_DRAWS: Final = "fixed"
RANDOM_DRAWS: Final = "random"


def mode() -> str:
    """`quick` when nothing is said. Anything but the two names is refused: a typo must not pass as a full run."""
    return _chosen(VARIABLE, QUICK, FULL)


def draws_at_random() -> bool:
    """Whether hypothesis draws new examples on every run."""
    return _chosen(DRAWS_VARIABLE, FIXED_DRAWS, RANDOM_DRAWS) == RANDOM_DRAWS


def _chosen(variable: str, default: str, other: str) -> str:
    chosen = os.environ.get(variable) or default
    if chosen not in (default, other):
        raise ValueError(f"{variable}={chosen!r}: say {default!r} or {other!r}, or leave it unset for {default!r}")
    return chosen


def counts(full: int, *, quick: int | None = None) -> int:
    """`full` in the full suite; in the quick one `quick`, or else a tenth (at least 1)."""
    if mode() == FULL:
        return full
    return max(1, full // 10) if quick is None else quick
