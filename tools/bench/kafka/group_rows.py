"""Rows 12 to 14: what a share group reads, how soon it reads again what was released, and what idle members cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import attrs

from ..measuring.measure import Line, RowResult, at_least, at_most
from .brokers import KAFKA, KFAKE, TRIOLOG, Broker, Brokers
from .comparing import Answers, compared, figures, in_turn

VALUE_BYTES: Final = 1_000
SHARED_RECORDS: Final = 200_000
RELEASES: Final = 500
RELEASES_TO_WAITING: Final = 20
"""Each takes Kafka half a second."""
MEMBERS: Final = 1_000
GROUP_SIZE: Final = 50
"""As the generator has it."""
KINDS: Final = ("classic", "consumer", "share", "streams")
IDLE_S: Final = 6.0
"""Longer than any interval between heartbeats."""
IDLE_ROUNDS: Final = 3
CORE_PERCENT: Final = 5

_numbers: Final = itertools.count()


def share_consume(brokers: Brokers) -> RowResult:
    """Everything of a partition, through a new share group of one member."""
    count = brokers.bench.scale.count(SHARED_RECORDS, least=5_000)
    with ExitStack() as stack:
        topics = {name: stack.enter_context(brokers.topic(broker)) for name, broker in _with_groups(brokers).items()}
        for name, topic in topics.items():
            brokers.bench.say(f"filling {name}")
            brokers.run(brokers.running[name], "produce", topic, records=count, bytes=VALUE_BYTES)

        def read(broker: Broker) -> Mapping[str, Any]:
            return brokers.run(broker, "share-consume", topics[broker.name], group=_new_group(), records=count)

        answers = in_turn(brokers, read, without=[KFAKE])
    lines = compared(brokers, answers, "1 KB from the start", "mb_s", "MB/s", over_kafka=at_least(1, "x"))
    notes = [
        f"{count:,} records of {VALUE_BYTES:,} bytes, one partition, one member; each poll accepts what the one before gave",
        "from the first records on: joining does not count",
    ]
    return RowResult(12, "share consume, implicit acknowledgement", lines, notes)


def share_release(brokers: Brokers) -> RowResult:
    """One record at a time, which a member releases: until the same member, or another one that waits, has it."""
    alone = _released(brokers, 1, brokers.bench.scale.count(RELEASES, least=5))
    waiting = _released(brokers, 2, brokers.bench.scale.count(RELEASES_TO_WAITING, least=5))
    lines = compared(brokers, alone, "the same member, p50", "p50_ms", "ms", over_kafka=at_most(1, "x"))
    lines += compared(brokers, alone, "the same member, p99", "p99_ms", "ms")
    lines += compared(brokers, waiting, "another one that waits, p50", "p50_ms", "ms", over_kafka=at_most(1, "x"))
    notes = [
        "from the call that releases a record until a member has it again",
        "a fetch of franz-go waits for half a second; where nothing else is asked of Kafka meanwhile it is not told earlier",
    ]
    return RowResult(13, "from a release to the redelivery", lines, notes)


def _released(brokers: Brokers, members: int, count: int) -> Answers:
    def release(broker: Broker) -> Mapping[str, Any]:
        with brokers.topic(broker) as topic:
            return brokers.run(broker, "share-release", topic, group=_new_group(), clients=members, requests=count)

    return in_turn(brokers, release, without=[KFAKE])


def idle_members(brokers: Brokers) -> RowResult:
    """Processor time of the whole server while members of one kind of group do nothing but tell that they are there."""
    scale = brokers.bench.scale
    count, seconds = scale.count(MEMBERS, least=4), scale.seconds(IDLE_S)
    few = attrs.evolve(brokers, bench=brokers.bench.with_rounds(IDLE_ROUNDS))
    lines: list[Line] = []
    with ExitStack() as stack:
        topics = {
            name: stack.enter_context(brokers.topic(broker, partitions=GROUP_SIZE))
            for name, broker in _with_groups(brokers).items()
        }
        for kind in KINDS:
            flags = {"kind": kind, "clients": count, "seconds": seconds}
            answers = in_turn(few, partial(_rest, few, topics, flags), without=[KFAKE])
            target = at_most(CORE_PERCENT, "% of a core")
            lines.append(Line(f"{kind}, {TRIOLOG}", "% of a core", figures(answers, TRIOLOG, "core_percent"), target))
            if theirs := figures(answers, KAFKA, "core_percent"):
                lines.append(Line(f"{kind}, {KAFKA}", "% of a core", theirs))
    notes = [
        f"{count:,} members, each with a connection, in groups of {GROUP_SIZE} of one topic with {GROUP_SIZE} partitions",
        "heartbeats each 3 s in classic groups, each 5 s in others, which is what clients and brokers have by default",
    ]
    return RowResult(14, "heartbeats of idle members", lines, notes)


def _rest(brokers: Brokers, topics: Mapping[str, str], flags: Mapping[str, object], broker: Broker) -> Mapping[str, Any]:
    return brokers.run(broker, "idle-members", topics[broker.name], group=_new_group(), pid=broker.pid, **flags)


def _with_groups(brokers: Brokers) -> Mapping[str, Broker]:
    return {name: broker for name, broker in brokers.running.items() if name != KFAKE}


def _new_group() -> str:
    return f"bench-group-{next(_numbers)}"
