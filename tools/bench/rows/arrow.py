"""Row 27: a topic of 1 KB records as Arrow batches, from its files and from a server, in a process of its own."""

from __future__ import annotations

import importlib.util
import resource
import time
from typing import Any, Final

from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, absent, at_least, at_most
from ..measuring.server import serving

RECORD_BYTES: Final = 1000
BATCH_RECORDS: Final = 100
BATCHES: Final = 10_000
NAME: Final = "Arrow read of a topic, records of 1 KB"
FILES: Final = at_least(800, "MB/s")
SERVER: Final = at_least(400, "MB/s")
MEMORY: Final = at_most(200, "MiB")


def arrow_read(bench: Bench) -> RowResult:
    """MB of values by second of the reader's own processor time, the second time that it reads; the server's is not in it."""
    if importlib.util.find_spec("pyarrow") is None or importlib.util.find_spec("numpy") is None:
        return RowResult(27, NAME, [absent("from files", "the extra arrow is not installed", FILES)])
    batches = bench.scale.count(BATCHES, least=100)
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("filling the log")
            run_load(
                fill,
                address=server.address,
                topic="a",
                partitions=1,
                batches=batches,
                records=BATCH_RECORDS,
                value_bytes=RECORD_BYTES,
            )
            host, port = server.address
            samples = bench.interleave(
                {
                    "files": lambda: run_load(read_topic, source=str(server.data)),
                    "server": lambda: run_load(read_topic, source=f"{host}:{port}"),
                }
            )
    return RowResult(
        27,
        NAME,
        [
            Line("from files, one core", "MB/s", [each["mb_per_s"] for each in samples["files"]], FILES),
            Line("from a server, the reader's core", "MB/s", [each["mb_per_s"] for each in samples["server"]], SERVER),
            Line("most memory of either", "MiB", [each["mib"] for pair in samples.values() for each in pair], MEMORY),
        ],
    )


def read_topic(*, source: str) -> dict[str, Any]:
    """All columns of the topic, twice; the second time counts."""
    from ...arrow import read

    used_s, rows = 0.0, 0
    for _ in range(2):
        begin, rows = time.process_time(), 0
        for batch in read(source, "a"):
            rows += batch.num_rows
        used_s = time.process_time() - begin
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"mb_per_s": rows * RECORD_BYTES / 1e6 / used_s, "mib": mib}
