"""Compares acknowledged records with arrived ones and those that the server reports as dropped, partition by partition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import attrs

from ....protocol.types import TopicPartition


@attrs.frozen(kw_only=True, slots=False)
class Account:
    """Of one partition."""

    place: TopicPartition
    written: Sequence[bytes]
    """Rows that were acknowledged, by offset."""
    refused: int = 0
    misplaced: int = 0
    """Records that were acknowledged at another offset than the next one."""
    arrived: Sequence[bytes]
    """Rows upstream, by offset there."""
    told: Sequence[tuple[int, int]] = ()
    """First and last offsets of gaps, as headers upstream have them."""
    dropped: int = 0
    """Records, as the server counts them."""

    @cached_property
    def once(self) -> set[bytes]:
        """Return the rows that were written and have arrived."""
        return set(self.arrived) & set(self.written)

    @property
    def duplicates(self) -> int:
        """Return how many records upstream are beyond one for each row."""
        return len(self.arrived) - len(set(self.arrived))

    @cached_property
    def told_offsets(self) -> list[int]:
        """Return the offsets in gaps."""
        return [offset for first, last in self.told for offset in range(first, last + 1)]

    @cached_property
    def is_ordered(self) -> bool:
        """Return whether the rows arrived in the order in which they were written, duplicates left out."""
        offsets = {row: offset for offset, row in enumerate(self.written)}
        found = [offsets[row] for row in dict.fromkeys(self.arrived) if row in offsets]
        return all(one < other for one, other in pairwise(found))

    @cached_property
    def wrong(self) -> list[str]:
        """Say what does not add up: every acknowledged record is upstream once, or was dropped and its gap is known there."""
        missing = [offset for offset, row in enumerate(self.written) if row not in self.once]
        claims = {
            f"{len(self.written):,} acknowledged are not {len(self.once):,} and {self.dropped:,} dropped": (
                len(self.written) == len(self.once) + self.dropped
            ),
            f"{len(missing):,} are missing, gaps have {len(self.told_offsets):,}": missing == self.told_offsets,
            f"{self.duplicates:,} arrived twice": not self.duplicates,
            f"{len(set(self.arrived) - self.once):,} were never written": set(self.arrived) == self.once,
            f"{self.misplaced:,} were acknowledged elsewhere": not self.misplaced,
        }
        return [f"{self.place}: {words}" for words, held in claims.items() if not held]


def sums(accounts: Sequence[Account]) -> dict[str, int | bool]:
    """Return a line of the table: the accounts of a topic together."""
    return {
        "written": sum(len(account.written) for account in accounts),
        "refused": sum(account.refused for account in accounts),
        "forwarded": sum(len(account.once) for account in accounts),
        "dropped": sum(account.dropped for account in accounts),
        "told": sum(len(account.told_offsets) for account in accounts),
        "duplicates": sum(account.duplicates for account in accounts),
        "adds_up": not any(account.wrong for account in accounts),
    }


@attrs.frozen(kw_only=True, slots=False)
class DeviceAccount:
    """Of messages with QoS 1: each one that is acknowledged arrives at least once."""

    published: Sequence[bytes]
    acknowledged: Sequence[bytes]
    arrived: Sequence[bytes]
    """Values upstream, by offset there."""

    @property
    def duplicates(self) -> int:
        """Return how many records upstream are beyond one for each message."""
        return len(self.arrived) - len(set(self.arrived))

    @property
    def once(self) -> set[bytes]:
        """Return the acknowledged messages that have arrived."""
        return set(self.arrived) & set(self.acknowledged)

    @cached_property
    def wrong(self) -> list[str]:
        """Say what does not add up."""
        claims = {
            "nothing was acknowledged": bool(self.acknowledged),
            f"{len(set(self.acknowledged) - self.once):,} acknowledged messages are missing": set(self.acknowledged)
            == self.once,
            f"{len(set(self.arrived) - set(self.published)):,} were never published": set(self.arrived) <= set(self.published),
        }
        return [words for words, held in claims.items() if not held]

    def sums(self) -> dict[str, int | bool]:
        """Return its line of the table, with the names that `sums` has."""
        return {
            "written": len(self.acknowledged),
            "refused": 0,
            "forwarded": len(self.once),
            "dropped": 0,
            "told": 0,
            "duplicates": self.duplicates,
            "adds_up": not self.wrong,
        }
