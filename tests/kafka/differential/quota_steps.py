"""Requests about client quotas."""

from __future__ import annotations

from typing import Final

from tests.support.kafka_quotas import (
    ANY,
    CONNECTIONS,
    DEFAULT,
    EXACT,
    FETCHED,
    MUTATIONS,
    PERCENT,
    PRODUCED,
    Parts,
    Values,
    altering,
    asking,
)

from .world import Step, World

KINDS: Final = ("user", "client-id", "ip")
NAMES: Final = {
    "user": ("u", "v", "größe/ü:", "x" * 300, None),
    "client-id": ("c", "d", "%", None),
    "ip": ("1.2.3.4", "::1", "no host.", None),
    "group": ("x", None),
    "": ("x",),
}
KEYS: Final = (PRODUCED, FETCHED, PERCENT, MUTATIONS, CONNECTIONS)
FEW: Final = (0.0, -1.0, 0.5, 1.0, 1.5, 1.0000001, 7.0)
PLENTY: Final = (1e9, 1e10, 1e300, float("inf"), 9.3e18, 2147483648.0)
"""What keeps the connection of the script from nothing, though it is of the default user."""


def alter(world: World) -> Step:
    """One entity or two; what is left of them is described from then on."""
    entries: dict[frozenset[tuple[str, str | None]], tuple[Parts, Values]] = {}
    for _ in range(world.mostly(1, 2, 0)):
        parts = _entity(world)
        # Of an entity twice in a request Kafka takes the first and refuses both: a deviation.
        entries[frozenset(parts)] = (parts, _values(world, parts))
    body = altering(*entries.values(), validate_only=world.chance(0.1))
    return world.step(body, changes_metadata=True)


def _entity(world: World) -> Parts:
    if world.chance(0.03):
        return world.one_of([[], [("user", "u"), ("user", "v")], [("user", "")], [("group", "x")], [("", "x")]])
    if world.chance(0.05):
        return [("ip", "1.2.3.4"), (world.one_of(["user", "client-id"]), "u")]
    kinds = world.one_of([["user"], ["client-id"], ["user", "client-id"], ["client-id", "user"], ["ip"]])
    return [(kind, world.one_of(NAMES[kind])) for kind in kinds]


def _values(world: World, parts: Parts) -> Values:
    is_default = all(name is None for _, name in parts)
    known = (CONNECTIONS,) if any(kind == "ip" for kind, _ in parts) else KEYS[:-1]
    values: list[tuple[str, float | None]] = []
    for _ in range(world.mostly(1, 2, 0, 3, usually=0.7)):
        key = world.mostly(world.one_of(known), world.one_of(KEYS), "bogus", "", "SCRAM-SHA-256", usually=0.93)
        value = world.one_of(PLENTY if is_default else (*FEW, *PLENTY))
        values.append((key, None if world.chance(0.3) else value))
    return values


def describe(world: World) -> Step:
    """By kinds that are asked for, one way or another."""
    components: list[tuple[str, int, str | None]] = []
    for kind in world.one_of([[], ["user"], ["client-id"], ["ip"], ["user", "client-id"], ["client-id", "user"]]):
        match = world.mostly(world.one_of([EXACT, DEFAULT, ANY]), 7, usually=0.97)
        components.append((kind, match, _name(world, kind, match)))
    if world.chance(0.08):
        components.append((world.one_of([*KINDS, "group", ""]), world.one_of([EXACT, ANY]), world.one_of(["u", None])))
    return world.step(asking(*components, strict=world.chance(0.4)))


def _name(world: World, kind: str, match: int) -> str | None:
    if match == EXACT:
        return world.mostly(world.one_of(NAMES[kind]), "", "nobody")
    return world.mostly(None, "x", usually=0.97)
