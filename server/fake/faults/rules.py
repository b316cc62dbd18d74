"""A fault rule of a test: the requests, or the operations of a device, that it applies to, its trigger, and its effect.

| part | fields |
|---|---|
| applies to | `api`, `topic`, `partition`, `group`, `transactional_id`, `client_id`, `node`; None matches anything |
| how often | `nth` (the first), `times` (at most), `probability` with `seed`, `once_per_member`, `rejoining`; or always |
| what happens | `error`, `delay_ms`, `hold`, `disconnect`, `black_hole`, `corrupt`, `truncate_to`, `throttle_ms`, `intercept` |
| `applied` | the broker carries the request out first, and only the response suffers; by default it does not, or only later |

Names may have `*` and `?`. The names of APIs are Kafka's (`Produce`, `LIST_OFFSETS`).

| effect of a disk rule | failure |
|---|---|
| `full` | writes and reservations of space fail with ENOSPC |
| `error` | the operation fails with EIO |
| `delay` | the operation takes `delay_ms` longer, or until the rule is released |
| `torn` | the next crash loses a part of the bytes written since the last sync, as a power cut does |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode

ONCE: Final = 1
MOST_NAMES: Final = 10
OPERATIONS: Final = ("write", "sync", "read")
DISK_EFFECTS: Final = ("full", "error", "delay", "torn")


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: a similar name or the known names."""
    import difflib  # for errors alone

    names = sorted(known)
    near = [each for each in names if each.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1)
    if near:
        return f" (did you mean {near[0]!r}?)"
    more = ", ..." if len(names) > MOST_NAMES else ""
    return f" (known: {', '.join(names[:MOST_NAMES])}{more})" if names else ""


class RuleError(ValueError):
    """A rule without an effect, or with unknown fields."""


@attrs.frozen
class Subject:
    """The names in a request that rules match."""

    api: str
    client_id: str
    node: int = 0
    topics: Mapping[str, Sequence[int]] = attrs.field(factory=dict)
    """Its topics with the partitions that it names."""
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    member_id: str = ""
    """Which member of a group asks, as far as it says."""
    is_joining: bool = False
    """The member joins its group, again or for the first time, or leaves it."""


@attrs.frozen(eq=False, repr=False)
class Intercepted:
    """A request that a function of the test answers."""

    subject: Subject
    version: int
    body: Any
    """The client's request, as `protocol.kafka.messages` has it. A change of it is served."""
    empty_answer: Callable[[], Any]
    """Makes an answer of the API with nothing in it."""
    serve: Callable[[], Awaitable[Any]]
    """Serves the request and returns the client's response; None if the client expects none."""

    @property
    def api(self) -> str:
        return self.subject.api


Intercept = Callable[[Intercepted], Any]
"""The response, or an awaitable of it; None: the response of the broker."""


def plain_name(api: str) -> str:
    """An API's name however it is written: `ListOffsets`, `LIST_OFFSETS`, `list-offsets`."""
    return api.replace("_", "").replace("-", "").lower()


@attrs.frozen
class Trigger:
    """The frequency of a rule, counted in requests that it applies to."""

    nth: int = 1
    times: int | None = None
    probability: float | None = None
    seed: int = 0
    once_per_member: bool = False
    """Once for each member of a group. Members without an id do not count."""
    rejoining: frozenset[str] | None = None
    """Ids of members: for each of them until it joins again or leaves, and for no other."""

    def __attrs_post_init__(self) -> None:
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise RuleError(f"nth={self.nth}, times={self.times}: both count from 1")
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise RuleError(f"probability={self.probability} is not between 0 and 1")

    def fires(self, matched: int, fired: int, random: Random) -> bool:
        """Return whether the rule fires for match number `matched` (from 1), after it fired `fired` times."""
        if matched < self.nth or (self.times is not None and fired >= self.times):
            return False
        return self.probability is None or random.random() < self.probability


