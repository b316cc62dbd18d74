"""Latency rows: a record at a time, on one connection and on many, with and without a sync before the response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from ..measuring.measure import Line, RowResult, absent, at_least, at_most, ratio
from .brokers import KAFKA, TRIOLOG, Broker, Brokers, triolog
from .comparing import Answers, compared, figures, in_turn

SECONDS: Final = 4.0
VALUE_BYTES: Final = 100
MANY: Final = 50
SYNCED: Final = "triolog, fsync"
HOW: Final = f"records of {VALUE_BYTES} bytes into one partition, acks=1; each connection sends when the one before is answered"


def one_connection(brokers: Brokers) -> RowResult:
    """Page cache."""
    answers = _one_by_one(brokers, 1)
    lines = compared(brokers, answers, "rate", "records_s", "/s", over_kafka=at_least(1.3, "x"))
    lines += compared(brokers, answers, "p50", "p50_ms", "ms")
    lines += compared(brokers, answers, "p99", "p99_ms", "ms", over_kafka=at_most(1, "x"))
    return RowResult("one record, one connection, page cache", lines, [HOW])


def many_connections(brokers: Brokers) -> RowResult:
    """Page cache."""
    answers = _one_by_one(brokers, MANY)
    lines = compared(brokers, answers, "rate", "records_s", "/s", over_kafka=at_least(1, "x"))
    lines += compared(brokers, answers, "p50", "p50_ms", "ms")
    lines += compared(brokers, answers, "p99", "p99_ms", "ms", over_kafka=at_most(1, "x"))
    return RowResult(f"one record each, {MANY} connections, page cache", lines, [HOW])


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
    return RowResult(f"one record each, fsync before the answer, {MANY} connections", lines, [HOW])


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
