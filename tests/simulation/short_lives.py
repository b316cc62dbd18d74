"""Short lives: few clients do one thing for some seconds, and the life ends in front of a change of the disk.

The seed draws the life, its sizes, and the change: the k-th, or one near a moment (`device.moments`). `--enumerate` tries each.

| life | has |
|---|---|
| rolls | a producer and a reader of a log with small segments, a group's offsets, deleted records |
| transactions | two movers that fence each other, a pipe, a reader of committed records |
| stages | a driver that commits staged records, in so many batches that they are in several pages |
| damage | a producer and a reader, and a file that is damaged between two lives; no other end |
| compaction | two producers with keys, of which one gets no answer while compaction replaces what it has sent |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.simulation.history import Cut
from tests.simulation.script import HANGING_S, KEYED, Script, Step, script_of
from tests.simulation.world import simulate

SHORT: Final = "short "
"""What the seeds of short lives begin with."""
CUT: Final = " cut "
ENDLESS: Final = 10**9
CHANGES: Final = {"rolls": 150, "transactions": 250, "stages": 280, "compaction": 320}
"""Of the disk, in about a life."""
LEFT: Final = ("all", "sure", "hole", "0", "1")
"""What a cut can leave: see `Operator.crash`. Numbers are draws."""
SETTLED_S: Final = 15.0
"""Until groups are stable and retention and compaction have worked once more."""

Topics = dict[str, dict[str, Any]]


def world_of(seed: str) -> Script:
    """The world of a seed: of `7` a long one, of `short 7` a short life, of `stages 7 cut 42 hole` that life with that end."""
    if seed.startswith(SHORT):
        return short_script(seed)
    life, _, end = seed.partition(CUT)
    if not end:
        return script_of(seed)
    before, left = end.split()
    return with_cut(life_of(life.split()[0], life), int(before), left)


def seed_of(name: str, number: int, before: int, left: str) -> str:
    """The seed of a life's end in front of a change of the disk."""
    return f"{name} {number}{CUT}{before} {left}"


def changes_of(name: str, number: int) -> int:
    """How many changes of the disk the life has when nothing ends it."""
    history = simulate(world_of(seed_of(name, number, ENDLESS, "all")))
    return next(event.changes for event in history.events if isinstance(event, Cut))


def short_script(seed: str) -> Script:
    """A life that ends somewhere."""
    rng = random.Random(f"{seed}/cut")
    name = rng.choice(tuple(LIVES))
    script = life_of(name, seed)
    if name == "damage":
        return script
    end_ms = script.steps[-1].at_ms
    left = rng.choice(LEFT)
    if rng.random() < 0.5:
        return with_cut(script, rng.randrange(CHANGES[name]), left)
    ends = {"for_ms": 0, "after": rng.randrange(8), "when": rng.choice(MOMENTS_OF[name])}
    ends |= {"left": left} if left != "all" else {}
    end = Step(rng.randrange(end_ms), "operator", "kill" if left == "all" else "power", ends)
    return script.with_steps(sorted((*script.steps, end), key=lambda step: step.at_ms))


def life_of(name: str, seed: str) -> Script:
    """A life with this name, which nothing ends."""
    rng = random.Random(f"{seed}/{name}")
    topics, steps = LIVES[name](rng)
    durability = rng.choice(DURABILITIES[name])
    calm_s = HANGING_S if name == "transactions" else SETTLED_S
    in_order = tuple(sorted(steps, key=lambda step: step.at_ms))
    return Script(seed, durability, topics, in_order, rots=name == "damage", calm_s=calm_s)


def with_cut(script: Script, before: int, left: str) -> Script:
    """The life ends in front of the change `before` of the disk, the first for 0."""
    end = Step(0, "operator", "crash", {"before": before, "left": left, "life_ms": script.steps[-1].at_ms + 2000})
    return script.with_steps((end, *script.steps))


def _topic(rng: random.Random, **config: str) -> Mapping[str, Any]:
    small = {"segment.bytes": rng.choice(("700", "3000")), "index.interval.bytes": rng.choice(("0", "4096"))}
    delays = {"flush.messages": rng.choice(("1", "9223372036854775807")), "file.delete.delay.ms": "0"}
    return {"partitions": 1, "config": small | delays | config}


def _at(topic: str) -> dict[str, Any]:
    return {"topic": topic, "partition": 0}


def _rolls(rng: random.Random) -> tuple[Topics, list[Step]]:
    who = rng.choice(("kafka 0", "bundle 0", "native 0"))
    steps = [Step(rng.randrange(7000), who, "send", {**_at("plain"), "count": rng.choice((1, 3, 8))}) for _ in range(9)]
    steps += [Step(rng.randrange(7000), "reader 0", "poll", {**_at("plain"), "max_bytes": 10**6}) for _ in range(4)]
    steps += [Step(rng.randrange(7000), "group 0", "commit", _at("plain")) for _ in range(2)]
    steps += [Step(rng.randrange(2000, 7000), "admin 0", "trim", {**_at("plain"), "share": rng.choice((0.5, 1.0))})]
    return {"plain": dict(_topic(rng))}, steps


