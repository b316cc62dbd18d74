"""Transactions whose marker is not on the device yet: a power cut could open them again.

Where nothing is synced for long (`durability=os`) there are many of them in one segment. What is asked of them is where the
earliest begins and who has some, so they are kept as few ranges of offsets: neighbours become one when there are too many. What
a range says holds until all of it is on the device: it may say more than there is, never less.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

from .producer_entry import CompletedTxn

MOST_RANGES: Final = 64


class _Range(NamedTuple):
    """Transactions that ended one after the other, the last one at `last_offset`."""

    first_offset: int
    """Where the earliest begins."""
    last_offset: int
    producers: frozenset[int]


class UnsyncedTransactions:
    """Owner: the state of a log's producers."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def __len__(self) -> int:
        """Of ranges: at most MOST_RANGES, and twice as many when a log was cut back."""
        return len(self._ranges)

    @property
    def first_offset(self) -> int | None:
        """First offset of the earliest one, None where there is none."""
        return min((each.first_offset for each in self._ranges), default=None)

    @property
    def producers(self) -> set[int]:
        """Whose they are."""
        return set[int]().union(*(each.producers for each in self._ranges))

    def add(self, txn: CompletedTxn) -> None:
        """Take in one that ends behind the others."""
        if len(self._ranges) >= MOST_RANGES:
            self._ranges = _fewer(self._ranges)
        self._ranges.append(_Range(txn.first_offset, txn.last_offset, frozenset((txn.producer_id,))))

    def on_recovery_point(self, offset: int) -> None:
        """All markers below `offset` are on the device."""
        if self._ranges:
            self._ranges = [each for each in self._ranges if each.last_offset >= offset]

    def take_over(self, others: UnsyncedTransactions, end_offset: int) -> None:
        """Those of a log that was cut back to `end_offset`."""
        kept = (each._replace(last_offset=min(each.last_offset, end_offset - 1)) for each in others._ranges)
        found = [*self._ranges, *(each for each in kept if each.first_offset < end_offset)]
        self._ranges = sorted(found, key=lambda each: each.last_offset)


def _fewer(ranges: list[_Range]) -> list[_Range]:
    """At most half of MOST_RANGES: one for each stretch of offsets, of equal length, in which some end."""
    bits = ((ranges[-1].last_offset - ranges[0].last_offset) // (MOST_RANGES // 2 - 1)).bit_length()
    found: list[_Range] = []
    for _, group in itertools.groupby(ranges, lambda each: each.last_offset >> bits):
        each = list(group)
        producers = frozenset[int]().union(*(one.producers for one in each))
        found.append(_Range(min(one.first_offset for one in each), each[-1].last_offset, producers))
    return found
