"""Rows 24 to 26: what `triolog forward` takes, its upstream another triolog.

Server, forwarder and upstream share a machine here, which they do not where records are forwarded. Where appenders are measured
the upstream's files are in memory, and it gets the processor time that nobody else wants.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ..loads.beside import ROUNDS, Appenders, beside_lines, sync_all
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, absent, at_most
from ..measuring.server import Server, serving
from ..measuring.wire import Wire
from .end_to_end import end_to_end
from .forwarder import VALUE_BYTES, CaughtUp, backlog, caught_up_lines, fill_backlog, forwarding, missing, watch

TOPIC: Final = "readings"
MEMORY: Final = at_most(128, "MiB")

DELAY_MS: Final = 50
DELAY: Final = at_most(150, "ms")
INTERVAL_S: Final = 1.0
SINGLE_RECORDS: Final = 30

BACKLOG_RECORDS: Final = 10_000_000
KEPT_BYTES: Final = 1_000_000_000
"""Of the copy: all of it is not needed."""
SEGMENT_BYTES: Final = 100_000_000

BESIDE_RECORDS: Final = 300_000
BESIDE: Final = at_most(1.2, "x")
MEMORY_FOLDER: Final = "/dev/shm"
ELSEWHERE: Final = f"its files are in {MEMORY_FOLDER}, and it has the processor time that nobody else wants (SCHED_IDLE)"


def forward_delay(bench: Bench) -> RowResult:
    """Record by record, with an idle link."""
    if why := missing():
        return RowResult(24, "forward, one record a second", [absent("append to reader upstream", why, DELAY)])
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(_folder(directory, "source")))
        upstream = stack.enter_context(serving(_folder(directory, "upstream"), kafka=True))
        answer = measure_delay(bench, directory, server, upstream.kafka)
    return RowResult(24, "forward, one record a second", delay_lines("triolog", [answer]))


def measure_delay(bench: Bench, directory: str, server: Server, to: str) -> dict[str, float]:
    """p50 and the slowest in ms."""
    topic = f"delayed-{to.rpartition(':')[2]}"
    with Wire(server.address) as wire:
        wire.create_topic(topic, retention_ms="-1")
    options = ("--max-delay-ms", str(DELAY_MS))
    with forwarding(directory, server.address, to, topic=topic, target=topic, options=options):
        answer: dict[str, float] = run_load(
            end_to_end,
            address=server.address,
            to=to,
            topic=topic,
            target=topic,
            records=bench.scale.count(SINGLE_RECORDS, least=2),
            interval_s=bench.scale.seconds(INTERVAL_S),
        )
        return answer


def delay_lines(who: str, answers: list[dict[str, float]]) -> list[Line]:
    what = f"append to reader upstream, {who}"
    return [
        Line(f"{what}, p50", "ms", [each["p50_ms"] for each in answers], DELAY, f"max_delay_ms = {DELAY_MS}"),
        Line(f"{what}, slowest", "ms", [each["max_ms"] for each in answers]),
    ]


def forward_backlog(bench: Bench) -> RowResult:
    """A large one, once; the copy upstream keeps its last GB only."""
    records = backlog(bench.scale, BACKLOG_RECORDS)
    title = f"forward a backlog of {records * VALUE_BYTES / 1e9:g} GB, records of 1 KB"
    if why := missing():
        return RowResult(25, title, [absent("peak of resident memory", why, MEMORY)])
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(_folder(directory, "source")))
        settings = {"retention_check_interval_ms": 1_000}
        upstream = stack.enter_context(serving(_folder(directory, "upstream"), settings=settings, kafka=True))
        with Wire(upstream.address) as wire:
            wire.create_topic(TOPIC, retention_ms="-1", retention_bytes=str(KEPT_BYTES), segment_bytes=str(SEGMENT_BYTES))
        bench.say("filling the source")
        fill_backlog(server, TOPIC, records)
        bench.say("forwarding")
        done = _forwarded(directory, server, upstream.kafka, TOPIC, records)
    return RowResult(25, title, caught_up_lines("exactly once", [done], (None, None, MEMORY)))


def appends_beside_forward(bench: Bench) -> RowResult:
    """`fsync`; appenders at a fixed rate to a topic of their own, a link that catches up at full rate beside them."""
    bench = bench.with_rounds(ROUNDS)
    records = backlog(bench.scale, BESIDE_RECORDS)
    title = f"appenders' p99 while a link catches up {records * VALUE_BYTES / 1e6:,.0f} MB"
    if why := missing():
        return RowResult(26, title, [absent("during forwarding / alone", why, BESIDE)])
    done: list[CaughtUp] = []
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(_folder(directory, "source"), durability="fsync"))
        to = stack.enter_context(_elsewhere(directory)).kafka
        appenders = Appenders(bench, server)
        appenders.create_topic()
        bench.say("filling the source")
        fill_backlog(server, TOPIC, records, {"durability": "os"})
        sync_all()

        def catch_up() -> None:
            done.append(_forwarded(directory, server, to, f"copy-{len(done)}", records, is_child=True))

        samples = bench.interleave({"alone": appenders.alone, "beside": lambda: appenders.during(catch_up)})
    lines = beside_lines("forwarding", samples["beside"], samples["alone"], BESIDE)
    lines.append(Line("rate of the link meanwhile", "MB/s", [each.mb_s for each in done[1:]]))
    notes = [
        "the forwarder runs as a server's child does, at a low priority; the upstream stands for another machine: " + ELSEWHERE
    ]
    return RowResult(26, title, lines, notes)


def _forwarded(directory: str, server: Server, to: str, target: str, records: int, *, is_child: bool = False) -> CaughtUp:
    with forwarding(directory, server.address, to, topic=TOPIC, target=target, is_child=is_child) as process:
        return watch(process, to, target, records)


@contextmanager
def _elsewhere(directory: str) -> Iterator[Server]:
    """An upstream that takes neither the device nor processor time from those who are measured."""
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else directory
    with tempfile.TemporaryDirectory(prefix="triolog-bench-", dir=parent) as folder, serving(folder, kafka=True) as upstream:
        for thread in Path(f"/proc/{upstream.pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
        yield upstream


def _folder(directory: str, name: str) -> str:
    path = Path(directory, name)
    path.mkdir()
    return str(path)
