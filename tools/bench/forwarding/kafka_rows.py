"""Rows 16 and 17 of the benchmark beside Kafka: `triolog forward` to Apache Kafka, and MirrorMaker 2 doing the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from ..kafka.brokers import KAFKA, TRIOLOG, Broker, Brokers
from ..kafka.jars import MIRROR_MAKER, kafka_jars
from ..measuring.measure import Line, RowResult, absent, at_least, at_most, ratio
from ..measuring.server import Server, serving
from ..peers.peer import PeerMissingError
from .forwarder import BATCH_RECORDS, VALUE_BYTES, CaughtUp, backlog, caught_up_lines, fill_backlog, forwarding, missing, watch
from .mirror_maker import FLAGS, copied_name, mirroring
from .rows import DELAY, MEMORY, delay_lines, measure_delay

TOPIC: Final = "readings"
RECORDS: Final = 1_000_000
ROUNDS: Final = 3
RATE: Final = at_least(40, "MB/s")
PROCESSOR: Final = at_most(15, "s/GB")
MIRROR: Final = "MirrorMaker 2"
OVER_MIRROR: Final = at_least(1, "x")
MEMORY_OVER_MIRROR: Final = at_least(5, "x")
"""MirrorMaker's over ours."""
UPSTREAMS: Final = (TRIOLOG, KAFKA)


def forward(brokers: Brokers) -> RowResult:
    """A backlog of one partition to triolog and to Kafka, exactly once; MirrorMaker to Kafka, at least once."""
    bench = brokers.bench.with_rounds(ROUNDS)
    records = backlog(bench.scale, RECORDS)
    title = f"forward a backlog of {records * VALUE_BYTES / 1e6:,.0f} MB, records of 1 KB"
    if why := missing():
        return RowResult(16, title, [absent("rate, to Kafka", why, RATE)])
    numbers = itertools.count()
    lacks = brokers.missing.get(KAFKA, "")
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(directory, kafka=True))
        bench.say("filling the source")
        fill_backlog(server, TOPIC, records)
        measures: dict[str, Callable[[], CaughtUp]] = {
            name: partial(_forwarded, brokers, directory, server, brokers.running[name], numbers, records)
            for name in UPSTREAMS
            if name in brokers.running
        }
        if KAFKA in measures:
            try:
                kafka_jars(pom=MIRROR_MAKER)
                measures[MIRROR] = partial(_mirrored, brokers, directory, server, brokers.running[KAFKA], numbers, records)
            except PeerMissingError as exc:
                lacks = str(exc)
        samples = bench.interleave(measures)
    notes = [
        f"one partition, batches of {BATCH_RECORDS} in the source, not compressed, all processes on this machine",
        "rate: from when a third could be read with read_committed until all could; processor and memory: of the whole process",
        f"forward: exactly once; {MIRROR}: at least once, its default, a new JVM each time, {' '.join(FLAGS[:2])}",
    ]
    return RowResult(16, title, _lines(samples, lacks), notes)


def forward_delay(brokers: Brokers) -> RowResult:
    """Record by record, with an idle link."""
    title = "forward, one record a second"
    if why := missing():
        return RowResult(17, title, [absent("append to reader upstream", why, DELAY)])
    with brokers.bench.workspace() as directory, serving(directory) as server:
        lines = []
        for name in UPSTREAMS:
            if name in brokers.running:
                brokers.bench.say(f"to {name}")
                lines += delay_lines(
                    f"to {name}", [measure_delay(brokers.bench, directory, server, brokers.running[name].address)]
                )
            else:
                lines.append(absent(f"append to reader upstream, to {name}", brokers.missing[name], DELAY))
    return RowResult(17, title, lines)


def _forwarded(
    brokers: Brokers, directory: str, server: Server, upstream: Broker, numbers: Iterator[int], records: int
) -> CaughtUp:
    target = f"forwarded-{next(numbers)}"
    with forwarding(directory, server.address, upstream.address, topic=TOPIC, target=target) as process:
        done = watch(process, upstream.address, target, records)
    brokers.run(upstream, "delete", target)
    return done


def _mirrored(
    brokers: Brokers, directory: str, server: Server, upstream: Broker, numbers: Iterator[int], records: int
) -> CaughtUp:
    alias = f"mirrored{next(numbers)}"
    with mirroring(directory, server.kafka, upstream.address, topic=TOPIC, alias=alias) as process:
        done = watch(process, upstream.address, copied_name(TOPIC, alias), records)
    brokers.run(upstream, "delete", copied_name(TOPIC, alias))
    return done


def _lines(samples: Mapping[str, Sequence[CaughtUp]], lacks: str) -> list[Line]:
    lines = caught_up_lines(f"to {TRIOLOG}", samples[TRIOLOG], (None, None, None))
    ours = samples.get(KAFKA)
    if ours is None:
        return [*lines, absent(f"rate, to {KAFKA}", lacks, RATE)]
    lines += caught_up_lines(f"to {KAFKA}", ours, (RATE, PROCESSOR, MEMORY))
    theirs = samples.get(MIRROR)
    rates, peaks = f"rate, to {KAFKA} / {MIRROR}", f"peak of resident memory, {MIRROR} / ours"
    if theirs is None:
        return [*lines, absent(rates, lacks, OVER_MIRROR), absent(peaks, lacks, MEMORY_OVER_MIRROR)]
    return [
        *lines,
        *caught_up_lines(f"{MIRROR} to {KAFKA}", theirs, (None, None, None)),
        ratio(rates, [each.mb_s for each in ours], [each.mb_s for each in theirs], OVER_MIRROR),
        ratio(peaks, [each.peak_mib for each in theirs], [each.peak_mib for each in ours], MEMORY_OVER_MIRROR),
    ]
