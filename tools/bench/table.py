"""The rows of the table, in its order, by the names that `--only` takes; docs/benchmarks/index.md says what each decides."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from ..demo.processes import ProcessFailedError
from .measuring.bench import Bench
from .measuring.child import LoadFailedError
from .measuring.report import RowResult
from .rows.compaction import appends_beside_compaction, compaction
from .rows.embedded import embedded_start, in_process
from .rows.flash import flash_budget
from .rows.http import http_lines
from .rows.ingest import mqtt_ingest
from .rows.mirror import mirror_lag
from .rows.server import crash_recovery, idle_memory, request_counts, synced_appends
from .running import Benchmark

ROWS: Final[Mapping[str, Callable[[Bench], RowResult]]] = {
    "request-counts": request_counts,
    "memory": idle_memory,
    "synced-appends": synced_appends,
    "recovery": crash_recovery,
    "compaction": compaction,
    "compaction-interference": appends_beside_compaction,
    "flash": flash_budget,
    "mqtt": mqtt_ingest,
    "http": http_lines,
    "mirror": mirror_lag,
    "embedded-start": embedded_start,
    "in-process": in_process,
}

BENCHMARK: Final = Benchmark(
    rows=ROWS,
    row_failures=(LoadFailedError, ProcessFailedError, OSError, subprocess.SubprocessError),
    open_place=contextlib.nullcontext,  # each row works in the run's own directory
)