def _transactions(rng: random.Random) -> tuple[Topics, list[Step]]:
    steps = []
    for _ in range(6):
        parts = [{**_at(topic), "count": rng.choice((1, 3))} for topic in rng.sample(("plain", "in"), rng.choice((1, 2)))]
        fields = {"parts": parts, "end": rng.choice(("commit", "commit", "abort")), "pause_ms": rng.choice((0, 200))}
        steps.append(Step(rng.randrange(5000), rng.choice(("mover 0", "mover 0", "mover 1")), "transaction", fields))
    steps += [Step(rng.randrange(2000, 6000), "pipe 0", "pipe", {"end": "commit"}) for _ in range(2)]
    steps += [Step(rng.randrange(6000), "reader 1", "poll", {**_at("in"), "max_bytes": 10**6}) for _ in range(3)]
    return {name: dict(_topic(rng)) for name in ("plain", "in", "out")}, steps


def _stages(rng: random.Random) -> tuple[Topics, list[Step]]:
    steps = []
    for number in range(4):
        parts = [[rng.choice(("in", "in", "stamped")), 0, rng.choice((1, 2))] for _ in range(rng.choice((1, 3)))]
        fields = {"parts": parts, "tasks": rng.choice((1, 3, 4)), "end": rng.choice(("commit", "commit", "commit", "die"))}
        steps.append(Step(500 + 700 * number, "driver 0", "batch", fields))
    return {name: dict(_topic(rng, **{"segment.bytes": "3000"})) for name in ("in", "stamped")}, steps


def _compaction(rng: random.Random) -> tuple[Topics, list[Step]]:
    """Segments are compacted at 4 and 8 s, and the server syncs them at 5 and 10 s, or when one is full. What the first
    producer sends last, after that, is not on the device when those before are compacted for the last time."""
    first = [(200, 1), (1500 + rng.randrange(200), 1), (rng.choice((5500, 6800)) + rng.randrange(1000), rng.choice((1, 2)))]
    steps = [Step(at_ms, "keyed 0", "send", {**_at(KEYED), "count": count}) for at_ms, count in first]
    steps.append(Step(1000, "keyed 0", "deafen", {"for_ms": rng.choice((3000, 9000, 9000, 9000))}))
    for at_ms, count in ((1900, rng.choice((5, 12))), (2300, 5), (2800, rng.choice((5, 12))), (3400, 14), (6500, 14)):
        steps.append(Step(at_ms + rng.randrange(200), "keyed 1", "send", {**_at(KEYED), "count": count}))
    steps += [Step(at_ms, "reader 0", "poll", {**_at(KEYED), "max_bytes": 10**6}) for at_ms in (1800, 3000, 4500, 9500)]
    never = {"flush.messages": str(2**63 - 1)}
    config = {**never, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "700"}
    return {KEYED: dict(_topic(rng, **config, **{"delete.retention.ms": rng.choice(("1000", "30000"))}))}, steps


def _damage(rng: random.Random) -> tuple[Topics, list[Step]]:
    sends = [Step(rng.randrange(4000), "kafka 0", "send", {**_at("plain"), "count": rng.choice((1, 3))}) for _ in range(6)]
    polls = [Step(rng.randrange(6000), "reader 0", "poll", {**_at("plain"), "max_bytes": 10**6}) for _ in range(2)]
    share, bit = round(rng.random(), 3), rng.randrange(8)
    what, fields = rng.choice(
        (
            ("misprint", {"directory": 0, "share": share, "bit": bit}),
            ("shorten", {**_at("plain"), "batches": rng.choice((1, 2))}),
            ("overstart", {**_at("plain"), "by": rng.choice((1, 30))}),
            ("rot", {**_at("plain"), "share": share, "byte": round(rng.random(), 3), "bit": bit, "end": "kill"}),
        )
    )
    damages = [Step(rng.randrange(2500, 3500), "operator", what, {**fields, "for_ms": 0})]
    checks = {"fetch.check.crcs": "true", "gap.policy": rng.choice(("skip", "refuse"))}
    return {"plain": dict(_topic(rng, **checks))}, [*sends, *polls, *damages]


LIVES: Final[Mapping[str, Callable[[random.Random], tuple[Topics, list[Step]]]]] = {
    "rolls": _rolls,
    "transactions": _transactions,
    "stages": _stages,
    "compaction": _compaction,
    "damage": _damage,
}
DURABILITIES: Final = {  # the checker judges stages where nothing is lost
    "rolls": ("fsync", "group:20", "os"),
    "transactions": ("fsync", "group:20", "os"),
    "stages": ("fsync",),
    "compaction": ("fsync", "os", "os", "os"),
    "damage": ("fsync",),
}
MOMENTS_OF: Final = {
    "rolls": ("roll", "commit", "checkpoint", "deletion"),
    "transactions": ("commit", "marker"),
    "stages": ("stage", "commit"),
    "compaction": ("roll", "checkpoint", "swap", "deletion"),
}
"""Those that the life has. Together they are all of MOMENTS."""
