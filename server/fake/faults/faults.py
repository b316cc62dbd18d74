"""The rules of a broker and how often each has fired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import attrs

from .rules import Rule, Subject

Watcher = Callable[[], None]


@attrs.define(eq=False, repr=False)
class Fault:
    """A rule that stands: what has come of it. Owner: `Faults`."""

    number: int
    rule: Rule
    matched: int = 0
    """Requests that it applies to."""
    fired: int = 0
    """Requests that it was carried out on."""
    is_released: bool = False
    """What it holds, and would hold, goes on."""
    is_removed: bool = False
    _members: set[str] = attrs.field(factory=set)
    """Those that it was carried out on, where that counts."""
    _watchers: list[Watcher] = attrs.field(factory=list)
    _random: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = Random(self.rule.trigger.seed)

    def decide(self, member_id: str) -> bool:
        """Count a request that the rule applies to, and say whether it fires. `member_id`: of a group, who asks."""
        self.matched += 1
        if self.rule.trigger.once_per_member and (not member_id or member_id in self._members):
            return False
        if not self.rule.trigger.fires(self.matched, self.fired, self._random):
            return False
        self.fired += 1
        if self.rule.trigger.once_per_member:
            self._members.add(member_id)
        self._changed()
        return True

    def release(self) -> None:
        """Let go on what it holds; it holds nothing from now on."""
        self.is_released = True
        self._changed()

    def removed(self) -> None:
        self.is_removed = True
        self.release()

    def watch(self, watcher: Watcher) -> None:
        """Call it at each change, until `unwatch`."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    def _changed(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "matched": self.matched,
            "fired": self.fired,
            "is_released": self.is_released,
            **self.rule.as_json(),
        }


@attrs.define(eq=False, repr=False)
class Faults:
    """Owner: the broker's trio thread. While there is no rule, `is_active` is all that a request looks at."""

    is_active: bool = False
    _faults: dict[int, Fault] = attrs.field(factory=dict)
    _last: int = 0

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults.values()))

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, rule: Rule) -> Fault:
        """Let a rule stand, behind those that do."""
        self._last += 1
        fault = self._faults[self._last] = Fault(self._last, rule)
        self.is_active = True
        return fault

    def get(self, number: int) -> Fault:
        """Raises KeyError."""
        if number not in self._faults:
            raise KeyError(f"fault {number}")
        return self._faults[number]

    def remove(self, number: int) -> None:
        """Take a rule away, and let go on what it holds; one that is gone is fine."""
        fault = self._faults.pop(number, None)
        self.is_active = bool(self._faults)
        if fault is not None:
            fault.removed()

    def clear(self) -> None:
        """Take all rules away."""
        for number in list(self._faults):
            self.remove(number)

    def decide(self, subject: Subject) -> Fault | None:
        """The first rule that fires for a request; those before it have counted it, those behind it have not seen it."""
        for fault in self._faults.values():
            if fault.rule.applies_to(subject) and fault.decide(subject.member_id):
                return fault
        return None
