"""Rows that measure the brokers in turn: latency of single records, throughput of large batches and the memory that it leaves,
offsets by time, and how soon a new group reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from ..measuring.report import Line, RowResult, Target, absent, at_least, at_most, ratio
from ..measuring.server import shared_out_mib
from .brokers import KAFKA, KFAKE, TRIOLOG, Broker, Brokers, triolog

SECONDS: Final = 4.0
VALUE_BYTES: Final = 100
MANY: Final = 50
SYNCED: Final = "triolog, fsync"
ONE_BY_ONE: Final = (
    f"records of {VALUE_BYTES} bytes into one partition, acks=1; each connection sends when the one before is answered"
)


def one_connection(brokers: Brokers) -> RowResult:
    """Page cache."""
    answers = _one_by_one(brokers, 1)
    lines = compared(brokers, answers, "rate", "records_s", "/s", over_kafka=at_least(1.3, "x"))
    lines += compared(brokers, answers, "p50", "p50_ms", "ms")
    lines += compared(brokers, answers, "p99", "p99_ms", "ms", over_kafka=at_most(1, "x"))
    return RowResult("one record, one connection, page cache", lines, [ONE_BY_ONE])


def many_connections(brokers: Brokers) -> RowResult:
    """Page cache."""
    answers = _one_by_one(brokers, MANY)
    lines = compared(brokers, answers, "rate", "records_s", "/s", over_kafka=at_least(1, "x"))
    lines += compared(brokers, answers, "p50", "p50_ms", "ms")
    lines += compared(brokers, answers, "p99", "p99_ms", "ms", over_kafka=at_most(1, "x"))
    return RowResult(f"one record each, {MANY} connections, page cache", lines, [ONE_BY_ONE])


def synced(brokers: Brokers) -> RowResult:
    """Sync before the answer: triolog by its durability, Kafka by flush.messages=1."""
    with ExitStack() as stack:
        directory = stack.enter_context(brokers.bench.workspace())
        measures: dict[str, Callable[[], Mapping[str, Any]]] = {
            SYNCED: _load(brokers, stack, stack.enter_context(triolog(f"{directory}/synced", durability="fsync"))),
            TRIOLOG: _load(brokers, stack, brokers.running[TRIOLOG]),
        }
        if KAFKA in brokers.running:
            measures[KAFKA] = _load(brokers, stack, brokers.running[KAFKA], flush=True)
        answers: Answers = brokers.bench.interleave(measures)
    ours, kafka = figures(answers, SYNCED, "records_s"), figures(answers, KAFKA, "records_s")
    over_kafka = "rate, triolog / Kafka, both synced"
    lines = [
        Line("rate, triolog, fsync", "/s", ours),
        *([Line("rate, Kafka, flush.messages=1", "/s", kafka)] if kafka else []),
        Line("rate, triolog, page cache", "/s", figures(answers, TRIOLOG, "records_s")),
        ratio(over_kafka, ours, kafka, at_least(3, "x"))
        if kafka
        else absent(over_kafka, brokers.missing[KAFKA], at_least(3, "x")),
        ratio("rate, triolog, fsync / page cache", ours, figures(answers, TRIOLOG, "records_s"), at_least(0.8, "x")),
    ]
    lines += [Line(f"p99, {name}", "ms", figures(answers, name, "p99_ms")) for name in measures]
    return RowResult(f"one record each, fsync before the answer, {MANY} connections", lines, [ONE_BY_ONE])


def _one_by_one(brokers: Brokers, clients: int) -> Answers:
    def send(broker: Broker) -> Mapping[str, Any]:
        with brokers.topic(broker) as topic:
            return _single(brokers, broker, topic, clients)

    return in_turn(brokers, send)


def _load(brokers: Brokers, stack: ExitStack, broker: Broker, **flags: object) -> Callable[[], Mapping[str, Any]]:
    topic = stack.enter_context(brokers.topic(broker, **flags))
    return lambda: _single(brokers, broker, topic, MANY)


def _single(brokers: Brokers, broker: Broker, topic: str, clients: int) -> Mapping[str, Any]:
    seconds = brokers.bench.scale.seconds(SECONDS)
    return brokers.run(broker, "single", topic, clients=clients, seconds=seconds, bytes=VALUE_BYTES)


Answers = Mapping[str, Sequence[Mapping[str, Any]]]
"""By broker, what the generator measured in each round."""


def in_turn(brokers: Brokers, measure: Callable[[Broker], Mapping[str, Any]], *, without: Sequence[str] = ()) -> Answers:
    """Measure every broker in every round, after one that is not counted."""

    def of(broker: Broker) -> Callable[[], Mapping[str, Any]]:
        return lambda: measure(broker)

    measures = {name: of(broker) for name, broker in brokers.running.items() if name not in without}
    return brokers.bench.interleave(measures)


def figures(answers: Answers, name: str, key: str, scale: float = 1.0) -> list[float]:
    """Return one figure of a broker by round; an empty list without that broker."""
    return [answer[key] * scale for answer in answers.get(name, ())]


def compared(
    brokers: Brokers,
    answers: Answers,
    what: str,
    key: str,
    unit: str,
    *,
    scale: float = 1.0,
    over_kafka: Target | None = None,
    over_kfake: Target | None = None,
) -> list[Line]:
    """Return the lines of a figure of each broker, and of triolog's over those of the others."""
    lines = []
    for name in (TRIOLOG, KAFKA, KFAKE):
        if samples := figures(answers, name, key, scale):
            lines.append(Line(f"{what}, {name}", unit, samples))
    ours = figures(answers, TRIOLOG, key)
    for name, target in ((KAFKA, over_kafka), (KFAKE, over_kfake)):
        label = f"{what}, {TRIOLOG} / {name}"
        if theirs := figures(answers, name, key):
            lines.append(ratio(label, ours, theirs, target))
        elif name in brokers.missing and (target is not None or name == KAFKA):
            lines.append(absent(label, brokers.missing[name], target))
    return lines


