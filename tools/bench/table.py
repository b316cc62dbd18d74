"""The rows of the table, in its order, by the names that `--only` takes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from .console.rows import console
from .counting.row import request_counts
from .forwarding.interference import appends_beside_forward
from .forwarding.rows import forward_backlog, forward_delay
from .measuring.bench import Bench
from .measuring.child import LoadFailedError
from .measuring.measure import RowResult
from .rows.arrow import arrow_read, sql_aggregate
from .rows.codec import kafka_codec
from .rows.compaction import appends_beside_compaction, compaction
from .rows.device.flash import flash_budget
from .rows.device.per_record import bytes_per_record
from .rows.embedded import embedded_start, in_process, server_start
from .rows.fetch import fetch_throughput
from .rows.interference import appends_beside_lookups
from .rows.large_start import large_start
from .rows.lookups import offset_lookup, time_range, times_lookup
from .rows.many_partitions import many_partitions
from .rows.memory import idle_connections, idle_memory
from .rows.produce import large_batches, synced_appends
from .rows.recovery import crash_recovery
from .rows.retention import appends_beside_retention
from .rows.tools import looking_inside
from .rows.transactions import exactly_once
from .running import Benchmark

ROWS: Final[Mapping[str, Callable[[Bench], RowResult]]] = {
    "embedded-start": embedded_start,
    "server-start": server_start,
    "memory": idle_memory,
    "produce": large_batches,
    "synced-appends": synced_appends,
    "fetch": fetch_throughput,
    "offset-lookup": offset_lookup,
    "times-lookup": times_lookup,
    "interference": appends_beside_lookups,
    "looking-inside": looking_inside,
    "large-start": large_start,
    "recovery": crash_recovery,
    "compaction": compaction,
    "compaction-interference": appends_beside_compaction,
    "retention-interference": appends_beside_retention,
    "device-bytes": bytes_per_record,
    "exactly-once": exactly_once,
    "kafka-codec": kafka_codec,
    "many-partitions": many_partitions,
    "idle-connections": idle_connections,
    "in-process": in_process,
    "request-counts": request_counts,
    "flash": flash_budget,
    "forward-delay": forward_delay,
    "forward-backlog": forward_backlog,
    "forward-interference": appends_beside_forward,
    "time-range": time_range,
    "arrow-read": arrow_read,
    "sql-aggregate": sql_aggregate,
    "console": console,
}


def resolve(name: str) -> str:
    """A row by its name or its number in the table. Raises ValueError."""
    names = list(ROWS)
    if name.isdigit() and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    if name in ROWS:
        return name
    known = ", ".join(f"{number} {each}" for number, each in enumerate(ROWS, 1))
    raise ValueError(f"no row is called {name!r}; there are {known}")


BENCHMARK: Final = Benchmark(
    rows=ROWS,
    row_failures=(LoadFailedError, OSError, subprocess.SubprocessError),
    open_place=contextlib.nullcontext,  # each row works in the run's own directory
)
