"""What is done in a world, when and by whom: made from a seed, shrunk step by step, kept as a file.

A world's chances (latency, order of tasks, what a power cut leaves) are drawn from the seed too, but not from this list: a
step that is taken out changes no other.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

import attrs

from tests.simulation.administration import administration
from tests.simulation.clocks import clock_steps, starts_in_1970
from tests.simulation.groups.lives import lives
from tests.simulation.posts import posts

DURATION_MS: Final = 300_000
HANGING_S: Final = 130.0
"""Until the server has ended transactions that nobody ends, and those of which a loss has taken half."""
STEPS: Final = 250
BUSY_TIMES: Final = 8
BUSY_MS: Final = 1500
"""Steps come in heaps of about so long: what happens at once is what goes wrong."""
KEYED: Final = "keyed"
"""The compacted topic."""
FEW_BYTES: Final = ("700", "3000", "20000")


@attrs.frozen
class Step:
    """One thing that somebody does; who is busy does it when the one before is over."""

    at_ms: int
    who: str
    what: str
    args: Mapping[str, Any] = attrs.field(factory=dict)

    def __str__(self) -> str:
        args = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at_ms / 1000:8.3f} s  {self.who:12} {self.what} {args}"


@attrs.frozen
class Script:
    seed: str
    durability: str
    topics: Mapping[str, Mapping[str, Any]]
    """By name: partitions and configuration."""
    steps: tuple[Step, ...]
    directories: int = 1
    calm_s: float = HANGING_S
    """How long the world goes on after its last step."""
    rots: bool = False
    """Whether bits flip. Then nothing is answered that was not checked, and closed segments are looked at from time to time."""
    starts_in_1970: bool = False
    """See `clocks`."""

    @property
    def has_keys(self) -> bool:
        """Whether a topic is compacted."""
        return KEYED in self.topics

    @property
    def limits(self) -> Mapping[str, Any]:
        """What the server is configured with."""
        scrub = {"scrub_bytes_per_second": 2**30, "scrub_interval_ms": 20_000} if self.rots else {}
        return {"cleaner_enable": self.has_keys or any(step.who == "owner 0" for step in self.steps), **scrub}

    def with_steps(self, steps: Iterable[Step]) -> Self:
        return attrs.evolve(self, steps=tuple(steps))

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        found = json.loads(text)
        return cls(**{**found, "steps": tuple(Step(**step) for step in found["steps"])})


def script_of(seed: str) -> Script:
    """A world of a seed."""
    rng = random.Random(f"{seed}/script")
    directories, rots = rng.choice((1, 1, 1, 2)), rng.random() < 0.3
    topics = _topics(rng, has_keys=rng.random() < 0.5, rots=rots)
    calm = rng.random() < 0.2
    busy_ms = sorted(rng.randrange(DURATION_MS) for _ in range(BUSY_TIMES))
    of_groups = [Step(*life) for life in lives(seed, topics, busy_ms)]
    moments = (
        *("roll", "commit", "marker", "checkpoint", "deletion"),
        *(("child", "swap") * 2 if KEYED in topics else ()),
        *(("stage",) * 3 if any(step.what == "batch" for step in of_groups) else ()),
    )
    chances = _Chances(rng, topics, directories, rots, not calm, (*("now",) * 3, *moments))
    weights = {who: weight for who, weight in WEIGHTS.items() if not (calm and who == "operator")}
    if KEYED in topics:
        weights |= KEYED_WEIGHTS
    others = [*administration(seed, topics, busy_ms, is_rough=not calm), *posts(seed, topics, busy_ms)]
    if in_1970 := starts_in_1970(seed):
        topics["plain"]["config"]["retention.ms"] = "40000"
        topics["plain"]["config"].pop("retention.bytes", None)
        others += clock_steps(seed, busy_ms)
    steps = [*of_groups, *(Step(*each) for each in others)]
    for _ in range(STEPS):
        who = rng.choices(list(weights), list(weights.values()))[0]
        at_ms = rng.choice(busy_ms) + int(rng.expovariate(1 / BUSY_MS))
        steps += chances.steps(who, at_ms)
    steps.sort(key=lambda step: step.at_ms)
    durability = rng.choice(("fsync", "fsync", "group:20", "os"))
    return Script(seed, durability, topics, tuple(steps), directories=directories, rots=rots, starts_in_1970=in_1970)


def _topics(rng: random.Random, *, has_keys: bool, rots: bool) -> dict[str, dict[str, Any]]:
    topics = {name: _topic(rng) for name in ("plain", "stamped", "in", "out")}
    if rng.random() < 0.3:
        retention = rng.choice(({"retention.ms": "40000"}, {"retention.bytes": "4000"}))
        topics["plain"]["config"] |= retention
    if has_keys:
        topics[KEYED] = _topic(rng)
        topics[KEYED]["config"] |= {
            "cleanup.policy": "compact",
            "segment.bytes": rng.choice(("700", "700", "2000")),
            "min.cleanable.dirty.ratio": rng.choice(("0.01", "0.3")),
            "delete.retention.ms": rng.choice(("1000", "30000", "100000")),
        }
    for topic in topics.values():
        topic["config"] |= {"file.delete.delay.ms": rng.choice(("0", "2000", "60000"))}
        if rots:
            topic["config"] |= {"fetch.check.crcs": "true", "gap.policy": rng.choice(("skip", "refuse"))}
    return topics


def _topic(rng: random.Random) -> dict[str, Any]:
    return {
        "partitions": rng.choice((1, 1, 2, 3)),
        "config": {
            "segment.bytes": rng.choice(FEW_BYTES),
            "index.interval.bytes": rng.choice(("0", "100", "4096")),
            "segment.index.bytes": rng.choice(("120", "1048576")),
            "flush.messages": rng.choice(("1", "9223372036854775807", "9223372036854775807")),
        },
    }


WEIGHTS: Final = {
    "native 0": 8,
    "native 1": 8,
    "kafka 0": 10,
    "kafka 1": 10,
    "bundle 0": 6,
    "mover 0": 5,
    "mover 1": 5,
    "zombie 0": 4,
    "zombie 1": 4,
    "pipe 0": 4,
    "pipe 1": 4,
    "reader 0": 10,
    "reader 1": 10,
    "group 0": 8,
    "looker 0": 6,
    "admin 0": 4,
    "operator": 6,
}
KEYED_WEIGHTS: Final = {"keyed 0": 14, "keyed 1": 10, "keeper 0": 7, "keeper 1": 4}


@attrs.frozen
class _Chances:
    rng: random.Random
    topics: Mapping[str, Mapping[str, Any]]
    directories: int
    rots: bool
    is_rough: bool
    """Whether there is an operator."""
    moments: tuple[str, ...]
    """What the operator can wait for before a kill or a power cut."""

    def steps(self, who: str, at_ms: int) -> list[Step]:
        make: Callable[[str, int], list[Step]] = getattr(self, "_" + who.split()[0])
        return make(who, at_ms)

    def _partition(self, *topics: str) -> dict[str, Any]:
        topic = self.rng.choice(topics or ("plain", "stamped", "in"))
        return {"topic": topic, "partition": self.rng.randrange(self.topics[topic]["partitions"])}

    def _native(self, who: str, at_ms: int) -> list[Step]:
        return [Step(at_ms, who, "send", {**self._partition(), "count": self.rng.choice((1, 1, 2, 5, 12))})]

    def _kafka(self, who: str, at_ms: int) -> list[Step]:
        count, batches = self.rng.choice(((1, 1), (1, 1), (2, 1), (12, 1), (1, 5), (1, 6), (2, 5)))
        return [Step(at_ms, who, "send", {**self._partition(), "count": count, "batches": batches})]

    def _bundle(self, who: str, at_ms: int) -> list[Step]:
        count, batches = self.rng.choice(((1, 2), (1, 3), (1, 5), (2, 2), (2, 5)))
        return [Step(at_ms, who, "send", {**self._partition(), "count": count, "batches": batches})]

    def _keyed(self, who: str, at_ms: int) -> list[Step]:
        if self.rng.random() < 0.15:
            return [Step(at_ms, who, "deafen", {"for_ms": self.rng.choice((1000, 9000))})]
        return [Step(at_ms, who, "send", {**self._partition(KEYED), "count": self.rng.choice((1, 1, 2, 5, 12))})]

    def _keeper(self, who: str, at_ms: int) -> list[Step]:
        end = self.rng.choice(("commit", "commit", "abort"))
        return [Step(at_ms, who, "transaction", {**self._partition(KEYED), "count": self.rng.choice((1, 3)), "end": end})]

    def _mover(self, who: str, at_ms: int) -> list[Step]:
        parts = [
            {**self._partition("plain", "in"), "count": self.rng.choice((1, 2, 5))} for _ in range(self.rng.choice((1, 2, 3)))
        ]
        ends = self.rng.choice(("commit", "commit", "abort"))
        return [Step(at_ms, who, "transaction", {"parts": parts, "end": ends, "pause_ms": self.rng.choice((0, 0, 200, 2000))})]

    def _zombie(self, who: str, at_ms: int) -> list[Step]:
        [step] = self._mover(who, at_ms)
        return [attrs.evolve(step, args={**step.args, "is_careless": self.rng.random() < 0.5})]

    def _pipe(self, who: str, at_ms: int) -> list[Step]:
        return [Step(at_ms, who, "pipe", {"end": self.rng.choice(("commit", "commit", "commit", "abort"))})]

    def _reader(self, who: str, at_ms: int) -> list[Step]:
        if KEYED in self.topics and self.rng.random() < 0.4:
            return [Step(at_ms, who, "rewind", self._partition(KEYED))]
        return [
            Step(
                at_ms,
                who,
                "poll",
                {**self._partition("plain", "stamped", "in", "out"), "max_bytes": self.rng.choice((1, 200, 5000, 10**6))},
            )
        ]

    def _group(self, who: str, at_ms: int) -> list[Step]:
        what = self.rng.choice(("commit", "commit", "resume"))
        return [Step(at_ms, who, what, self._partition())]

    def _looker(self, who: str, at_ms: int) -> list[Step]:
        return [Step(at_ms, who, "look", {**self._partition("stamped", "in"), "back_ms": self.rng.randrange(-500, 8000)})]

    def _admin(self, who: str, at_ms: int) -> list[Step]:
        what = self.rng.choice(("trim", "trim", "configure", "make", "delete"))
        if what == "trim":
            trim = Step(at_ms, who, what, {**self._partition("plain"), "share": round(self.rng.random(), 3)})
            cut = {"for_ms": 0, "after": self.rng.randrange(30), "when": "now", "again": self._again()}
            at_ms += self.rng.choice((5, 20, 3000))
            return [trim, Step(at_ms, "operator", "power", cut)] if self.is_rough and self.rng.random() < 0.5 else [trim]
        if what == "configure":
            return [Step(at_ms, who, what, {"topic": "plain", "config": {"segment.bytes": self.rng.choice(FEW_BYTES)}})]
        return [Step(at_ms, who, what, {"topic": f"made-{self.rng.randrange(3)}"})]

    def _operator(self, who: str, at_ms: int) -> list[Step]:
        lasts_ms = self.rng.choice((50, 300, 2000))
        later = at_ms + lasts_ms
        common = ("restart", "kill", "kill", "power", "power", "power", "clock", "slow", "weather", "silence", "cut", "fail")
        what = self.rng.choice((*common, *self._misfortunes()))
        if what == "restart":
            ends = {"for_ms": self.rng.choice((0, 100, 3000)), "unheard_ms": self.rng.choice((0, 100, 400))}
            return [Step(at_ms, who, what, ends)]
        if what in ("kill", "power"):
            after = self.rng.choice((0, 1, 2, 5, self.rng.randrange(40)))
            args = {"for_ms": self.rng.choice((0, 100, 3000)), "after": after, "when": self.rng.choice(self.moments)}
            args |= {"again": self._again()}
            if what == "power":
                args |= {"left": self.rng.choice(("", "", "hole", "sure"))}
            return [Step(at_ms, who, what, args)]
        if what == "overstart":
            return [Step(at_ms, who, what, {**self._partition("plain"), "by": self.rng.choice((1, 30)), "for_ms": 0})]
        if what == "misprint":
            where = {"directory": self.rng.randrange(self.directories), "share": round(self.rng.random(), 3)}
            return [Step(at_ms, who, what, {**where, "bit": self.rng.randrange(8), "for_ms": 0})]
        if what == "shorten":
            where = self._partition(*self.topics)
            return [Step(at_ms, who, what, {**where, "batches": self.rng.choice((1, 1, 2, 4)), "for_ms": 0})]
        if what in ("rot", "spoil"):
            return [Step(at_ms, who, what, self._damage(what))]
        if what == "fail_directory":
            number = self.rng.randrange(self.directories)
            return [Step(at_ms, who, what, {"directory": number}), Step(at_ms + 12_000, who, "replug", {"for_ms": 100})]
        if what == "clock":
            return [Step(at_ms, who, what, {"ms": self.rng.choice((-5000, -50, 50, 5000, 120_000))})]
        if what == "slow":
            latency_ms = self.rng.choice((5, 40, 300))
            return [Step(at_ms, who, what, {"ms": latency_ms}), Step(later, who, what, {"ms": 1})]
        if what == "weather":
            storm = {"latency_ms": self.rng.choice((2, 20, 200)), "cuts": self.rng.choice((0.0, 0.02, 0.2))}
            return [Step(at_ms, who, what, storm), Step(later, who, what, {"latency_ms": 0.5, "cuts": 0.0})]
        if what == "silence":
            return [Step(at_ms, who, what, {"is_silent": True}), Step(later, who, what, {"is_silent": False})]
        if what == "fail":
            operation = self.rng.choice(
                ("write", "write", "sync", "sync", "open", "read", "rename", "sync_directory", "truncate")
            )
            error = "ENOSPC" if operation in ("write", "sync") and self.rng.random() < 0.5 else "EIO"
            fail = Step(at_ms, who, what, {"operation": operation, "error": error, "skip": self.rng.randrange(5)})
            return [fail, *self._ends_after_failed_sync(at_ms)] if (operation, error) == ("sync", "EIO") else [fail]
        return [Step(at_ms, who, what)]

    def _ends_after_failed_sync(self, at_ms: int) -> list[Step]:
        """Sometimes the process ends that was told, and later the power is cut: what did the next one make of it?"""
        if self.rng.random() < 0.3:
            return []
        kill = {"for_ms": 0, "after": self.rng.choice((0, 5)), "when": "now", "again": 0}
        power = {**kill, "after": self.rng.randrange(10)}
        killed_ms = at_ms + self.rng.choice((100, 500, 2000))
        return [
            Step(killed_ms, "operator", "kill", kill),
            Step(killed_ms + self.rng.choice((500, 2000, 5000)), "operator", "power", power),
        ]

    def _again(self) -> int:
        """The change of the disk, if any, before which the next start is cut off."""
        return self.rng.choice((0, 0, 0, self.rng.randrange(1, 12), self.rng.randrange(1, 60)))

    def _misfortunes(self) -> tuple[str, ...]:
        """What not every world has."""
        return (
            *("spoil", "misprint", "overstart"),
            *(("rot",) * 4 + ("spoil",) + ("shorten",) * 2 if self.rots else ()),
            *(("fail_directory",) * 2 if self.directories > 1 else ()),
            *(("child",) if KEYED in self.topics else ()),
        )

    def _damage(self, what: str) -> dict[str, Any]:
        rng = self.rng
        share = round(rng.random(), 3)
        end = {"share": share, "end": rng.choice(("stop", "kill", "kill")), "for_ms": rng.choice((0, 100))}
        if what == "rot":
            where = self._partition(*self.topics)
            if rng.random() < 0.25:
                end["share"] = 0.999
            return {**where, **end, "byte": round(rng.random(), 4), "bit": rng.randrange(8), "again": self._again()}
        kind = rng.choice(("index", "aborted", "aborted", "producers", "epochs", "evidence", "checkpoint"))
        how = rng.choice(("lose", "cut") if kind == "index" else ("lose", "cut", "garble"))
        return {"directory": rng.randrange(self.directories), "kind": kind, "how": how, **end}


def shrink(script: Script, fails: Callable[[Script], bool], *, tries: int = 400) -> Script:
    """A script that fails, and of whose steps none can be left out, as far as `tries` runs tell."""
    size = max(1, len(script.steps) // 2)
    while size and tries > 0:
        at = 0
        while at < len(script.steps) and tries > 0:
            smaller = script.with_steps(script.steps[:at] + script.steps[at + size :])
            tries -= 1
            if fails(smaller):
                script = smaller
            else:
                at += size
        size = size // 2 if size > 1 else 0
    return script
