"""The steps of those who administer a world: drawn from the seed, beside the steps of the others.

| who | what |
|---|---|
| remaker, namer | a topic is deleted and created again while a producer that knows its name writes |
| owner, scribe, binder, visitor | the same with clients that know its id; partitions, policies and retention change too |
| operator | between two lives: `verify`, `repair`, `reindex`, `compact`, a restored backup, a list of topics that is gone |
| admin, group | accepted gaps, aborted transactions, deleted groups and offsets |
| hanger, registrar | hanging transactions, users, quotas |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .groups.lives import Life

REMAKING_STEPS: Final = 12
LIVING_SHARE: Final = 0.25
"""Of worlds that have the topic that lives several times: it costs about a sixth of a world."""
TOPIC_STEPS: Final = 10
WRITES: Final = 28
TRANSACTIONS: Final = 6
CALLS: Final = 6
SEGMENT_BYTES: Final = ("700", "3000")
POLICIES: Final = (
    {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    {"cleanup.policy": "delete", "retention.ms": "20000", "retention.bytes": "-1"},
    {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "3000"},
    {"cleanup.policy": "compact", "retention.ms": "5000", "retention.bytes": "-1"},
    {"cleanup.policy": "compact,delete", "retention.ms": "40000", "retention.bytes": "-1"},
)


def administration(seed: str, topics: Mapping[str, Mapping[str, Any]], busy_ms: Sequence[int], *, is_rough: bool) -> list[Life]:
    """All of them. `is_rough`: there is an operator."""
    steps = _remakes(random.Random(f"{seed}/remakes"), busy_ms, is_rough=is_rough)
    rng = random.Random(f"{seed}/administration")
    if rng.random() < LIVING_SHARE:
        steps += _topic_lives(rng, busy_ms, is_rough=is_rough)
    steps += _calls(rng, topics, busy_ms)
    if is_rough:
        steps += _tools(rng, topics, busy_ms)
        steps += _adoptions(random.Random(f"{seed}/adoptions"), busy_ms)
    return steps


def _at(rng: random.Random, busy_ms: Sequence[int]) -> int:
    return rng.choice(busy_ms) + int(rng.expovariate(1 / 1500))


def _remakes(rng: random.Random, busy_ms: Sequence[int], *, is_rough: bool) -> list[Life]:
    """It includes the next steps of the operator after some of them."""
    steps: list[Life] = []
    for _ in range(REMAKING_STEPS):
        at_ms = _at(rng, busy_ms)
        what = rng.choice(("fill", "remake", "remake"))
        steps.append((at_ms, "remaker 0", what, {"count": rng.choice((1, 2, 5, 12)), "share": rng.choice((0.0, 0.5, 1.0))}))
        if is_rough and rng.random() < 0.3:
            steps.append(_end_soon(rng, at_ms))
        if rng.random() < 0.5:
            wrote_ms = at_ms + rng.choice((-20, 0, 5, 50))
            steps.append((max(0, wrote_ms), "namer 0", "name", {"topic": "remade-0", "count": rng.choice((1, 5, 20))}))
    return steps


def _end_soon(rng: random.Random, at_ms: int) -> Life:
    end = {"for_ms": 0, "after": rng.randrange(30), "when": "now", "again": 0}
    return at_ms + rng.choice((5, 200, 1000)), "operator", rng.choice(("kill", "power")), end


def _topic_lives(rng: random.Random, busy_ms: Sequence[int], *, is_rough: bool) -> list[Life]:
    partitions = {"partitions": rng.choice((1, 2))}
    steps: list[Life] = [(0, "owner 0", "begin", {**partitions, "config": _created_with(rng)})]
    for _ in range(TOPIC_STEPS):
        at_ms = _at(rng, busy_ms)
        what = rng.choice(("again", "again", "grow", "configure", "configure", "configure", "cut"))
        args: dict[str, Any] = {"more": 1}
        if what == "again":
            args = {"partitions": rng.choice((1, 1, 2)), "config": _created_with(rng)}
        elif what == "configure":
            args = {"config": _configured(rng)}
        elif what == "cut":
            args = {"partition": rng.randrange(3), "share": rng.choice((0.5, 1.0))}
        steps.append((at_ms, "owner 0", what, args))
        if is_rough and rng.random() < 0.3:
            steps.append(_end_soon(rng, at_ms))
    for _ in range(TRANSACTIONS):
        parts = [{"partition": rng.randrange(4), "count": rng.choice((1, 3))} for _ in range(rng.choice((1, 2)))]
        end = {"end": rng.choice(("commit", "commit", "abort")), "pause_ms": rng.choice((0, 200, 2000))}
        steps.append((_at(rng, busy_ms), "binder 0", "bind", {"parts": parts, **end}))
    for _ in range(WRITES):
        who, at_ms = rng.choice(("scribe 0", "scribe 1", "visitor 0", "visitor 1")), _at(rng, busy_ms)
        args = {"partition": rng.randrange(4), "is_fresh": rng.random() < 0.5}
        if who.startswith("scribe"):
            count, batches = rng.choice(((1, 1), (2, 1), (12, 1), (1, 5), (2, 5)))
            steps.append((at_ms, who, "write", {**args, "count": count, "batches": batches}))
        else:
            steps.append((at_ms, who, "visit", {**args, "max_bytes": rng.choice((200, 5000, 10**6))}))
    return steps


def _configured(rng: random.Random) -> dict[str, str]:
    return {**rng.choice(POLICIES), "segment.bytes": rng.choice(SEGMENT_BYTES)}


def _created_with(rng: random.Random) -> dict[str, str]:
    return {
        **_configured(rng),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": rng.choice(("1000", "100000")),
        "file.delete.delay.ms": rng.choice(("0", "2000", "60000")),
    }


def _calls(rng: random.Random, topics: Mapping[str, Mapping[str, Any]], busy_ms: Sequence[int]) -> list[Life]:
    def partition(*names: str) -> dict[str, Any]:
        topic = rng.choice(names)
        return {"topic": topic, "partition": rng.randrange(topics[topic]["partitions"])}

    makers: list[Callable[[], tuple[str, str, dict[str, Any]]]] = [
        lambda: ("admin 0", "accept", {"topic": "plain"}),
        lambda: ("admin 0", "abort", {"transactional_id": "mover"}),
        lambda: ("group 0", "forget", partition("plain", "stamped", "in")),
        lambda: ("group 0", "disband", {}),
        lambda: (
            "hanger 0",
            "hang",
            {
                **partition("plain", "in"),
                "count": rng.choice((1, 5)),
                "pause_ms": rng.choice((0, 500, 3000)),
                "aborts": rng.random() < 0.7,
            },
        ),
        lambda: ("registrar 0", "quota", {"name": f"q{rng.randrange(2)}", "value": rng.choice((None, 1e6, 2e6))}),
        lambda: ("registrar 0", "user", {"name": f"u{rng.randrange(2)}", "is_there": rng.random() < 0.6}),
    ]
    return [(_at(rng, busy_ms), *rng.choice(makers)()) for _ in range(CALLS)]


def _adoptions(rng: random.Random, busy_ms: Sequence[int]) -> list[Life]:
    """Of a directory as Kafka leaves it, in a quarter of the worlds."""
    return [(_at(rng, busy_ms), "operator", "adopt", {"for_ms": 0})] if rng.random() < 0.25 else []


def _tools(rng: random.Random, topics: Mapping[str, Mapping[str, Any]], busy_ms: Sequence[int]) -> list[Life]:
    """Two of them: each ends a life."""
    tools = ("verify", "repair", "reindex", "restore", *(("compact",) if "keyed" in topics else ()))
    steps: list[Life] = []
    for what in rng.choices(tools, k=2):
        args: dict[str, Any] = {"for_ms": 0}
        if what != "verify":
            args |= {"end": rng.choice(("stop", "kill"))}
        if what == "compact":
            args |= {"topic": "keyed", "include_active": rng.random() < 0.5}
        steps.append((_at(rng, busy_ms), "operator", what, args))
    return steps
