"""What is done in a world of two servers: part of the world of the seed, and the operator's promotions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import attrs

from ..script import Script, Step, script_of

KINDS: Final = frozenset({"native", "kafka", "bundle", "mover", "zombie", "pipe", "reader", "looker", "http"})
TOPICS: Final = ("plain", "stamped", "in", "out")
DURATION_MS: Final = 100_000
PROMOTIONS_MS: Final = (30_000, 70_000)
SPREAD_MS: Final = 15_000
KEPT_OF_STEPS: Final = 0.6


def pair_of(seed: str) -> Script:
    """A world of a seed."""
    rng, whole = random.Random(f"{seed}/pair"), script_of(seed)
    kept = [each for each in whole.steps if _is_of_pair(each) and rng.random() < KEPT_OF_STEPS]
    steps = [attrs.evolve(each, at_ms=each.at_ms * DURATION_MS // 300_000) for each in kept]
    steps += [*_promotions(rng, random.Random(f"{seed}/deaf")), *_misfortunes(rng)]
    steps.sort(key=lambda step: step.at_ms)
    topics = {name: _topic(whole.topics[name]) for name in TOPICS}
    return Script(seed, "fsync", topics, tuple(steps))


def _is_of_pair(step: Step) -> bool:
    return step.who.split()[0] in KINDS and step.args.get("topic", "in") in TOPICS


def _topic(topic: Any) -> dict[str, Any]:
    """Without retention, and without the promise that a record is on one device: a mirror has it later."""
    left_out = ("retention.ms", "retention.bytes", "flush.messages")
    config = {key: value for key, value in topic["config"].items() if key not in left_out}
    return {"partitions": topic["partitions"], "config": config}


def _promotions(rng: random.Random, deaf: random.Random) -> Iterator[Step]:
    for number, at_ms in enumerate(PROMOTIONS_MS):
        how: dict[str, Any] = {
            "ends": rng.choice(("calm", "kill", "power")),
            "after": rng.choice((0, 0, rng.randrange(1, 30))),
            "demote_after": rng.choice((0, 0, rng.randrange(1, 12))),
            "for_ms": rng.choice((0, 2000)),
        }
        if number == 0:
            how["ends"] = rng.choice(("kill", "power"))
        how["deaf_ms"] = 0 if how["ends"] == "calm" else deaf.choice((0, 300, 1000))
        yield Step(at_ms + rng.randrange(SPREAD_MS), "operator", "promote", how)


def _misfortunes(rng: random.Random) -> Iterator[Step]:
    """The source stops and dies, and clients lose their connections; the link of the mirror breaks, and it dies."""
    lives: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
        ("restart", {"for_ms": 100, "unheard_ms": rng.choice((0, 200))}, None),
        ("kill", {"for_ms": rng.choice((0, 1000)), "after": rng.randrange(20)}, None),
        ("power", {"for_ms": rng.choice((0, 1000)), "after": rng.randrange(20)}, None),
        ("cut", {}, None),
        ("slow", {"ms": 40}, {"ms": 1}),
        ("weather", {"latency_ms": 20, "cuts": 0.02}, {"latency_ms": 0.5, "cuts": 0.0}),
        ("silence", {"is_silent": True}, {"is_silent": False}),
        ("flap", {"is_whole": True}, None),
        ("flap", {"is_whole": False}, None),
        ("end_mirror", {"is_power": True, "after": rng.randrange(40)}, None),
        ("end_mirror", {"is_power": rng.random() < 0.5, "after": rng.randrange(40)}, None),
        ("deafen", {"is_silent": True}, {"is_silent": False}),
    ]
    for what, begins, ends in lives:
        at_ms = rng.randrange(DURATION_MS)
        yield Step(at_ms, "operator", what, begins)
        if ends is not None:
            yield Step(at_ms + rng.choice((300, 2000)), "operator", what, ends)
