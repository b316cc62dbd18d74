"""The rules of a broker, for its requests and for its device, and how often each has fired."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

import attrs

from .rules import DiskRule, Rule, Subject

R = TypeVar("R", Rule, DiskRule)
Watcher = Callable[[], None]


@attrs.define(eq=False, repr=False)
class Fault(Generic[R]):
    """A rule in force, with its counts. Owner: its `FaultRules`, under its lock; numbers may be read without it."""

    number: int
    rule: R
    _rules: FaultRules[R]
    matched: int = 0
    """Requests, or operations, that it applies to."""
    fired: int = 0
    """Requests, or operations, that it was carried out on."""
    is_released: bool = False
    """What it holds or delays, and would, goes on."""
    _members: set[str] = attrs.field(factory=set)
    """Those that it was carried out on, or that have joined again, where that counts."""
    random: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.rule.trigger.seed)

    def fires(self, member_id: str = "", *, is_joining: bool = False) -> bool:
        """Count a match of the rule, and return whether it fires. `member_id`: the member of a group that sent the request."""
        self.matched += 1
        trigger = self.rule.trigger
        if trigger.once_per_member and (not member_id or member_id in self._members):
            return False
        if trigger.rejoining is not None:
            if is_joining:
                self._members.add(member_id)
            if member_id not in trigger.rejoining - self._members:
                return False
        if not trigger.fires(self.matched, self.fired, self.random):
            return False
        self.fired += 1
        if trigger.once_per_member:
            self._members.add(member_id)
        return True

    def release(self) -> None:
        """Release everything that it holds or delays, now and from now on."""
        self._rules.release(self)

    def watch(self, watcher: Watcher) -> None:
        """Call it at each change, in whichever thread that is, until `unwatch`."""
        self._rules.watch(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._rules.unwatch(watcher)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "matched": self.matched,
            "fired": self.fired,
            "is_released": self.is_released,
            **self.rule.as_json(),
        }


@attrs.define(eq=False, repr=False)
class FaultRules(Generic[R]):
    """The rules of one kind. A lock protects all of it, because worker threads read the device's rules. Without rules, only
    `is_active` is read.
    """

    KIND: ClassVar[str]

    is_active: bool = False
    _faults: dict[int, Fault[R]] = attrs.field(factory=dict)
    _last: int = 0
    _watchers: list[Watcher] = attrs.field(factory=list)
    _changed: threading.Condition = attrs.field(factory=threading.Condition)
    """The lock; notified when a delay may be over before its time."""

    def __iter__(self) -> Iterator[Fault[R]]:
        with self._changed:
            return iter(list(self._faults.values()))

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, rule: R) -> Fault[R]:
        """Add a rule after those in force."""
        with self._changed:
            self._last += 1
            fault = self._faults[self._last] = Fault(self._last, rule, self)
            self.is_active = True
            return fault

    def get(self, number: int) -> Fault[R]:
        """Raises KeyError."""
        with self._changed:
            if number not in self._faults:
                raise KeyError(f"{self.KIND} {number}")
            return self._faults[number]

    def release(self, fault: Fault[R]) -> None:
        """Release everything that a rule holds or delays, now and from now on."""
        with self._changed:
            fault.is_released = True
            self._changed.notify_all()
            self._tell()

    def remove(self, number: int) -> None:
        """Remove a rule, and release everything that it holds or delays. A rule that is already gone is fine."""
        with self._changed:
            fault = self._faults.pop(number, None)
            self.is_active = bool(self._faults)
            if fault is not None:
                self.release(fault)

    def clear(self) -> None:
        """Take all rules away."""
        for fault in self:
            self.remove(fault.number)

    def watch(self, watcher: Watcher) -> None:
        """Call it at each change, in whichever thread that is, until `unwatch`. It must not ask anything of the rules."""
        with self._changed:
            self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Once this returns, the watcher is not called any more."""
        with self._changed:
            self._watchers.remove(watcher)

    def _first(self, applies_to: Callable[[R], bool], member_id: str = "", *, is_joining: bool = False) -> Fault[R] | None:
        """Return the first rule that fires. Earlier rules have counted the match, later ones have not seen it."""
        with self._changed:
            for fault in self._faults.values():
                if applies_to(fault.rule) and fault.fires(member_id, is_joining=is_joining):
                    self._tell()
                    return fault
        return None

    def _tell(self) -> None:
        for watcher in list(self._watchers):
            watcher()


@attrs.define(eq=False, repr=False)
class Faults(FaultRules[Rule]):
    """The rules of a broker's requests."""

    KIND: ClassVar[str] = "fault"

    def decide(self, subject: Subject) -> Fault[Rule] | None:
        """Return the rule that fires for a request, if one does."""
        return self._first(lambda rule: rule.applies_to(subject), subject.member_id, is_joining=subject.is_joining)


@attrs.define(eq=False, repr=False)
class DiskFaults(FaultRules[DiskRule]):
    """The rules of a broker's device."""

    KIND: ClassVar[str] = "disk fault"

    def wake(self) -> None:
        """Let the delays that are under way look whether they are over."""
        with self._changed:
            self._changed.notify_all()

    def check(self, operation: str, path: str) -> Fault[DiskRule] | None:
        """The rule that delays an operation, if one does. Raises OSError when it is to fail."""
        fault = self._first(lambda rule: rule.applies_to(operation, path))
        return fault if fault is None or fault.rule.effect == "delay" else _fail(fault.rule, path)

    def wait_out(self, fault: Fault[DiskRule], is_over: Callable[[], bool]) -> None:
        """Block the calling thread for as long as a rule delays an operation: less when it is released, or when `is_over`,
        which is checked first and after each `wake`.
        """
        with self._changed:
            self._changed.wait_for(lambda: fault.is_released or is_over(), timeout=fault.rule.delay_ms / 1000)

    def torn_bytes(self, path: str, unsynced_bytes: int) -> int:
        """Return how many bytes at the end of a file a crash loses."""
        if not unsynced_bytes:
            return 0
        fault = self._first(lambda rule: rule.effect == "torn" and rule.names(path))
        return 0 if fault is None else fault.random.randint(1, unsynced_bytes)


def _fail(rule: DiskRule, path: str) -> NoReturn:
    number = errno.ENOSPC if rule.effect == "full" else errno.EIO
    raise OSError(number, f"{os.strerror(number)} (injected by a disk fault)", path)
