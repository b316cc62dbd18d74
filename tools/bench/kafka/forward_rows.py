"""`triolog forward` to triolog and to Apache Kafka, and MirrorMaker 2 to Kafka."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from ..loads import fill
from ..measuring.child import LoadFailedError, run_load
from ..measuring.report import Line, RowResult, Target, absent, at_least, at_most, percentile, ratio
from ..measuring.server import Server, serving
from ..measuring.wire import Address, Wire, batch_of, produce_frame
from .brokers import KAFKA, TRIOLOG, Broker, Brokers
from .forwarder import FLAGS, VALUE_BYTES, CaughtUp, copied_name, forwarding, mirroring, missing, watch
from .jars import MIRROR_MAKER, PeerMissingError, kafka_jars

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TOPIC: Final = "readings"
BATCH_RECORDS: Final = 100
RECORDS: Final = 1_000_000
ROUNDS: Final = 3
RATE: Final = at_least(40, "MB/s")
PROCESSOR: Final = at_most(15, "s/GB")
MIRROR: Final = "MirrorMaker 2"
OVER_MIRROR: Final = at_least(1, "x")
MEMORY_OVER_MIRROR: Final = at_least(5, "x")
"""MirrorMaker's over ours."""
UPSTREAMS: Final = (TRIOLOG, KAFKA)
MEMORY: Final = at_most(128, "MiB")

DELAY_MS: Final = 50
DELAY: Final = at_most(150, "ms")
INTERVAL_S: Final = 1.0
SINGLE_RECORDS: Final = 30
SINGLE_BYTES: Final = 100
PATIENCE_S: Final = 60.0


def forward(brokers: Brokers) -> RowResult:
    """Send a backlog of one partition to triolog and to Kafka, exactly once, and by MirrorMaker to Kafka, at least once."""
    bench = brokers.bench.with_rounds(ROUNDS)
    records = bench.scale.count(RECORDS // BATCH_RECORDS) * BATCH_RECORDS
    title = f"forward a backlog of {records * VALUE_BYTES / 1e6:,.0f} MB, records of 1 KB"
    if why := missing():
        return RowResult(title, [absent("rate, to Kafka", why, RATE)])
    numbers = itertools.count()
    lacks = brokers.missing.get(KAFKA, "")
    with bench.workspace() as directory, ExitStack() as stack:
        server = stack.enter_context(serving(directory, kafka=True))
        bench.say("filling the source")
        shape = {"partitions": 1, "batches": records // BATCH_RECORDS, "records": BATCH_RECORDS, "value_bytes": VALUE_BYTES}
        run_load(fill, address=server.address, topic=TOPIC, **shape)
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
    return RowResult(title, _lines(samples, lacks), notes)


def forward_delay(brokers: Brokers) -> RowResult:
    """Measure the time from an append until a reader of committed records has the record upstream, with an idle link."""
    title = "forward, one record a second"
    if why := missing():
        return RowResult(title, [absent("append to reader upstream", why, DELAY)])
    lines = []
    with brokers.bench.workspace() as directory, serving(directory) as server:
        for name in UPSTREAMS:
            what = f"append to reader upstream, to {name}"
            if name not in brokers.running:
                lines.append(absent(what, brokers.missing[name], DELAY))
                continue
            brokers.bench.say(f"to {name}")
            answer = _delay(brokers, directory, server, brokers.running[name].address)
            lines.append(Line(f"{what}, p50", "ms", [answer["p50_ms"]], DELAY, f"max_delay_ms = {DELAY_MS}"))
            lines.append(Line(f"{what}, slowest", "ms", [answer["max_ms"]]))
    return RowResult(title, lines)


def _delay(brokers: Brokers, directory: str, server: Server, to: str) -> dict[str, float]:
    topic = f"delayed-{to.rpartition(':')[2]}"
    with Wire(server.address) as wire:
        wire.create_topic(topic, retention_ms="-1")
    options = ("--max-delay-ms", str(DELAY_MS))
    scale = brokers.bench.scale
    load = {"records": scale.count(SINGLE_RECORDS, least=2), "interval_s": scale.seconds(INTERVAL_S)}
    with forwarding(directory, server.address, to, topic=topic, target=topic, options=options):
        answer: dict[str, float] = run_load(end_to_end, address=server.address, to=to, topic=topic, **load)
        return answer


def end_to_end(*, address: Address, to: str, topic: str, records: int, interval_s: float) -> dict[str, float]:
    """Return p50 and the slowest in ms. The first record does not count: nothing was connected before it."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": to, "group.id": "bench", "isolation.level": "read_committed", "log_level": 0})
    frame = produce_frame(2, topic, 0, batch_of(1, SINGLE_BYTES))
    taken_ms = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        with Wire(address) as wire:
            for _ in range(records + 1):
                began = time.perf_counter()
                wire.ask(frame)
                _await_record(consumer, began + PATIENCE_S)
                taken_s = time.perf_counter() - began
                taken_ms.append(taken_s * 1000)
                time.sleep(max(0.0, interval_s - taken_s))
    finally:
        consumer.close()
    return {"p50_ms": percentile(taken_ms[1:], 0.5), "max_ms": max(taken_ms[1:])}


def _await_record(consumer: Consumer, deadline: float) -> None:
    while time.perf_counter() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return
    raise LoadFailedError("a record did not arrive upstream")


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


def _caught_up(who: str, samples: Sequence[CaughtUp], targets: Sequence[Target | None] = (None, None, None)) -> list[Line]:
    rate, processor, memory = targets
    return [
        Line(f"rate, {who}", "MB/s", [each.mb_s for each in samples], rate),
        Line(f"processor, {who}", "s/GB", [each.cpu_s_gb for each in samples], processor),
        Line(f"peak of resident memory, {who}", "MiB", [each.peak_mib for each in samples], memory),
    ]


def _lines(samples: Mapping[str, Sequence[CaughtUp]], lacks: str) -> list[Line]:
    lines = _caught_up(f"to {TRIOLOG}", samples[TRIOLOG])
    ours = samples.get(KAFKA)
    if ours is None:
        return [*lines, absent(f"rate, to {KAFKA}", lacks, RATE)]
    lines += _caught_up(f"to {KAFKA}", ours, (RATE, PROCESSOR, MEMORY))
    theirs = samples.get(MIRROR)
    rates, peaks = f"rate, to {KAFKA} / {MIRROR}", f"peak of resident memory, {MIRROR} / ours"
    if theirs is None:
        return [*lines, absent(rates, lacks, OVER_MIRROR), absent(peaks, lacks, MEMORY_OVER_MIRROR)]
    return [
        *lines,
        *_caught_up(f"{MIRROR} to {KAFKA}", theirs),
        ratio(rates, [each.mb_s for each in ours], [each.mb_s for each in theirs], OVER_MIRROR),
        ratio(peaks, [each.peak_mib for each in theirs], [each.peak_mib for each in ours], MEMORY_OVER_MIRROR),
    ]
