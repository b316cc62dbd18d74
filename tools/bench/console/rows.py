"""Row 30: a console: how soon it shows something, what it costs the server, what it holds."""

from __future__ import annotations

import importlib.util
import time
from typing import Final

from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import LoadProcess, run_load
from ..measuring.measure import Line, RowResult, absent, at_most
from ..measuring.process import CLOCK_TICK_S, cpu_s
from ..measuring.server import Server, serving
from ..measuring.wire import FIRST_TIMESTAMP
from .pages import find_chromium, look, make_topics, open_page, walk, watch

TOPICS: Final = 1_000
BATCHES: Final = 20_000
BATCH_RECORDS: Final = 10
STEPS: Final = 400
WATCHED_S: Final = 20.0
TOPIC: Final = "walked"
NAME: Final = "a console of a server with {:,} topics"
FIRST_VIEW, DRAWN = at_most(500, "ms"), at_most(50, "ms")


def console(bench: Bench) -> RowResult:
    """Nothing is kept by the browser between the rounds. A walk is asked for as soon as the one before is answered."""
    if importlib.util.find_spec("h11") is None:
        return RowResult(30, NAME.format(TOPICS), [absent("first view", "the extra console is not installed", FIRST_VIEW)])
    topics, steps = bench.scale.count(TOPICS, least=10), bench.scale.count(STEPS, least=20)
    batches = bench.scale.count(BATCHES, least=100)
    records = batches * BATCH_RECORDS
    with bench.workspace() as directory, serving(directory) as server:
        bench.say("making topics")
        shape = {"partitions": 1, "batches": batches, "records": BATCH_RECORDS, "value_bytes": 100}
        run_load(fill, address=server.address, topic=TOPIC, config={"segment_bytes": "2000000"}, **shape)
        run_load(make_topics, address=server.address, count=topics - 1)
        bench.say("opening the page")
        opened = run_load(open_page, address=server.address, rounds=bench.scale.rounds)
        bench.say("walking")
        ends = {"first": FIRST_TIMESTAMP, "last": FIRST_TIMESTAMP + records}
        walks = [run_load(walk, address=server.address, topic=TOPIC, steps=steps, **ends) for _ in range(bench.scale.rounds)]
        bench.say("watching")
        seconds = WATCHED_S * bench.scale.share
        idle = [_share(server, seconds) for _ in range(bench.scale.rounds)]
        with LoadProcess(watch, {"address": server.address}) as watcher:
            watcher.wait_until_started()
            time.sleep(2)
            watched = [_share(server, seconds) for _ in range(bench.scale.rounds)]
            watcher.answer()
        bench.say("looking in Chromium")
        seen = _seen(bench, server, steps)
    return RowResult(
        30,
        NAME.format(topics),
        [
            *seen,
            Line("document, style and modules, over HTTP", "ms", opened["ms"], note=f"{opened['bytes'] / 1000:.0f} kB"),
            Line("a walk, over HTTP, p95", "ms", [each["p95_ms"] for each in walks]),
            Line("the console's memory", "MiB", [opened["mib"]], at_most(48, "MiB")),
            Line("the server's processor while one watches", "%", watched, at_most(2, "%")),
            Line("the same while nobody does", "%", idle),
        ],
    )


def _seen(bench: Bench, server: Server, steps: int) -> list[Line]:
    missing = "no Chromium" if find_chromium() is None else "no Playwright"
    if find_chromium() is None or importlib.util.find_spec("playwright") is None:
        return [absent("first view", missing, FIRST_VIEW), absent("time walk: drag to drawn, p95", missing, DRAWN)]
    seen = run_load(look, address=server.address, topic=TOPIC, rounds=bench.scale.rounds, steps=steps)
    return [
        Line("first view: from the URL to the topics", "ms", seen["opened_ms"], FIRST_VIEW),
        Line("time walk: drag to drawn, p50", "ms", [seen["drawn_p50_ms"]]),
        Line("time walk: drag to drawn, p95", "ms", [seen["drawn_p95_ms"]], DRAWN),
    ]


def _share(server: Server, seconds: float) -> float:
    """Percent of a core; what the kernel's clock is too coarse for counts as one tick of it."""
    before = cpu_s(server.pid)
    time.sleep(seconds)
    return 100 * max(cpu_s(server.pid) - before, CLOCK_TICK_S) / seconds