LARGE_BYTES: Final = 1_000
LARGE_RECORDS: Final = 500_000
SMALL_BYTES: Final = 100
SMALL_RECORDS: Final = 2_000_000
MEMORY_SHARE: Final = 8
HOW: Final = "one client, one partition, batches of 128 KiB, acks=1, 5 requests under way, not compressed, not synced"


def produce_large(brokers: Brokers) -> RowResult:
    """Produce records of 1,000 bytes."""
    return _produce(brokers, LARGE_RECORDS, LARGE_BYTES, at_least(1, "x"))


def produce_small(brokers: Brokers) -> RowResult:
    """Produce records of 100 bytes."""
    return _produce(brokers, SMALL_RECORDS, SMALL_BYTES, at_least(1, "x"))


def memory(brokers: Brokers) -> RowResult:
    """Measure the memory of each process, idle and after a run of both sizes."""
    held: dict[str, float] = {}
    for name, broker in brokers.running.items():
        brokers.bench.say(f"filling {name}")
        with brokers.topic(broker) as large, brokers.topic(broker) as small:
            _fill_once(brokers, broker, large, LARGE_RECORDS, LARGE_BYTES)
            _fill_once(brokers, broker, small, SMALL_RECORDS, SMALL_BYTES)
            held[name] = shared_out_mib(broker.pid)
    idle = {name: broker.idle_mib for name, broker in brokers.running.items()}
    lines = _memory_lines(brokers, "idle", idle, None)
    lines += _memory_lines(brokers, "after the loads", held, at_least(MEMORY_SHARE, "x"))
    notes = [
        "idle: before anything was asked; after: once everything above had run, and both sizes of records again",
        "PSS: resident memory, in which pages that processes share count in parts",
        "kfake keeps the records in memory, and they are still there",
    ]
    return RowResult("memory, idle and after the produce runs", lines, notes)


def _memory_lines(brokers: Brokers, when: str, held: Mapping[str, float], target: Target | None) -> list[Line]:
    lines = [Line(f"PSS {when}, {name}", "MiB", [mib]) for name, mib in held.items()]
    label = f"PSS {when}, {KAFKA} / {TRIOLOG}"
    if KAFKA in held:
        return [*lines, ratio(label, [held[KAFKA]], [held[TRIOLOG]], target)]
    return [*lines, absent(label, brokers.missing[KAFKA], target)]


def consume(brokers: Brokers) -> RowResult:
    """Read a whole partition from the page cache, with the client's own fetch sizes."""
    count = brokers.bench.scale.count(LARGE_RECORDS, least=100)
    with ExitStack() as stack:
        topics = {name: stack.enter_context(brokers.topic(broker)) for name, broker in brokers.running.items()}
        for name, topic in topics.items():
            brokers.bench.say(f"filling {name}")
            _fill_once(brokers, brokers.running[name], topic, LARGE_RECORDS, LARGE_BYTES)

        def read(broker: Broker) -> Mapping[str, Any]:
            return brokers.run(broker, "consume", topics[broker.name], records=count)

        answers = in_turn(brokers, read)
    what, unit = "1 KB from the start", "MB/s"
    lines = compared(brokers, answers, what, "mb_s", unit, over_kafka=at_least(1, "x"), over_kfake=at_least(1.5, "x"))
    return RowResult("consume from the start", lines, [f"{count:,} records of {LARGE_BYTES:,} bytes, one partition"])


