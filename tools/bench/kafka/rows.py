"""The rows of the benchmark against Apache Kafka, in its order, by the names that `--only` takes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ..measuring.child import LoadFailedError
from ..measuring.measure import RowResult
from ..peers.peer import PeerMissingError
from ..running import Benchmark
from .brokers import Brokers, open_brokers
from .fixture_row import fixture
from .latency_rows import many_connections, one_connection, synced
from .lookup_rows import join, times
from .throughput_rows import consume, memory, produce_large, produce_small

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
}

ROW_FAILURES: Final = (LoadFailedError, PeerMissingError, OSError, subprocess.SubprocessError)


def benchmark(*, starts: int | None = None, quick_compiler: bool = False) -> Benchmark[Brokers]:
    """All rows; `starts` and `quick_compiler` as `open_brokers` takes them."""
    return Benchmark(
        rows=ROWS,
        row_failures=ROW_FAILURES,
        open_place=partial(open_brokers, starts=starts, quick_compiler=quick_compiler),
        place_failures=(PeerMissingError,),
        versions_of=lambda brokers: brokers.versions,
    )
