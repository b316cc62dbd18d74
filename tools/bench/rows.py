"""The rows of the table, in its order, by the names that `--only` takes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from .bench import Bench
from .child import LoadFailedError
from .codec_row import kafka_codec
from .compaction_rows import appends_beside_compaction, compaction
from .device_row import bytes_per_record
from .fetch_row import fetch_throughput
from .interference_row import appends_beside_lookups
from .large_start_row import large_start
from .lookup_rows import offset_lookup, times_lookup
from .measure import RowResult
from .memory_row import idle_memory
from .produce_rows import large_batches, synced_appends
from .recovery_row import crash_recovery
from .retention_row import appends_beside_retention
from .start_rows import embedded_start, server_start
from .tool_rows import looking_inside
from .transaction_row import exactly_once

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


def measure(name: str, bench: Bench) -> RowResult:
    """One row. What keeps it from its end stands in its `failure`, and the other rows go on."""
    try:
        return ROWS[name](bench)
    except (LoadFailedError, OSError, subprocess.SubprocessError) as exc:
        return RowResult(list(ROWS).index(name) + 1, name, (), failure=f"{type(exc).__name__}: {exc}")