@attrs.frozen(kw_only=True)
class Rule:
    """See the module."""

    api: frozenset[str] = frozenset()
    """Plain names."""
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    node: int | None = None
    trigger: Trigger = attrs.field(factory=Trigger)
    error: ErrorCode | None = None
    applied: bool = False
    delay_ms: int = 0
    hold: bool = False
    disconnect: bool = False
    black_hole: bool = False
    corrupt: bool = False
    truncate_to: int | None = None
    throttle_ms: int = 0
    intercept: Intercept | None = None
    """Asked for the answer. In programs only: it cannot be sent."""

    def __attrs_post_init__(self) -> None:
        if not self.effects:
            raise RuleError("a rule without an effect: set error, delay_ms, hold, disconnect, black_hole, corrupt, ...")
        if min(self.delay_ms, self.throttle_ms, self.truncate_to or 0) < 0:
            raise RuleError("delay_ms, throttle_ms and truncate_to cannot be negative")
        if len(ends := [name for name in _ENDS if name in self.effects]) > 1:
            raise RuleError(f"{' and '.join(ends)}: a request can end in only one of these ways")

    @property
    def effects(self) -> list[str]:
        """The names of the effects."""
        return [name for name in EFFECTS if (value := getattr(self, name)) or (name in _MAY_BE_0 and value is not None)]

    @property
    def is_about_partitions(self) -> bool:
        return self.topic is not None or self.partition is not None

    def applies_to(self, subject: Subject) -> bool:
        """Return whether the rule applies to a request with this subject."""
        return (
            (not self.api or plain_name(subject.api) in self.api)
            and is_one(self.client_id, (subject.client_id,))
            and is_one(self.group, subject.groups)
            and is_one(self.transactional_id, subject.transactional_ids)
            and (self.node is None or self.node == subject.node)
            and (not self.is_about_partitions or self._names_one_of(subject))
        )

    def _names_one_of(self, subject: Subject) -> bool:
        return any(
            self.names(topic, number) for topic, numbers in subject.topics.items() for number in (numbers or (self.partition,))
        )

    def names(self, topic: str, partition: int | None) -> bool:
        """Return whether the rule names this partition."""
        return is_one(self.topic, (topic,)) and (self.partition is None or self.partition == partition)

    def as_json(self) -> dict[str, Any]:
        """Return the rule as fields that `rule_of` accepts."""
        told = {**told_of(self), **told_of(self.trigger)}
        for name in ("api", "rejoining"):
            if name in told:
                told[name] = sorted(told[name])
        if self.error is not None:
            told["error"] = self.error.name
        if self.intercept is not None:
            told["intercept"] = getattr(self.intercept, "__qualname__", "a function")
        return told


@attrs.frozen(kw_only=True)
class DiskRule:
    """An operation, and a `path` with `*` and `?`, of the whole path or of its last parts."""

    effect: str
    operation: str | None = None
    path: str | None = None
    delay_ms: int = 0
    trigger: Trigger = attrs.field(factory=Trigger)

    def __attrs_post_init__(self) -> None:
        if self.effect not in DISK_EFFECTS:
            raise RuleError(f"effect={self.effect!r}, expected one of {', '.join(DISK_EFFECTS)}")
        if self.operation is not None and self.operation not in OPERATIONS:
            raise RuleError(f"operation={self.operation!r}, expected one of {', '.join(OPERATIONS)}")
        if (self.effect == "delay") != (self.delay_ms > 0):
            raise RuleError("delay_ms belongs to the effect delay, and must be above 0")
        if self.effect == "full" and self.operation not in (None, "write"):
            raise RuleError(f"{self.operation} does not fail on a full disk. A write does")

    def applies_to(self, operation: str, path: str) -> bool:
        wanted = self.operation or ("write" if self.effect == "full" else None)
        if self.effect == "torn" or (wanted is not None and wanted != operation):
            return False
        return self.names(path)

    def names(self, path: str) -> bool:
        return self.path is None or fnmatchcase(path, self.path) or fnmatchcase(path, f"*/{self.path}")

    def as_json(self) -> dict[str, Any]:
        return {**told_of(self), **told_of(self.trigger)}


def told_of(value: attrs.AttrsInstance) -> dict[str, Any]:
    """The fields of a value that are not at their defaults, without its trigger."""
    fields = attrs.fields(type(value))
    return {
        field.name: getattr(value, field.name)
        for field in fields
        if field.name != "trigger" and getattr(value, field.name) != field.default
    }


