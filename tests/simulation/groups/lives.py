"""Which groups there are in a world, and when their members live: drawn from the seed, beside what the others do.

A member lives for some seconds at a busy time, in which it is heard of, reads, and commits; what becomes of it then is part of
its step. Between two lives it is silent for longer than its session.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .events import CLASSIC, CONSUMERS, CONSUMING, MIGRATING, SHARERS, STREAMS

Life = tuple[int, str, str, dict[str, Any]]
"""The fields of a step: when, who, what, and how."""

TOPICS: Final = ("in", "stamped")
"""What groups read, and stages write: nobody trims them."""
SHARED: Final = "in"
"""What the share group reads."""
HOW_MANY: Final = (0, 0, 1, 1, 1, 2, 2)
"""Kinds of those that are in a world, of five: they cost about as much as all the others."""
ONE_MORE: Final = (*("",) * 6, MIGRATING, STREAMS)
"""Of these a group of few worlds: in one world of eight each."""
CALM_AFTER: Final = 4
"""Busy times in which a member lives, of eight."""


def lives(seed: str, topics: Mapping[str, Mapping[str, Any]], busy_ms: Sequence[int]) -> list[Life]:
    """The steps of members and of those who stage."""
    rng = random.Random(f"{seed}/lives")
    steps: list[Life] = []
    for kind in rng.sample((CLASSIC, CONSUMERS, SHARERS, "driver", "mixer"), rng.choice(HOW_MANY)):
        if kind == "driver":
            for number in range(2):
                steps += _driver(rng, f"driver {number}", topics, busy_ms)
        elif kind == "mixer":
            steps += _mixer(rng, busy_ms)
        else:
            for number in range(rng.choice((2, 3, 3, 4))):
                steps += _members(rng, f"{kind} {number}", busy_ms)
    more = random.Random(f"{seed}/one more group")
    if kind := more.choice(ONE_MORE):
        for number in range(more.choice((2, 3))):
            steps += _members(more, f"{kind} {number}", busy_ms)
    steps = [_with_protocol(more, step) for step in steps]
    return _with_static_members(random.Random(f"{seed}/static"), steps)


def _with_protocol(rng: random.Random, step: Life) -> Life:
    at_ms, who, what, how = step
    return (at_ms, who, what, {**how, "is_classic": rng.random() < 0.5}) if who.startswith(MIGRATING) else step


def _with_static_members(rng: random.Random, steps: Sequence[Life]) -> list[Life]:
    """Give instance ids to some members of consumer groups, sometimes the same one to two. Some of them stop and return."""
    instances: dict[str, str] = {}
    changed: list[Life] = []
    for at_ms, who, what, how in steps:
        kind = who.split()[0]
        if kind in CONSUMING and kind != STREAMS:
            if who not in instances:
                instances[who] = rng.choice(("", "", f"static {who}", f"static {who}", f"static {kind}"))
            if instances[who]:
                how = {**how, "instance": instances[who], "away_ms": rng.choice((None, 100, 500, 2000))}
        changed.append((at_ms, who, what, how))
    return changed


def _members(rng: random.Random, who: str, busy_ms: Sequence[int]) -> list[Life]:
    return [
        (
            at_ms + int(rng.expovariate(1 / 1500)),
            who,
            "live",
            {"for_ms": rng.choice((1000, 4000, 8000)), "ends": rng.choice(("stay", "stay", "leave", "vanish"))},
        )
        for at_ms in sorted(rng.sample(busy_ms, CALM_AFTER))
    ]


def _driver(rng: random.Random, who: str, topics: Mapping[str, Mapping[str, Any]], busy_ms: Sequence[int]) -> list[Life]:
    return [
        (
            rng.choice(busy_ms) + int(rng.expovariate(1 / 1500)),
            who,
            "batch",
            {
                "parts": [
                    [topic, rng.randrange(topics[topic]["partitions"]), rng.choice((1, 2, 5))]
                    for topic in rng.choices(TOPICS, k=rng.choice((1, 2, 3)))
                ],
                "tasks": rng.choice((1, 2, 3)),
                "end": rng.choice(("commit", "commit", "commit", "die", "die before", "abort")),
            },
        )
        for _ in range(10)
    ]


def _mixer(rng: random.Random, busy_ms: Sequence[int]) -> list[Life]:
    return [
        (
            rng.choice(busy_ms) + int(rng.expovariate(1 / 1500)),
            "mixer 0",
            "mix",
            {"commits": rng.choice(("t", "tp", "tp", "pt", "ptp")), "end": rng.choice(("commit", "commit", "abort"))},
        )
        for _ in range(14)
    ]
