"""Rows that show how costs grow: a broker of the row's own gets more of one thing, step by step, and the same figures are taken
at each step. triolog comes first, then Kafka. The curves become a picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from ..measuring.curves import Curve
from ..measuring.report import Line, RowResult, Target, absent, at_most
from ..measuring.server import serving, shared_out_mib
from .brokers import KAFKA, TRIOLOG, Broker, Brokers, KafkaServer

Figures = Mapping[str, float]
"""By what they measure, as in `Growth.units`."""

TOPIC_PARTITIONS: Final = 50
CONSUMED: Final = 100_000
CONSUMED_BYTES: Final = 1_000
SEGMENT_STEP_MS: Final = 10
SINGLE_S: Final = 2.0
SETTINGS: Final = {"group_initial_rebalance_delay_ms": 0, "max_connections": 12_000, "max_groups": 40_000}
"""One connection may have half of all groups."""

START: Final = "start to the first answers"
STOP: Final = "stop"
MEMORY: Final = "PSS"
PRODUCE: Final = "produce, one connection, p50"
UNITS: Final = {
    START: "s",
    STOP: "s",
    MEMORY: "MiB",
    PRODUCE: "ms",
    "lookup by time, p50": "ms",
    "fetch at an offset, p50": "ms",
    "ListGroups, p50": "ms",
    "heartbeat, p50": "ms",
    "InitProducerId, p50": "ms",
    "ListTransactions, p50": "ms",
    "values to all consumers": "MB/s",
}


@attrs.define(eq=False, repr=False)
class Grown:
    """A broker that grows, and can be started again on its files."""

    brokers: Brokers
    broker: Broker
    start: Callable[[], Broker]
    stop: Callable[[], object]

    def run(self, load: str, topic: str = "bench", **flags: object) -> Figures:
        """Run one load; return its figures."""
        return self.brokers.run(self.broker, load, topic, **flags)

    def produce_ms(self, topic: str) -> Figures:
        """Measure single records, one after the other."""
        seconds = self.brokers.bench.scale.seconds(SINGLE_S)
        return {PRODUCE: self.run("single", topic, seconds=seconds)["p50_ms"]}

    def restarted(self, ask: Callable[[], object]) -> Figures:
        """Stop and start the broker, and measure both. `ask` is the first load after that."""
        began = time.perf_counter()
        self.stop()
        stopped = time.perf_counter()
        self.broker = self.start()
        ask()
        return {STOP: stopped - began, START: time.perf_counter() - stopped}

    def memory(self) -> Figures:
        return {MEMORY: shared_out_mib(self.broker.pid)}


@attrs.frozen(kw_only=True)
class Growth:
    """A row: what there is more of, and what it costs."""

    what: str
    steps: tuple[int, ...]
    grow: Callable[[Grown, int, int], Figures]
    """(broker, number so far, number wanted) -> the figures at that number."""
    kafka_most: int | None = None
    """Steps above it are triolog's alone."""
    least: int = 1
    """Of the first step of a short run."""
    note: str
    targets: Mapping[str, Target] = attrs.field(factory=dict)
    """Of triolog's figures at the last step that Kafka takes too, over those at the first one."""

    def __call__(self, brokers: Brokers) -> RowResult:
        steps = list(dict.fromkeys(brokers.bench.scale.count(step, least=self.least) for step in self.steps))
        found: dict[str, dict[str, dict[int, float]]] = {}
        for name, place in _places(brokers).items():
            with place() as grown:
                before = 0
                for step in steps:
                    if name == KAFKA and self.kafka_most is not None and step > self.kafka_most:
                        break
                    brokers.bench.say(f"{name}, {step:,} {self.what}")
                    for figure, value in self.grow(grown, before, step).items():
                        found.setdefault(figure, {}).setdefault(name, {})[step] = value
                    before = step
        return self._result(brokers, found)

    def _result(self, brokers: Brokers, found: Mapping[str, Mapping[str, Mapping[int, float]]]) -> RowResult:
        lines, curves = [], []
        for figure, by_name in found.items():
            unit = UNITS[figure]
            for name, points in by_name.items():
                lines += [Line(f"{figure}, {step:,} {self.what}, {name}", unit, [value]) for step, value in points.items()]
            ours = by_name[TRIOLOG]
            first, last = min(ours), max(step for step in ours if self.kafka_most is None or step <= self.kafka_most)
            growth = f"{figure}, {TRIOLOG}, {last:,} / {first:,} {self.what}"
            lines.append(Line(growth, "x", [ours[last] / ours[first]], self.targets.get(figure)))
            curves.append(Curve(figure, unit, self.what, by_name))
        if KAFKA in brokers.missing:
            lines.append(absent(f"{self.what}, {KAFKA}", brokers.missing[KAFKA]))
        return RowResult(f"growth: {self.what}", lines, [self.note], curves=curves)


