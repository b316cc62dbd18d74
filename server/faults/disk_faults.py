"""What a test asks the device to do wrong: a full disk, errors of input and output, slow syncs, writes that a crash tears.

| effect | who is told |
|---|---|
| `full` | writes and reservations of space fail with ENOSPC |
| `error` | the operation fails with EIO |
| `delay_ms` | the operation takes longer |
| `torn` | of what was written since the last sync a part is missing after the next crash, as after a power cut |
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Final

import attrs

from .rules import RuleError, Trigger, told_of

OPERATIONS: Final = ("write", "sync", "read")
EFFECTS: Final = ("full", "error", "delay", "torn")


@attrs.frozen(kw_only=True)
class DiskRule:
    """`operation`, and `path` with `*` and `?` (of the whole path, or of its last parts), say what it applies to."""

    effect: str
    operation: str | None = None
    path: str | None = None
    delay_ms: int = 0
    trigger: Trigger = attrs.field(factory=Trigger)

    def __attrs_post_init__(self) -> None:
        if self.effect not in EFFECTS:
            raise RuleError(f"effect={self.effect!r}, expected one of {', '.join(EFFECTS)}")
        if self.operation is not None and self.operation not in OPERATIONS:
            raise RuleError(f"operation={self.operation!r}, expected one of {', '.join(OPERATIONS)}")
        if (self.effect == "delay") != (self.delay_ms > 0):
            raise RuleError("delay_ms belongs to the effect delay, and is above 0")
        if self.effect == "full" and self.operation not in (None, "write"):
            raise RuleError(f"{self.operation} does not fail on a full disk; a write does")

    def applies_to(self, operation: str, path: str) -> bool:
        wanted = self.operation or ("write" if self.effect == "full" else None)
        if self.effect == "torn" or (wanted is not None and wanted != operation):
            return False
        return self.names(path)

    def names(self, path: str) -> bool:
        return self.path is None or fnmatchcase(path, self.path) or fnmatchcase(path, f"*/{self.path}")

    def as_json(self) -> dict[str, Any]:
        return {**told_of(self), **told_of(self.trigger)}


_TRIGGER: Final = frozenset(field.name for field in attrs.fields(Trigger))
_FIELDS: Final = frozenset(field.name for field in attrs.fields(DiskRule)) - {"trigger"} | _TRIGGER | {"once"}


def disk_rule_of(told: Mapping[str, Any]) -> DiskRule:
    """A rule from names and values, as keywords, JSON or YAML have them. Raises RuleError."""
    given = {name: value for name, value in told.items() if value is not None}
    if unknown := given.keys() - _FIELDS:
        raise RuleError(f"{', '.join(sorted(unknown))}: no such field; there are {', '.join(sorted(_FIELDS))}")
    if "effect" not in given:
        raise RuleError(f"effect is missing; there are {', '.join(EFFECTS)}")
    if given.pop("once", False):
        given["times"] = 1
    try:
        trigger = Trigger(**{name: given.pop(name) for name in list(given) if name in _TRIGGER})
        return DiskRule(trigger=trigger, **given)
    except TypeError as exc:
        raise RuleError(f"a value of the wrong kind: {exc}") from None


@attrs.define(eq=False)
class DiskFault:
    """A rule that stands. Owner: `DiskFaults`, under its lock."""

    number: int
    rule: DiskRule
    matched: int = 0
    fired: int = 0
    random: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.rule.trigger.seed)

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "matched": self.matched, "fired": self.fired, **self.rule.as_json()}


@attrs.define(eq=False)
class DiskFaults:
    """The rules of a broker's device. Asked from worker threads, told by others: a lock is around the counters."""

    is_active: bool = False
    _faults: dict[int, DiskFault] = attrs.field(factory=dict)
    _last: int = 0
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __iter__(self) -> Iterator[DiskFault]:
        with self._lock:
            return iter(list(self._faults.values()))

    def add(self, rule: DiskRule) -> DiskFault:
        """Let a rule stand, behind those that do."""
        with self._lock:
            self._last += 1
            fault = self._faults[self._last] = DiskFault(self._last, rule)
            self.is_active = True
            return fault

    def remove(self, number: int) -> None:
        """Take a rule away; one that is gone is fine."""
        with self._lock:
            self._faults.pop(number, None)
            self.is_active = bool(self._faults)

    def clear(self) -> None:
        """Take all rules away."""
        with self._lock:
            self._faults.clear()
            self.is_active = False

    def delay_ms(self, operation: str, path: str) -> int:
        """How long an operation takes longer. Raises OSError when it is to fail."""
        with self._lock:
            for fault in self._faults.values():
                if fault.rule.applies_to(operation, path) and self._fires(fault):
                    return _carried_out(fault.rule, path)
        return 0

    def torn_bytes(self, path: str, unsynced_bytes: int) -> int:
        """How many of the last bytes of a file are lost in a crash."""
        with self._lock:
            for fault in self._faults.values():
                if fault.rule.effect == "torn" and unsynced_bytes and fault.rule.names(path) and self._fires(fault):
                    return fault.random.randint(1, unsynced_bytes)
        return 0

    @staticmethod
    def _fires(fault: DiskFault) -> bool:
        fault.matched += 1
        if not fault.rule.trigger.fires(fault.matched, fault.fired, fault.random):
            return False
        fault.fired += 1
        return True


def _carried_out(rule: DiskRule, path: str) -> int:
    if rule.effect == "delay":
        return rule.delay_ms
    number = errno.ENOSPC if rule.effect == "full" else errno.EIO
    raise OSError(number, f"{os.strerror(number)} (asked for by a disk fault)", path)
