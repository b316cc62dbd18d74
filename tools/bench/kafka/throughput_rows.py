"""Throughput of large batches, and the memory that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from ..measuring.measure import Line, RowResult, Target, absent, at_least, ratio
from ..measuring.process import shared_out_mib
from .brokers import KAFKA, TRIOLOG, Broker, Brokers
from .comparing import compared, in_turn

LARGE_BYTES: Final = 1_000
LARGE_RECORDS: Final = 500_000
SMALL_BYTES: Final = 100
SMALL_RECORDS: Final = 2_000_000
MEMORY_SHARE: Final = 8
HOW: Final = "one client, one partition, batches of 128 KiB, acks=1, 5 requests under way, not compressed, not synced"


def produce_large(brokers: Brokers) -> RowResult:
    """Records of 1,000 bytes."""
    return _produce(brokers, LARGE_RECORDS, LARGE_BYTES, at_least(1, "x"))


def produce_small(brokers: Brokers) -> RowResult:
    """Records of 100 bytes."""
    return _produce(brokers, SMALL_RECORDS, SMALL_BYTES, at_least(1, "x"))


def memory(brokers: Brokers) -> RowResult:
    """What each process holds after a run of both sizes, beside all that it was asked before."""
    held: dict[str, float] = {}
    for name, broker in brokers.running.items():
        brokers.bench.say(f"filling {name}")
        with brokers.topic(broker) as large, brokers.topic(broker) as small:
            _fill(brokers, broker, large, LARGE_RECORDS, LARGE_BYTES)
            _fill(brokers, broker, small, SMALL_RECORDS, SMALL_BYTES)
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
    """Everything of a partition that lies in the page cache, with the client's own fetch sizes."""
    count = brokers.bench.scale.count(LARGE_RECORDS, least=100)
    with ExitStack() as stack:
        topics = {name: stack.enter_context(brokers.topic(broker)) for name, broker in brokers.running.items()}
        for name, topic in topics.items():
            brokers.bench.say(f"filling {name}")
            _fill(brokers, brokers.running[name], topic, LARGE_RECORDS, LARGE_BYTES)

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
            return _fill(brokers, broker, topic, full, value_bytes)

    lines = compared(brokers, in_turn(brokers, send), "values", "mb_s", "MB/s", over_kafka=target)
    return RowResult(f"produce {value_bytes:,} B", lines, [f"{count:,} records; {HOW}"])


def _fill(brokers: Brokers, broker: Broker, topic: str, full: int, value_bytes: int) -> Mapping[str, Any]:
    return brokers.run(broker, "produce", topic, records=brokers.bench.scale.count(full, least=100), bytes=value_bytes)
