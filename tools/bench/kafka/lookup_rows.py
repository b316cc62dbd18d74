"""Offsets by time, and how soon a new group reads."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from ..measuring.measure import Line, RowResult, at_least, at_most
from .brokers import KFAKE, Broker, Brokers
from .comparing import compared, in_turn

BATCH_BYTES: Final = 1_500
"""Room for ten records of 100 bytes."""
ONE_RECORDS: Final = 50_000
ONE_REQUESTS: Final = 10_000
WIDE: Final = 100
WIDE_RECORDS: Final = 200
WIDE_REQUESTS: Final = 1_000
JOINS: Final = 5


def times(brokers: Brokers) -> RowResult:
    """Random times, each of which a record has; one connection, one request at a time."""
    lines: list[Line] = []
    one = brokers.bench.scale.count(ONE_RECORDS, least=100)
    requests = brokers.bench.scale.count(ONE_REQUESTS, least=20)
    lines += _look_up(brokers, "1 partition", 1, one, requests, 1.3)
    requests = brokers.bench.scale.count(WIDE_REQUESTS, least=5)
    lines += _look_up(brokers, f"{WIDE} partitions", WIDE, WIDE_RECORDS, requests, 0.8)
    note = f"{one:,} records in the one partition, {WIDE_RECORDS} in each of the {WIDE}; batches of about ten"
    return RowResult("ListOffsets by time", lines, [note, "kfake answers the start of a batch, not the record in it"])


def join(brokers: Brokers) -> RowResult:
    """Two members come at once into a group that nobody knows; until each has read the record of its partition."""

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
    """So many records into each partition, a millisecond apart, the first one at 1 ms."""
    flags = {"partitions": partitions, "step_ms": 1, "batch_bytes": BATCH_BYTES}
    brokers.run(broker, "produce", topic, records=records * partitions, **flags)
