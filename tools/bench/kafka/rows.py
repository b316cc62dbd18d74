"""The rows of the benchmark against Apache Kafka, in its order, by the names that `--only` takes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from ..child import LoadFailedError
from ..measure import RowResult
from ..peer import PeerMissingError
from .brokers import Brokers
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


def measure(name: str, brokers: Brokers) -> RowResult:
    """One row. What keeps it from its end stands in its `failure`, and the other rows go on."""
    try:
        return ROWS[name](brokers)
    except (LoadFailedError, PeerMissingError, OSError, subprocess.SubprocessError) as exc:
        return RowResult(list(ROWS).index(name) + 1, name, (), failure=f"{type(exc).__name__}: {exc}")
