"""Whether it adds up: what was acknowledged, what arrived, what the server says it dropped, what it told the upstream.

Functions of collected facts, which ask nobody anything, so a test can hand them wrong ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import attrs

from ....protocol.types import TopicPartition
from ..checks import Check
from .week import CANCELLATIONS, DELAYS, DEPARTURES, PARTITIONS

STORAGE_ERRORS: Final = frozenset({"KAFKA_STORAGE_ERROR", "UNKNOWN_SERVER_ERROR"})
"""What a producer is told when the server could not write. Others are what was asked for: POLICY_VIOLATION, and
RECORD_LIST_TOO_LARGE, after which a producer sends the same in smaller pieces."""


@attrs.frozen(kw_only=True, slots=False)
class Account:
    """Of one partition."""

    place: TopicPartition
    written: Sequence[bytes]
    """Rows that were acknowledged, by offset."""
    refused: int = 0
    misplaced: int = 0
    arrived: Sequence[bytes]
    """Rows upstream, by offset there."""
    told: Sequence[tuple[int, int]] = ()
    """First and last offsets of gaps, as headers upstream have them."""
    dropped: int = 0
    """As the server has counted it."""
    differing: int = 0
    first_difference: str = ""

    @cached_property
    def once(self) -> set[bytes]:
        """What was written and has arrived, each row counted once."""
        return set(self.arrived) & set(self.written)

    @property
    def duplicates(self) -> int:
        return len(self.arrived) - len(set(self.arrived))

    @property
    def strangers(self) -> int:
        """Rows upstream that were never acknowledged."""
        return len(set(self.arrived)) - len(self.once)

    @cached_property
    def missing(self) -> list[int]:
        """Offsets of what was acknowledged and has not arrived."""
        return [offset for offset, row in enumerate(self.written) if row not in self.once]

    @cached_property
    def told_offsets(self) -> list[int]:
        return [offset for first, last in self.told for offset in range(first, last + 1)]

    @cached_property
    def is_ordered(self) -> bool:
        """Whether what arrived has the order in which it was written; what came twice is another matter."""
        offsets = {row: offset for offset, row in enumerate(self.written)}
        found = [offsets[row] for row in dict.fromkeys(self.arrived) if row in offsets]
        return all(one < other for one, other in pairwise(found))

    @property
    def adds_up(self) -> bool:
        """All that was acknowledged is upstream once or was counted as dropped, and the upstream was told of just that."""
        return (
            len(self.written) == len(self.once) + self.dropped
            and self.told_offsets == self.missing
            and not self.duplicates
            and not self.strangers
            and not self.misplaced
        )


@attrs.frozen(kw_only=True)
class TopicAccount:
    """A line of the table."""

    topic: str
    written: int
    refused: int
    forwarded: int
    dropped: int
    told: int
    duplicates: int
    adds_up: bool

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self, filter=lambda field, _: field.name != "topic")


def by_topic(accounts: Sequence[Account]) -> list[TopicAccount]:
    """In the order of the topics."""
    lines = []
    for topic in PARTITIONS:
        own = [account for account in accounts if account.place.topic == topic]
        lines.append(
            TopicAccount(
                topic=topic,
                written=sum(len(account.written) for account in own),
                refused=sum(account.refused for account in own),
                forwarded=sum(len(account.once) for account in own),
                dropped=sum(account.dropped for account in own),
                told=sum(len(account.told_offsets) for account in own),
                duplicates=sum(account.duplicates for account in own),
                adds_up=all(account.adds_up for account in own),
            )
        )
    return lines


def everything_adds_up(accounts: Sequence[Account]) -> Check:
    """Partition by partition."""
    wrong = [
        f"{account.place}: {len(account.written):,} acknowledged, {len(account.once):,} arrived, {account.dropped:,} counted "
        f"as dropped, {len(account.missing):,} missing, {len(account.told_offsets):,} told, {account.duplicates:,} twice, "
        f"{account.strangers:,} that nobody wrote"
        for account in accounts
        if not account.adds_up
    ]
    lines = by_topic(accounts)
    total = f"{sum(line.written for line in lines):,} = {sum(line.forwarded for line in lines):,} + "
    return Check(
        "what was acknowledged is upstream once, or was counted as dropped and told",
        bool(accounts) and not wrong,
        "; ".join(wrong) or total + f"{sum(line.dropped for line in lines):,}",
    )


def order_is_kept(accounts: Sequence[Account]) -> Check:
    """Each partition upstream has the order of the source."""
    wrong = [str(account.place) for account in accounts if not account.is_ordered]
    return Check(
        "each partition arrived in its order", bool(accounts) and not wrong, ", ".join(wrong) or f"{len(accounts)} partitions"
    )


def bytes_are_equal(accounts: Sequence[Account]) -> Check:
    """Key, value, timestamp and headers."""
    wrong = sum(account.differing for account in accounts)
    arrived = sum(len(account.arrived) for account in accounts)
    first = [f"{account.place} {account.first_difference}" for account in accounts if account.first_difference]
    return Check(
        "every record arrived as it was written",
        bool(arrived) and not wrong,
        "; ".join([f"{wrong:,} of {arrived:,} differ", *first]),
    )


def what_matters_is_complete(accounts: Sequence[Account]) -> Check:
    """Departures had to give way, delays lost nothing, and a producer was told of every cancellation that found no room."""
    lines = {line.topic: line for line in by_topic(accounts)}
    refused = [line.topic for line in lines.values() if line.refused]
    return Check(
        "what matters less gave way, what matters is complete, refused is only what was to be",
        lines[DEPARTURES].dropped > 0
        and not lines[DELAYS].dropped
        and not lines[CANCELLATIONS].dropped
        and refused == [CANCELLATIONS],
        ", ".join(f"{line.topic} {line.dropped:,} dropped {line.refused:,} refused" for line in lines.values()),
    )


def more_was_written_than_fits(written_bytes: int, room_bytes: int) -> Check:
    """Otherwise nothing was shown."""
    return Check(
        "more was written than the disk has room for",
        written_bytes > room_bytes > 0,
        f"{written_bytes / 1e6:.1f} MB of keys and values, room for {room_bytes / 1e6:.1f} MB",
    )


def no_producer_met_a_full_disk(errors: dict[str, int]) -> Check:
    """The server has answered no produce request with a failure of its storage. `errors`: how often each was answered."""
    said = ", ".join(f"{name} {count}" for name, count in errors.items())
    return Check("no producer met a full disk", not STORAGE_ERRORS & errors.keys(), f"refusals by the server: {said or 'none'}")


def killed_while_forwarding(statuses: dict[str, int], forwarded: int, total: int) -> Check:
    """Something was upstream and something was not."""
    said = ", ".join(f"{name} {status}" for name, status in statuses.items())
    return Check(
        "everything was killed in the middle of forwarding",
        set(statuses.values()) == {-9} and 0 < forwarded < total,
        f"exit status of {said}, with {forwarded:,} of {total:,} upstream",
    )
