"""What a history says, put in order: who sent what, what became of it, and what was there at the end."""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import attrs
from triolog.protocol.types import TopicPartition

from ..history import (
    Acknowledged,
    Compacts,
    Ended,
    Event,
    Expires,
    Found,
    GivenUp,
    Send,
    Sent,
    Stored,
    Trims,
)

COPY: Final = "copy of "


class Anomaly(NamedTuple):
    kind: str
    detail: str


class Known(NamedTuple):
    """A record that was sent. `number`: how many were sent before it, by anybody."""

    sent: Sent
    partition: TopicPartition
    producer: str
    number: int
    transaction: str | None


class Range:
    """The records of a partition at the end, by offset."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self._offsets = [record.offset for record in stored.records]

    def between(self, start: int, stop: int) -> Sequence[Found]:
        """Those from `start` on and before `stop`."""
        return self.stored.records[bisect_left(self._offsets, start) : bisect_left(self._offsets, stop)]


@attrs.define(eq=False, slots=False)
class Facts:
    sent: dict[str, Known] = attrs.field(factory=dict)
    acknowledged: dict[TopicPartition, dict[str, int]] = attrs.field(factory=lambda: defaultdict(dict))
    """Offset of each record; -1 where its producer was not told."""
    refused: set[str] = attrs.field(factory=set)
    outcomes: dict[str, bool | None] = attrs.field(factory=dict)
    trimmed: dict[TopicPartition, int] = attrs.field(factory=dict)
    expired: dict[TopicPartition, int] = attrs.field(factory=dict)
    compacted: set[TopicPartition] = attrs.field(factory=set)
    stored: dict[tuple[TopicPartition, bool], Range] = attrs.field(factory=dict)

    def outcome(self, record: str) -> bool | None:
        """Whether it is in no transaction or a committed one; None: nobody knows."""
        transaction = self.sent[record].transaction
        return True if transaction is None else self.outcomes.get(transaction)

    def at_the_end(self, *, committed: bool) -> Iterable[Stored]:
        return (found.stored for (_, is_committed), found in self.stored.items() if is_committed is committed)

    @functools.cached_property
    def copied_by(self) -> frozenset[str]:
        """Transactions of which there is a copy that readers of committed records see."""
        records = (record for stored in self.at_the_end(committed=True) for record in stored.records)
        return frozenset(copied(record.id)[1] for record in records if record.id.startswith(COPY))

    def is_effective(self, transaction: str) -> bool:
        """Whether it was committed, be it that only its records say so."""
        return bool(self.outcomes.get(transaction)) or transaction in self.copied_by

    @classmethod
    def of(cls, events: Iterable[Event]) -> Facts:
        facts = cls()
        for event in events:
            facts._take(event)
        return facts

    def _take(self, event: Event) -> None:
        match event:
            case Send():
                for record in event.records:
                    known = Known(record, event.partition, event.producer, len(self.sent), event.transaction)
                    assert record.id not in self.sent, f"{record.id} is sent twice"
                    self.sent[record.id] = known
                if event.transaction is not None:
                    self.outcomes.setdefault(event.transaction, None)
            case Acknowledged():
                self.acknowledged[event.partition].update(zip(event.ids, itertools.count(event.base_offset), strict=False))
            case GivenUp(is_refused=True):
                self.refused.update(event.ids)
            case Ended():
                self.outcomes[event.transaction] = event.is_committed
            case Trims():
                self.trimmed[event.partition] = max(self.trimmed.get(event.partition, 0), event.before_offset)
            case Expires():
                self.expired[event.partition] = event.before_timestamp
            case Compacts():
                self.compacted.add(event.partition)
            case Stored():
                self.stored[event.partition, event.is_committed] = Range(event)


def copy_id(original: str, transaction: str) -> str:
    """The id of a copy that a pipe makes in a transaction."""
    return f"{COPY}{original} by {transaction}"


def copied(copy: str) -> tuple[str, str]:
    """Of what a copy is, and by which transaction."""
    original, _, transaction = copy.removeprefix(COPY).rpartition(" by ")
    return original, transaction