EFFECTS: Final = ("error", "delay_ms", "hold", "disconnect", "black_hole", "corrupt", "truncate_to", "throttle_ms", "intercept")
_MAY_BE_0: Final = frozenset({"error", "truncate_to"})
_ENDS: Final = ("error", "disconnect", "black_hole", "truncate_to", "intercept")
_TRIGGER: Final = frozenset(field.name for field in attrs.fields(Trigger))


def is_one(pattern: str | None, names: Iterable[str]) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)


def rule_of(told: Mapping[str, Any], apis: frozenset[str] = frozenset()) -> Rule:
    """A rule from names and values, as keywords, JSON or YAML have them; `once` stands for `times=1`. `apis`: the plain names
    that exist; none: any. Raises RuleError."""
    given = _given(told, Rule)
    if "api" in given:
        given["api"] = _plain_names(given["api"], apis)
    if "error" in given:
        given["error"] = _error(given["error"])
    if "rejoining" in given:
        given["rejoining"] = _member_ids(given["rejoining"])
    _check_types(given)
    return Rule(trigger=_trigger(given), **given)


def disk_rule_of(told: Mapping[str, Any]) -> DiskRule:
    """`rule_of` for the device. Raises RuleError."""
    given = _given(told, DiskRule)
    if "effect" not in given:
        raise RuleError(f"effect is missing. Use one of {', '.join(DISK_EFFECTS)}")
    try:
        return DiskRule(trigger=_trigger(given), **given)
    except TypeError as exc:
        raise RuleError(f"a value of the wrong kind: {exc}") from None


def _given(told: Mapping[str, Any], kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
    given = {name: value for name, value in told.items() if value is not None}
    fields = frozenset(field.name for field in attrs.fields(kind)) - {"trigger"} | _TRIGGER | {"once"}
    if unknown := given.keys() - fields:
        raise RuleError(f"{', '.join(sorted(unknown))}: no such field. Use {', '.join(sorted(fields))}")
    if given.pop("once", False):
        given["times"] = ONCE
    return given


def _trigger(given: dict[str, Any]) -> Trigger:
    """Take the fields of the trigger out."""
    return Trigger(**{name: given.pop(name) for name in list(given) if name in _TRIGGER})


def _plain_names(told: Any, apis: frozenset[str]) -> frozenset[str]:
    names = frozenset(plain_name(str(name)) for name in ([told] if isinstance(told, str) else told))
    if apis and (unknown := names - apis):
        first = min(unknown)
        raise RuleError(f"Kafka has no API {first!r}{hint(first, apis)}")
    return names


def _member_ids(told: Any) -> frozenset[str]:
    if not isinstance(told, (list, tuple, set, frozenset)) or not all(isinstance(each, str) for each in told):
        raise RuleError(f"rejoining={told!r} is not a list of member ids")
    return frozenset(told)


def _error(told: Any) -> ErrorCode:
    try:
        return ErrorCode[told] if isinstance(told, str) else ErrorCode(told)
    except (KeyError, ValueError):
        near = hint(told, ErrorCode.__members__) if isinstance(told, str) else ""
        raise RuleError(f"error={told!r}: Kafka has no error with that name or number{near}") from None


_STRINGS: Final = frozenset({"topic", "group", "transactional_id", "client_id"})
_FLAGS: Final = frozenset({"applied", "hold", "disconnect", "black_hole", "corrupt", "once_per_member"})
_NUMBERS: Final = frozenset({"partition", "node", "delay_ms", "truncate_to", "throttle_ms", "nth", "times", "seed"})


def _check_types(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if name in _STRINGS and not isinstance(value, str):
            raise RuleError(f"{name}={value!r} is not text")
        if name in _FLAGS and not isinstance(value, bool):
            raise RuleError(f"{name}={value!r} is neither true nor false")
        if name in _NUMBERS and not is_number:
            raise RuleError(f"{name}={value!r} is not a whole number")
        if name == "intercept" and not callable(value):
            raise RuleError(f"intercept={value!r} is not a function. Only rules inside a program can have one")
        if name == "probability" and not (is_number or isinstance(value, float)):
            raise RuleError(f"{name}={value!r} is not a number")
