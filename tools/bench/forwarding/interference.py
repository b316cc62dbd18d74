"""Row 26: what appenders notice of a link that catches up.

Server, appenders, forwarder and upstream share a machine here. The upstream stands for another one: its files are in memory,
and it has the processor time that nobody else wants. That cores are busy at all is shown by loops that only compute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from ....server.storage.child_process import NICENESS
from ..loads.beside import ROUNDS, SECONDS, Appenders, beside_lines, sync_all
from ..measuring.bench import Bench
from ..measuring.measure import Line, RowResult, absent, at_most, ratio
from ..measuring.server import Server, serving
from .forwarder import VALUE_BYTES, CaughtUp, backlog, fill_backlog, folder, forwarding, missing, watch

TOPIC: Final = "readings"
RECORDS: Final = 300_000
TARGET: Final = at_most(1.2, "x")
MEMORY_FOLDER: Final = "/dev/shm"
UNWANTED: Final = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
LOOPS: Final = (f"os.nice({NICENESS})", UNWANTED)
"""Priorities of the forwarder and of the upstream, as statements."""
NOTES: Final = (
    "server, appenders, forwarder and upstream on one machine; the forwarder at a low priority, as a server's child; the "
    f"upstream with its files in {MEMORY_FOLDER} and the processor time that nobody else wants (SCHED_IDLE)",
    "loops: two processes that compute at the priorities of forwarder and upstream, and nothing is forwarded",
)


@attrs.define(eq=False, repr=False)
class _Link:
    """Forwards the same backlog again and again, each time to another topic."""

    directory: str
    server: Server
    to: str
    records: int
    done: list[CaughtUp] = attrs.field(factory=list)

    def catch_up(self) -> None:
        target = f"copy-{len(self.done)}"
        with forwarding(self.directory, self.server.address, self.to, topic=TOPIC, target=target, is_child=True) as process:
            self.done.append(watch(process, self.to, target, self.records))


def appends_beside_forward(bench: Bench) -> RowResult:
    """`fsync`; appenders at a fixed rate to a topic of their own, a link that catches up at full rate beside them."""
    bench = bench.with_rounds(ROUNDS)
    records = backlog(bench.scale, RECORDS)
    title = f"appenders' p99 while a link catches up {records * VALUE_BYTES / 1e6:,.0f} MB"
    if why := missing():
        return RowResult(26, title, [absent("during forwarding / alone", why, TARGET)])
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(folder(directory, "source"), durability="fsync"))
        link = _Link(directory, server, stack.enter_context(_elsewhere(directory)).kafka, records)
        appenders = Appenders(bench, server)
        appenders.create_topic()
        bench.say("filling the source")
        fill_backlog(server, TOPIC, records, {"durability": "os"})
        sync_all()
        measures: dict[str, Callable[[], float]] = {
            "alone": appenders.alone,
            "loops": partial(appenders.during, partial(_compute, bench.scale.seconds(SECONDS))),
            "beside": partial(appenders.during, link.catch_up),
        }
        samples = bench.interleave(measures)
    lines = beside_lines("forwarding", samples["beside"], samples["alone"], TARGET)
    lines += [
        Line("appenders' p99 beside loops", "ms", samples["loops"]),
        ratio("beside loops / alone", samples["loops"], samples["alone"]),
        ratio("during forwarding / beside loops", samples["beside"], samples["loops"]),
        Line("rate of the link meanwhile", "MB/s", [each.mb_s for each in link.done[1:]]),
    ]
    return RowResult(26, title, lines, NOTES)


@contextmanager
def _elsewhere(directory: str) -> Iterator[Server]:
    """An upstream that takes neither the device nor processor time from those who are measured."""
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else directory
    with tempfile.TemporaryDirectory(prefix="triolog-bench-", dir=parent) as path, serving(path, kafka=True) as upstream:
        for thread in Path(f"/proc/{upstream.pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
        yield upstream


def _compute(seconds: float) -> None:
    """Keep cores busy for so long."""
    loops = [subprocess.Popen([sys.executable, "-c", f"import os\n{priority}\nwhile True: pass"]) for priority in LOOPS]
    try:
        time.sleep(seconds)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