def _places(brokers: Brokers) -> Mapping[str, Callable[[], AbstractContextManager[Grown]]]:
    places: dict[str, Callable[[], AbstractContextManager[Grown]]] = {TRIOLOG: partial(_triolog, brokers)}
    if KAFKA in brokers.running:
        places[KAFKA] = partial(_kafka, brokers)
    return places


@contextmanager
def _triolog(brokers: Brokers) -> Iterator[Grown]:
    with brokers.bench.workspace() as directory, serving(directory, settings=SETTINGS, kafka=True) as server:

        def broker() -> Broker:
            if server.process is None:
                server.start()
            return Broker(TRIOLOG, server.kafka, server.pid)

        yield Grown(brokers, broker(), broker, server.stop)


@contextmanager
def _kafka(brokers: Brokers) -> Iterator[Grown]:
    with brokers.bench.workspace() as directory, KafkaServer(Path(directory)) as server:
        yield Grown(brokers, server.start(), server.start, server.stop)


def _partitions(grown: Grown, before: int, wanted: int) -> Figures:
    each = grown.brokers.bench.scale.count(TOPIC_PARTITIONS, least=2)
    grown.run("fill", partitions=each, records=wanted // each, first=before // each)
    figures = {**grown.produce_ms("bench-0"), **grown.memory()}
    return {**figures, **grown.restarted(partial(grown.run, "single", "bench-0", seconds=0.001))}


def _connections(grown: Grown, before: int, wanted: int) -> Figures:
    if not before:
        grown.run("create")
    seconds = grown.brokers.bench.scale.seconds(SINGLE_S)
    found = grown.run("idle", requests=wanted, seconds=seconds, pid=grown.broker.pid)
    return {PRODUCE: found["p50_ms"], MEMORY: found["pss_mib"]}


def _consumers(grown: Grown, before: int, wanted: int) -> Figures:
    count = grown.brokers.bench.scale.count(CONSUMED, least=100)
    if not before:
        grown.run("create")
        grown.run("produce", records=count, bytes=CONSUMED_BYTES)
    found = grown.run("consumers", clients=wanted, records=count, bytes=CONSUMED_BYTES)
    return {"values to all consumers": found["mb_s"], **grown.memory()}


def _groups(grown: Grown, before: int, wanted: int) -> Figures:
    if not before:
        grown.run("create")
    found = grown.run("groups", requests=wanted, first=before)
    return {"ListGroups, p50": found["list_ms"], "heartbeat, p50": found["heartbeat_ms"], **grown.memory()}


def _segments(grown: Grown, before: int, wanted: int) -> Figures:
    if not before:
        grown.run("create", segment_ms=1)
    grown.run("roll", records=wanted, step_ms=SEGMENT_STEP_MS, first=before)
    looked_up = grown.run("times", records=1 + (wanted - 1) * SEGMENT_STEP_MS, requests=500)
    fetched = grown.run("seek", records=wanted)
    found = {"lookup by time, p50": looked_up["p50_ms"], "fetch at an offset, p50": fetched["p50_ms"], **grown.memory()}
    return {**found, **grown.restarted(partial(grown.run, "seek", records=wanted))}


def _transactional_ids(grown: Grown, before: int, wanted: int) -> Figures:
    found = grown.run("transactional", requests=wanted, first=before)
    return {"InitProducerId, p50": found["init_ms"], "ListTransactions, p50": found["list_ms"], **grown.memory()}


GROWTH: Final[Mapping[str, Growth]] = {
    "growth-partitions": Growth(
        what="partitions",
        steps=(100, 1_000, 5_000, 20_000),
        grow=_partitions,
        kafka_most=5_000,
        least=2,
        note=f"topics of {TOPIC_PARTITIONS} partitions with one record in each; memory before the restart",
        targets={PRODUCE: at_most(1.1, "x")},
    ),
    "growth-connections": Growth(
        what="idle connections",
        steps=(10, 1_000, 10_000),
        grow=_connections,
        least=2,
        note="each connection has asked for ApiVersions once; one more connection produces",
    ),
    "growth-consumers": Growth(
        what="consumers of one partition",
        steps=(1, 10, 100),
        grow=_consumers,
        note=f"each reads {CONSUMED:,} records (fewer in a short run) of {CONSUMED_BYTES:,} bytes from the start, all at once",
    ),
    "growth-groups": Growth(
        what="groups",
        steps=(100, 1_000, 10_000),
        grow=_groups,
        least=2,
        note="each group has one static member of the classic protocol; heartbeats go to 500 of them",
    ),
    "growth-segments": Growth(
        what="segments",
        steps=(10, 100, 1_000, 10_000),
        grow=_segments,
        least=2,
        note="segments of one record each, by segment.ms = 1 and timestamps 10 ms apart",
    ),
    "growth-transactional-ids": Growth(
        what="transactional ids",
        steps=(1_000, 10_000, 100_000),
        grow=_transactional_ids,
        least=2,
        note="each id has a producer id and no open transaction",
    ),
}
