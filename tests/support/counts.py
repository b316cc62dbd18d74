"""How much the suite does: `TRIOLOG_TEST` chooses between the full counts and, by default, a tenth of them."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "TRIOLOG_TEST"
QUICK: Final = "quick"
FULL: Final = "full"


def mode() -> str:
    """`quick` when nothing is said. Anything but the two names is refused: a typo must not pass as a full run."""
    chosen = os.environ.get(VARIABLE) or QUICK
    if chosen not in (QUICK, FULL):
        raise ValueError(f"{VARIABLE}={chosen!r}: say {QUICK!r} or {FULL!r}, or leave it unset for {QUICK!r}")
    return chosen


def counts(full: int) -> int:
    """`full` in the full suite, a tenth of it (at least 1) in the quick one."""
    return full if mode() == FULL else max(1, full // 10)
