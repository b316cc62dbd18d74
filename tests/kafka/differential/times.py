"""Times that a broker takes from its clock, under names that are the same for both brokers.

They are named by the request in whose window they lie. Within one request a broker may look at its clock more than once, as
Kafka does for each partition: so times of one request are equal, if the broker has told them as times of an append. One that
it has not told has another name, so that a batch whose time is not the one that was answered is noticed by the millisecond; and
so is every time that belongs to another request, or to none.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

import attrs

from .names import Symbol

APPENDED: Final = "append time of request"
UNTOLD: Final = "time within request"
BETWEEN: Final = "a time between requests"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class Times:
    """The windows of one broker's requests: (first, last) milliseconds, no two of which overlap. Requests are numbered alike on
    both sides, since both are asked the same."""

    clock: Callable[[], int] = now_ms
    _starts: list[int] = attrs.field(factory=list)
    _ends: list[int] = attrs.field(factory=list)
    _told: dict[int, set[int]] = attrs.field(factory=dict)
    """Times of appends that were answered, by the request in whose window they lie."""

    def begin(self) -> None:
        """A request comes next. Its window begins with a millisecond that is nobody else's."""
        while (now := self.clock()) <= (self._ends[-1] if self._ends else 0):
            """Not yet."""
        self._starts.append(now)
        self._ends.append(now)

    def extend(self) -> None:
        """The request is answered, or what the broker does behind its answer is done."""
        self._ends[-1] = self.clock()

    def tell(self, value: int) -> Any:
        """The name of a time that was answered as that of an append; one that the script made as it is."""
        number = self._request(value)
        if number is not None:
            self._told.setdefault(number, set()).add(value)
        return self.name(value)

    def name(self, value: int, *, is_of_append: bool = True) -> Any:
        """The name of any time; one that the script made as it is. That one which is no append's is the same as an append's of
        that request is chance."""
        if not self._starts or not self._starts[0] <= value <= self._ends[-1]:
            return value
        number = self._request(value)
        if number is None:
            return BETWEEN
        return Symbol(APPENDED if is_of_append and value in self._told.get(number, ()) else UNTOLD, number)

    def value(self, symbol: Symbol, milliseconds: int) -> int:
        """A time to look for: the first of a request's appends, or some milliseconds behind its last."""
        told = self._told[symbol.number]
        return max(told) + milliseconds if milliseconds else min(told)

    def _request(self, value: int) -> int | None:
        number = bisect_right(self._starts, value) - 1
        return number if number >= 0 and value <= self._ends[number] else None
