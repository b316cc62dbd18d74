"""How much a run of the suite does: `TRIOLOG_TEST` names its tier, `TRIOLOG_TEST_SEED` seeds the draws of the long tier.

The commit and the merge tier draw the same examples on every run, so that a red run is about the change. The long tier draws
other examples each time and prints the seed that repeats them.
"""

from __future__ import annotations

import os
import random
from typing import Final, TypeVar

VARIABLE: Final = "TRIOLOG_TEST"
COMMIT: Final = "commit"
MERGE: Final = "merge"
LONG: Final = "long"
TIERS: Final = (COMMIT, MERGE, LONG)
"""Each tier runs what the one before it runs, more often, and the tests that are marked with its name."""

SEED_VARIABLE: Final = "TRIOLOG_TEST_SEED"
SEEDS: Final = 2**32

T = TypeVar("T")


def tier() -> str:
    """Return the tier of this run, `commit` by default.

    Raises ValueError for any other name: a misspelt long run must not pass as a short one.
    """
    chosen = os.environ.get(VARIABLE) or COMMIT
    if chosen not in TIERS:
        raise ValueError(f"{VARIABLE}={chosen!r}: use {', '.join(TIERS)}, or leave it unset for {COMMIT!r}")
    return chosen


def is_at_least(other: str) -> bool:
    """Whether this run includes the tier `other`."""
    return TIERS.index(tier()) >= TIERS.index(other)


def by_tier(*, commit: T, merge: T, long: T) -> T:
    """Return the value for the tier of this run."""
    return {COMMIT: commit, MERGE: merge, LONG: long}[tier()]


def counts(long: int, *, merge: int | None = None, commit: int | None = None) -> int:
    """Return how often a test repeats.

    `long` times in the long tier. In the others as often as given, by default a sixth in merge and a thirtieth in commit.
    """
    return by_tier(
        commit=max(1, long // 30) if commit is None else commit,
        merge=max(1, -(-long // 6)) if merge is None else merge,
        long=long,
    )


def drawn_seed() -> int:
    """Return a new seed for a run of the long tier."""
    return random.SystemRandom().randrange(1, SEEDS)


def session_seed() -> int:
    """Return the seed of every random draw in this run: 0, or in the long tier TRIOLOG_TEST_SEED.

    The first call in a long run without the variable draws a seed and sets the variable, so that worker processes share it.
    """
    if not is_at_least(LONG):
        return 0
    chosen = os.environ.setdefault(SEED_VARIABLE, str(drawn_seed()))
    if not chosen.isdecimal() or int(chosen) >= SEEDS:
        raise ValueError(f"{SEED_VARIABLE}={chosen!r}: use a whole number below {SEEDS}")
    return int(chosen)


def seeds(long: int, *, merge: int | None = None, commit: int | None = None, first: int = 0) -> range:
    """Return as many seeds as `counts` says: those from `first` on, or in the long tier those after the seed of the session."""
    start = first + session_seed()
    return range(start, start + counts(long, merge=merge, commit=commit))


def draws(seed: int | str = 0) -> random.Random:
    """Return a generator for a test that passes its own `seed`: always the same, or in the long tier one of this session."""
    return random.Random(f"{drawn}/{seed}" if (drawn := session_seed()) else seed)
