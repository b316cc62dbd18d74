"""Disk faults that a test injects: a full disk, I/O errors, slow syncs, writes that a crash tears.

| effect | failure |
|---|---|
| `full` | writes and reservations of space fail with ENOSPC |
| `error` | the operation fails with EIO |
| `delay` | the operation takes `delay_ms` longer, or until the rule is released |
| `torn` | the next crash loses a part of the bytes written since the last sync, as a power cut does |
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Final, NoReturn

import attrs

from .rules import RuleError, Trigger, told_of

Watcher = Callable[[], None]

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


@attrs.define(eq=False, repr=False)
class DiskFault:
    """A rule that stands: what has come of it. Owner: `DiskFaults`, under its lock; numbers may be read without it."""

    number: int
    rule: DiskRule
    _faults: DiskFaults
    matched: int = 0
    """Operations that it applies to."""
    fired: int = 0
    """Operations that it was carried out on."""
    is_released: bool = False
    """What it delays, and would delay, goes on."""
    random: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.rule.trigger.seed)

    def release(self) -> None:
        """Let go on what it delays; it delays nothing from now on."""
        self._faults.release(self)

    def watch(self, watcher: Watcher) -> None:
        """Call it at each change, in whichever thread that is, until `unwatch`."""
        self._faults.watch(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._faults.unwatch(watcher)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "matched": self.matched,
            "fired": self.fired,
            "is_released": self.is_released,
            **self.rule.as_json(),
        }


@attrs.define(eq=False, repr=False)
class DiskFaults:
    """The rules of a broker's device. Asked from worker threads, told by others: a lock is around all of it."""

    is_active: bool = False
    _faults: dict[int, DiskFault] = attrs.field(factory=dict)
    _last: int = 0
    _watchers: list[Watcher] = attrs.field(factory=list)
    _changed: threading.Condition = attrs.field(factory=threading.Condition)
    """The lock; notified when a delay may be over before its time."""

    def __iter__(self) -> Iterator[DiskFault]:
        with self._changed:
            return iter(list(self._faults.values()))

    def add(self, rule: DiskRule) -> DiskFault:
        """Let a rule stand, behind those that do."""
        with self._changed:
            self._last += 1
            fault = self._faults[self._last] = DiskFault(self._last, rule, self)
            self.is_active = True
            return fault

    def get(self, number: int) -> DiskFault:
        """Raises KeyError."""
        with self._changed:
            if number not in self._faults:
                raise KeyError(f"disk fault {number}")
            return self._faults[number]

    def release(self, fault: DiskFault) -> None:
        """Let go on what a rule delays; it delays nothing from now on."""
        with self._changed:
            self._release(fault)

    def remove(self, number: int) -> None:
        """Take a rule away, and let go on what it delays; one that is gone is fine."""
        with self._changed:
            fault = self._faults.pop(number, None)
            self.is_active = bool(self._faults)
            if fault is not None:
                self._release(fault)

    def clear(self) -> None:
        """Take all rules away."""
        for fault in self:
            self.remove(fault.number)

    def wake(self) -> None:
        """Let the delays that are under way look whether they are over."""
        with self._changed:
            self._changed.notify_all()

    def watch(self, watcher: Watcher) -> None:
        """Call it at each change, in whichever thread that is, until `unwatch`. It must not ask anything of the rules."""
        with self._changed:
            self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Once this returns, the watcher is not called any more."""
        with self._changed:
            self._watchers.remove(watcher)

    def check(self, operation: str, path: str) -> DiskFault | None:
        """The rule that delays an operation, if one does. Raises OSError when it is to fail."""
        with self._changed:
            for fault in self._faults.values():
                if fault.rule.applies_to(operation, path) and self._fires(fault):
                    return fault if fault.rule.effect == "delay" else _fail(fault.rule, path)
        return None

    def wait_out(self, fault: DiskFault, is_over: Callable[[], bool]) -> None:
        """Block the calling thread for as long as a rule delays an operation: less when it is released, or when `is_over`,
        which is asked first and after each `wake`."""
        with self._changed:
            self._changed.wait_for(lambda: fault.is_released or is_over(), timeout=fault.rule.delay_ms / 1000)

    def torn_bytes(self, path: str, unsynced_bytes: int) -> int:
        """Return how many bytes at the end of a file a crash loses."""
        with self._changed:
            for fault in self._faults.values():
                if fault.rule.effect == "torn" and unsynced_bytes and fault.rule.names(path) and self._fires(fault):
                    return fault.random.randint(1, unsynced_bytes)
        return 0

    def _release(self, fault: DiskFault) -> None:
        fault.is_released = True
        self._changed.notify_all()
        self._tell()

    def _fires(self, fault: DiskFault) -> bool:
        fault.matched += 1
        if not fault.rule.trigger.fires(fault.matched, fault.fired, fault.random):
            return False
        fault.fired += 1
        self._tell()
        return True

    def _tell(self) -> None:
        for watcher in list(self._watchers):
            watcher()


def _fail(rule: DiskRule, path: str) -> NoReturn:
    number = errno.ENOSPC if rule.effect == "full" else errno.EIO
    raise OSError(number, f"{os.strerror(number)} (asked for by a disk fault)", path)
