"""How often a suite with SIGKILL runs, and the choices of each run.

`TRIOLOG_TEST_SIGKILL_RUNS=5000` runs that many, `TRIOLOG_TEST_SIGKILL_SEED=...` repeats one: its choices, not the moment of the
kill.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SEED: Final = os.environ.get("TRIOLOG_TEST_SIGKILL_SEED")


def runs(usual: int) -> range:
    """Return the numbers of the runs: `usual` of them where the environment does not say."""
    return range(1 if SEED else int(os.environ.get("TRIOLOG_TEST_SIGKILL_RUNS") or usual))


@contextmanager
def choices(run: int) -> Iterator[random.Random]:
    """Give a run its generator. What the block raises names the seed that repeats it."""
    seed = int(SEED) if SEED else random.getrandbits(48) * 100_000 + run
    try:
        yield random.Random(seed)
    except BaseException as exc:
        exc.add_note(f"TRIOLOG_TEST_SIGKILL_SEED={seed} repeats this run's choices")
        raise
