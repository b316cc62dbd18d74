"""Rows 24 and 25: what `triolog forward` takes, its upstream another triolog on the same machine."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, absent, at_most
from ..measuring.server import Server, serving
from ..measuring.wire import Wire
from .end_to_end import end_to_end
from .forwarder import VALUE_BYTES, backlog, caught_up_lines, fill_backlog, folder, forwarding, missing, watch

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


def forward_delay(bench: Bench) -> RowResult:
    """Record by record, with an idle link."""
    if why := missing():
        return RowResult(24, "forward, one record a second", [absent("append to reader upstream", why, DELAY)])
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(folder(directory, "source")))
        upstream = stack.enter_context(serving(folder(directory, "upstream"), kafka=True))
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
        server = stack.enter_context(serving(folder(directory, "source")))
        settings = {"retention_check_interval_ms": 1_000}
        upstream = stack.enter_context(serving(folder(directory, "upstream"), settings=settings, kafka=True))
        with Wire(upstream.address) as wire:
            wire.create_topic(TOPIC, retention_ms="-1", retention_bytes=str(KEPT_BYTES), segment_bytes=str(SEGMENT_BYTES))
        bench.say("filling the source")
        fill_backlog(server, TOPIC, records)
        bench.say("forwarding")
        with forwarding(directory, server.address, upstream.kafka, topic=TOPIC, target=TOPIC) as process:
            done = watch(process, upstream.kafka, TOPIC, records)
    return RowResult(25, title, caught_up_lines("exactly once", [done], (None, None, MEMORY)))
