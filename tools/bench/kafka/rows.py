"""The rows of the benchmark against Apache Kafka, in its order, by the names that `--only` takes."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from ...demo.processes import ProcessFailedError
from ..measuring.child import LoadFailedError
from ..measuring.report import RowResult
from ..running import Benchmark
from .broker_rows import consume, join, many_connections, memory, one_connection, produce_large, produce_small, synced, times
from .brokers import Brokers, open_brokers
from .fixture_row import fixture
from .forward_rows import forward, forward_delay
from .growth_rows import GROWTH
from .jars import PeerMissingError

ROWS: Final[Mapping[str, Callable[[Brokers], RowResult]]] = {
    "produce-1k": produce_large,
    "produce-100": produce_small,
    "memory": memory,
    "consume": consume,
    "one-connection": one_connection,
    "many-connections": many_connections,
    "synced": synced,
    "times": times,
    "join": join,
    "fixture": fixture,
    "forward": forward,
    "forward-delay": forward_delay,
    **GROWTH,
}

ROW_FAILURES: Final = (LoadFailedError, ProcessFailedError, PeerMissingError, OSError, subprocess.SubprocessError)


UNWARMED: Final = frozenset({"fixture", "forward", "forward-delay", *GROWTH})
"""Rows that ask none of the brokers, or brokers of their own, or whose first round, which does not count, warms enough."""
WARM_S: Final = 60.0


def benchmark(*, starts: int | None = None, quick_compiler: bool = False, is_warm: bool = True) -> Benchmark[Brokers]:
    """All rows; `starts` and `quick_compiler` as `open_brokers` takes them. `is_warm`: nothing counts before every broker has
    had every load twice."""
    return Benchmark(
        rows=ROWS,
        row_failures=ROW_FAILURES,
        open_place=partial(open_brokers, starts=starts, quick_compiler=quick_compiler),
        place_failures=(PeerMissingError,),
        versions_of=lambda brokers: brokers.versions,
        warm_up=warm_up if is_warm else say_cold,
    )


def warm_up(brokers: Brokers, chosen: Sequence[str], *, least_s: float = WARM_S) -> None:
    """Put every broker under the loads of the chosen rows twice, and again if that did not take `least_s`: a JVM that is half a
    minute old is 1.3 to 2 times slower than it will be. No figure counts, and what fails will fail again where it does."""
    loads = [row for row in chosen if row not in UNWARMED]
    if not loads:
        return
    began = time.monotonic()
    passes = 0
    while not passes or time.monotonic() - began < least_s:
        passes += 1
        for row in loads:
            say = partial(_say_warming, brokers.bench.say, row)
            # a row takes one sample that is not counted, and one for each round
            once = attrs.evolve(brokers.bench, scale=attrs.evolve(brokers.bench.scale, rounds=1), say=say)
            with contextlib.suppress(*ROW_FAILURES):
                ROWS[row](attrs.evolve(brokers, bench=once))
    taken_s = time.monotonic() - began
    brokers.versions.append(
        f"warm: before anything counted, every broker had had every load that is measured {2 * passes} times, {taken_s:.0f} s"
    )


def say_cold(brokers: Brokers, chosen: Sequence[str]) -> None:
    """Note in the report that no broker was warm."""
    brokers.versions.append("cold: no broker was warmed, no figure can be compared")


def _say_warming(say: Callable[[str], None], row: str, text: str) -> None:
    say(f"warming, {row}: {text}")