def _produce(brokers: Brokers, full: int, value_bytes: int, target: Target) -> RowResult:
    count = brokers.bench.scale.count(full, least=100)

    def send(broker: Broker) -> Mapping[str, Any]:
        with brokers.topic(broker) as topic:
            return _fill_once(brokers, broker, topic, full, value_bytes)

    lines = compared(brokers, in_turn(brokers, send), "values", "mb_s", "MB/s", over_kafka=target)
    return RowResult(f"produce {value_bytes:,} B", lines, [f"{count:,} records; {HOW}"])


def _fill_once(brokers: Brokers, broker: Broker, topic: str, full: int, value_bytes: int) -> Mapping[str, Any]:
    return brokers.run(broker, "produce", topic, records=brokers.bench.scale.count(full, least=100), bytes=value_bytes)


BATCH_BYTES: Final = 1_500
"""Room for ten records of 100 bytes."""
ONE_RECORDS: Final = 50_000
ONE_REQUESTS: Final = 10_000
WIDE: Final = 100
WIDE_RECORDS: Final = 200
WIDE_REQUESTS: Final = 1_000
JOINS: Final = 5


def times(brokers: Brokers) -> RowResult:
    """Look up random times that a record has; one connection, one request at a time."""
    lines: list[Line] = []
    one = brokers.bench.scale.count(ONE_RECORDS, least=100)
    requests = brokers.bench.scale.count(ONE_REQUESTS, least=20)
    lines += _look_up(brokers, "1 partition", 1, one, requests, 1.3)
    requests = brokers.bench.scale.count(WIDE_REQUESTS, least=5)
    lines += _look_up(brokers, f"{WIDE} partitions", WIDE, WIDE_RECORDS, requests, 0.8)
    note = f"{one:,} records in the one partition, {WIDE_RECORDS} in each of the {WIDE}; batches of about ten"
    return RowResult("ListOffsets by time", lines, [note, "kfake answers the start of a batch, not the record in it"])


def join(brokers: Brokers) -> RowResult:
    """Let two members join a new group at once, until each has read the record of its partition."""

    def come(broker: Broker) -> Mapping[str, Any]:
        with brokers.topic(broker, partitions=2) as topic:
            _fill(brokers, broker, topic, 2, 1)
            return brokers.run(broker, "join", topic, requests=brokers.bench.scale.count(JOINS))

    answers = in_turn(brokers, come, without=[KFAKE])
    lines = compared(brokers, answers, "both have read, p50", "p50_ms", "ms", over_kafka=at_most(0.4, "x"))
    lines += compared(brokers, answers, "one of them has read, p50", "first_p50_ms", "ms")
    notes = ["classic protocol, range, heartbeats each 50 ms; group.initial.rebalance.delay.ms is 0 for both, by default 3,000"]
    return RowResult("a group of two members: from the join to the first record", lines, notes)


def _look_up(brokers: Brokers, what: str, partitions: int, records: int, requests: int, bound: float) -> list[Line]:
    with ExitStack() as stack:
        topics = {
            name: stack.enter_context(brokers.topic(broker, partitions=partitions)) for name, broker in brokers.running.items()
        }
        for name, topic in topics.items():
            brokers.bench.say(f"filling {partitions} partitions of {name}")
            _fill(brokers, brokers.running[name], topic, partitions, records)

        def ask(broker: Broker) -> Mapping[str, Any]:
            topic = topics[broker.name]
            return brokers.run(broker, "times", topic, partitions=partitions, records=records, requests=requests)

        answers = in_turn(brokers, ask)
    lines = compared(brokers, answers, f"{what}, rate", "requests_s", "/s", over_kafka=at_least(bound, "x"))
    lines += compared(brokers, answers, f"{what}, p50", "p50_ms", "ms")
    return lines + compared(brokers, answers, f"{what}, p99", "p99_ms", "ms")


def _fill(brokers: Brokers, broker: Broker, topic: str, partitions: int, records: int) -> None:
    """Append so many records to each partition, a millisecond apart, the first one at 1 ms."""
    flags = {"partitions": partitions, "step_ms": 1, "batch_bytes": BATCH_BYTES}
    brokers.run(broker, "produce", topic, records=records * partitions, **flags)
