"""What a history says, put in order: who sent what, what became of it, what may be gone, and what was there at the end."""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import attrs
from triolog.protocol.types import TopicPartition

from tests.support.logs import START_MS

from .. import history as h
from ..clocks import LONGEST_STEP_MS
from ..copies import COPY, copied
from ..groups.events import Staged

ENDLESS: Final = 2**63
ROUNDED_MS: Final = 2
"""By so much may times of events and of the server differ."""


class Anomaly(NamedTuple):
    kind: str
    detail: str


class Known(NamedTuple):
    """A record that was sent. `number`: how many were sent before it, by anybody; `index`: of the event."""

    sent: h.Sent
    partition: TopicPartition
    producer: str
    number: int
    transaction: str | None
    index: int
    at_ms: float

    @property
    def key(self) -> str:
        """Empty where it has none."""
        return self.sent.key or h.key_of(self.sent.id) or ""


class Told(NamedTuple):
    """When somebody was told that a record is stored: index of the event and time."""

    index: int
    at_ms: float


@attrs.define
class Setting:
    """A configuration of a topic, and while it may have been in effect: indexes and times of events, both ends included."""

    config: Mapping[str, str]
    first_index: int
    first_ms: float
    last_index: int = ENDLESS
    last_ms: float = ENDLESS

    @property
    def compacts(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "")


class Range:
    """The records of a partition at the end, by offset."""

    def __init__(self, stored: h.Stored) -> None:
        self.stored = stored
        self._offsets = [record.offset for record in stored.records]

    def between(self, start: int, stop: int) -> Sequence[h.Found]:
        return self.stored.records[bisect_left(self._offsets, start) : bisect_left(self._offsets, stop)]


@attrs.define(eq=False, slots=False)
class Facts:
    """What a history says, put in order."""

    sent: dict[str, Known] = attrs.field(factory=dict)
    acknowledged: dict[TopicPartition, dict[str, int]] = attrs.field(factory=lambda: defaultdict(dict))
    """Offset of each record that was and may not have been lost since; -1 where its producer was not told."""
    told: dict[str, Told] = attrs.field(factory=dict)
    """Of what was acknowledged."""
    seen: dict[TopicPartition, dict[int, str]] = attrs.field(factory=lambda: defaultdict(dict))
    """What anybody was told is where, and was there after each loss; empty where there is none."""
    refused: set[str] = attrs.field(factory=set)
    outcomes: dict[str, bool | None] = attrs.field(factory=dict)
    trimmed: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What was to be deleted."""
    expired: dict[TopicPartition, int] = attrs.field(factory=dict)
    compacted: set[TopicPartition] = attrs.field(factory=set)
    starts: dict[TopicPartition, int] = attrs.field(factory=dict)
    """Where a log began at least, once somebody was told so. What a deletion has raised counts once that was answered: before,
    a reader may see it, and a crash take it back."""
    stored: dict[tuple[TopicPartition, bool], Range] = attrs.field(factory=dict)
    configs: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    """What each topic was created with."""
    settings: dict[str, list[Setting]] = attrs.field(factory=lambda: defaultdict(list))
    """All that each topic was configured with, in this order."""
    deleted: dict[str, tuple[int, float]] = attrs.field(factory=dict)
    """Index and time of the event that says so, by topic."""
    damaged: dict[TopicPartition, list[range]] = attrs.field(factory=lambda: defaultdict(list))
    torn: dict[TopicPartition, list[range]] = attrs.field(factory=lambda: defaultdict(list))
    """Where readers may be told that something is missing, and nothing that was acknowledged may be."""
    can_lose: bool = False
    """Whether there is a loss at all."""
    losses: list[tuple[int, h.Lost]] = attrs.field(factory=list)
    """With the index of each event."""
    looked: dict[TopicPartition, int] = attrs.field(factory=dict)
    """Index of the event that last said what is left in a log after a loss."""
    ends: dict[TopicPartition, list[tuple[int, int]]] = attrs.field(factory=lambda: defaultdict(list))
    """Index of the event and the first offset that may have been lost, for each loss: behind the last record that is left there
    may have been markers, too."""
    shortened: set[TopicPartition] = attrs.field(factory=set)
    """Which have lost records or markers of which somebody was told."""
    passed: dict[TopicPartition, int] = attrs.field(factory=lambda: defaultdict(int))
    """Up to which offset anybody has read, or was told of."""
    staged: set[str] = attrs.field(factory=set)
    """Records that a crash tears out of a commit come behind the rest of it."""
    missed: dict[str, h.Lost] = attrs.field(factory=dict)
    """Records that somebody was told of, with the first loss after which they were not there."""
    shaken: set[str] = attrs.field(factory=set)
    """Transactions of which something may have been lost, the outcome too."""
    doubtful: set[str] = attrs.field(factory=set)
    """Producers who share an identity: to the server what one sends may repeat what the other one did."""
    clock: list[tuple[float, int]] = attrs.field(factory=lambda: [(0, 0)])
    """Since when the wall clock is so much ahead."""
    began_ms: int = START_MS
    """What the wall clock showed in the beginning."""
    checks_clock: bool = False
    """Whether the server does: then jumps do not count in `clock`."""
    jumps: list[int] = attrs.field(factory=list)
    """Indexes of those jumps."""
    broken_promises: list[Anomaly] = attrs.field(factory=list)

    def crosses_jump(self, record: str) -> bool:
        """Whether the clock jumped while the record was under way: it may be stored with a time of 1970 when the server's clock
        is right, and retention takes it like every record of that age."""
        end = self.told[record].index if record in self.told else ENDLESS
        return any(self.sent[record].index < jump < end for jump in self.jumps)

    def outcome(self, record: str) -> bool | None:
        """Whether it is in no transaction or a committed one; None: nobody knows."""
        transaction = self.sent[record].transaction
        return True if transaction is None else self.outcomes.get(transaction)

    def at_the_end(self, *, committed: bool) -> Iterable[h.Stored]:
        return (found.stored for (_, is_committed), found in self.stored.items() if is_committed is committed)

    @functools.cached_property
    def copied_by(self) -> frozenset[str]:
        """Transactions of which there is a copy that readers of committed records see."""
        records = (record for stored in self.at_the_end(committed=True) for record in stored.records)
        return frozenset(copied(record.id)[1] for record in records if record.id.startswith(COPY))

    def is_effective(self, transaction: str) -> bool:
        """Whether it was committed, be it that only its records say so."""
        return bool(self.outcomes.get(transaction)) or transaction in self.copied_by

    def is_compacted(self, partition: TopicPartition) -> bool:
        """Whether it ever was."""
        return partition in self.compacted or any(setting.compacts for setting in self.settings.get(partition.topic, ()))

    def may_be_compacted_since(self, partition: TopicPartition, sent: int, index: int) -> bool:
        """Whether a compaction may have met a record between two events."""
        return partition in self.compacted or any(
            setting.compacts and setting.last_index > sent and setting.first_index < index
            for setting in self.settings.get(partition.topic, ())
        )

    def is_shaken(self, record: str) -> bool:
        """Whether it belongs to a transaction of which nobody knows what is left."""
        known = self.sent.get(record)
        return known is not None and known.transaction in self.shaken

    def hits_damage(self, record: str) -> bool:
        """Whether a record was where somebody has damaged something."""
        where = self.sent[record].partition
        return bool(self.damaged.get(where)) and self.is_damaged(where, self.acknowledged[where].get(record, -1))

    def is_damaged(self, partition: TopicPartition, offset: int) -> bool:
        return any(offset in damage for damage in self.damaged.get(partition, ()))

    def kept_end(self, partition: TopicPartition, index: int) -> int:
        """Up to which offset what was there at an event cannot have been replaced by something else."""
        return min((end for at, end in self.ends.get(partition, ()) if at > index), default=ENDLESS)

    def has_lost(self, partition: TopicPartition) -> bool:
        """Whether offsets may have been given out a second time."""
        return partition in self.shortened

    def clock_between(self, first_ms: float, last_ms: float) -> tuple[float, float]:
        """The least and the most that the wall clock was ahead of the beginning, as far as it moves while nobody sets it."""
        slot = max(0, bisect_left(self.clock, (first_ms, -ENDLESS)) - 1)
        shown: list[float] = []
        for (since_ms, ahead_ms), (until_ms, _) in itertools.pairwise([*self.clock[slot:], (ENDLESS, 0)]):
            if since_ms <= last_ms:
                shown += [max(since_ms, first_ms) + ahead_ms, min(until_ms, last_ms) + ahead_ms]
        return min(shown), max(shown)

    @classmethod
    def of(cls, events: Sequence[h.Event]) -> Facts:
        facts = cls(can_lose=any(isinstance(event, h.Lost) for event in events))
        ended: dict[str, h.Ended] = {}
        for index, event in enumerate(events):
            facts._take(index, event, ended)
        facts._note_shared_identities(events)
        for transaction in facts.shaken:
            facts.outcomes[transaction] = None
        return facts

    def _take(self, index: int, event: h.Event, ended: dict[str, h.Ended]) -> None:
        match event:
            case h.Send():
                for record in event.records:
                    known = Known(
                        record, event.partition, event.producer, len(self.sent), event.transaction, index, event.at_ms
                    )
                    assert record.id not in self.sent, f"{record.id} is sent twice"
                    self.sent[record.id] = known
                if event.transaction is not None:
                    self.outcomes.setdefault(event.transaction, None)
            case h.Acknowledged():
                offsets = itertools.count(event.base_offset) if event.base_offset >= 0 else itertools.repeat(-1)
                self.acknowledged[event.partition].update(zip(event.ids, offsets, strict=False))
                self.told.update(dict.fromkeys(event.ids, Told(index, event.at_ms)))
                if self.can_lose and event.base_offset >= 0:
                    self.seen[event.partition].update(enumerate(event.ids, event.base_offset))
            case h.Polled() if self.can_lose:
                self.seen[event.partition].update((record.offset, record.id) for record in event.records)
                self.passed[event.partition] = max(self.passed[event.partition], event.next_position)
            case h.LookedUp() if self.can_lose and event.offset >= 0:
                self.passed[event.partition] = max(self.passed[event.partition], event.offset + 1)
            case h.GivenUp(is_refused=True):
                self.refused.update(event.ids)
            case h.Ended():
                self.outcomes[event.transaction] = event.is_committed
                ended[event.transaction] = event
            case h.Trims():
                self.trimmed[event.partition] = max(self.trimmed.get(event.partition, 0), event.before_offset)
            case h.Trimmed():
                self.starts[event.partition] = max(self.starts.get(event.partition, 0), event.before_offset)
            case h.Moved() if event.is_start and event.position > self.trimmed.get(event.partition, 0):
                self.starts[event.partition] = max(self.starts.get(event.partition, 0), event.position)
            case h.StartForgotten():
                self.starts.pop(event.partition, None)
            case h.Stored():
                self.stored[event.partition, event.is_committed] = Range(event)
            case h.Expires():
                self.expired[event.partition] = event.before_timestamp
            case h.Compacts():
                self.compacted.add(event.partition)
            case h.Made():
                self.configs[event.topic] = event.config
                self.settings[event.topic] = [Setting(event.config, index, event.at_ms)]
            case h.Configured():
                for setting in self.settings[event.topic][:-1]:
                    setting.last_index, setting.last_ms = min(setting.last_index, index), min(setting.last_ms, event.at_ms)
            case h.Configures():
                self.settings[event.topic].append(Setting(event.config, index, event.at_ms))
            case h.Deleted():
                self.deleted[event.topic] = index, event.at_ms
            case h.ClockChecked():
                self.checks_clock = True
            case h.ClockMoved() if self.checks_clock and abs(event.ms) > LONGEST_STEP_MS:
                self.jumps.append(index)
            case h.ClockMoved():
                self.clock.append((event.at_ms, self.clock[-1][1] + event.ms))
            case h.Damaged():
                self.damaged[event.partition].append(event.offsets)
            case Staged():
                self.staged.update(event.ids)
            case h.Torn():
                self.torn[event.partition] += event.gaps
            case h.Lost():
                self.losses.append((index, event))
                self._shake(event, ended)
            case h.Survived():
                self._take_back(index, event)

    def _shake(self, loss: h.Lost, ended: Mapping[str, h.Ended]) -> None:
        """Transactions that were not over so long ago that all of them is on the device."""
        for transaction in self.outcomes:
            end = ended.get(transaction)
            if end is None or loss.window_ms is None or end.at_ms > loss.at_ms - loss.window_ms:
                self.shaken.add(transaction)

    def _note_shared_identities(self, events: Sequence[h.Event]) -> None:
        """An epoch that was lost is given out again: what its two owners do is one to the server."""
        if not self.losses:
            return
        owners: dict[tuple[str, int, int], set[str]] = defaultdict(set)
        for event in events:
            if isinstance(event, h.Introduced):
                owners[event.transactional_id, event.producer_id, event.epoch].add(event.producer)
        self.doubtful.update(owner for each in owners.values() if len(each) > 1 for owner in each)
        for record, known in self.sent.items() if self.doubtful else ():
            if known.producer in self.doubtful:
                self.acknowledged[known.partition].pop(record, None)
                if known.transaction is not None:
                    self.shaken.add(known.transaction)

    def _take_back(self, index: int, event: h.Survived) -> None:
        """What somebody was told of and is not there any more is lost, if that was to be expected."""
        where, seen, acknowledged = event.partition, self.seen[event.partition], self.acknowledged[event.partition]
        synced = self.losses[-1][1].synced.get(where, 0)
        loss = self._loss_of(where)
        self.looked[where] = index
        if synced <= self.trimmed.get(where, 0):
            # What is about to be deleted need not be synced, nor does it count for what may be lost.
            synced = min(synced, self.starts.get(where, 0))
        lost = [offset for offset, record in seen.items() if offset >= synced and event.records.get(offset) != record]
        for offset in lost:
            self.missed.setdefault(seen[offset], loss)
        if self.is_compacted(where):
            # The partition may have been written and compacted since the loss, before anybody looked.
            end = max(event.end_offset, max(event.records, default=-1) + 1)
            there = {*event.records, *event.markers}
            lost = [offset for offset in lost if offset in there or offset >= end]
        lost = [offset for offset in lost if not self.is_damaged(where, offset)]
        self.damaged[where] += [range(max(gap.start, synced), gap.stop) for gap in event.gaps if gap.stop > synced]
        first = min(lost, default=ENDLESS)
        end = max([synced, *(offset + 1 for offset in event.records if offset < first)])
        self.ends[where].append((index, end if lost or self.passed[where] > end else ENDLESS))
        if lost or self.passed[where] > max(end, event.end_offset):
            self.shortened.add(where)
        for offset in lost:
            record = seen.pop(offset)
            if acknowledged.pop(record, None) is not None and offset >= self.trimmed.get(where, 0):
                self._judge_loss(record, offset, where, self.missed[record])
        for record in [record for record, offset in acknowledged.items() if offset < 0]:
            del acknowledged[record]

    def _loss_of(self, where: TopicPartition) -> h.Lost:
        """What may have taken something out of a log that was opened now: nobody was told of anything in it since then."""
        since = self.looked.get(where, -1)
        concerns = (loss for at, loss in self.losses if at > since and (loss.partitions is None or where in loss.partitions))
        return next(concerns, self.losses[-1][1])

    def _judge_loss(self, record: str, offset: int, where: TopicPartition, loss: h.Lost) -> None:
        age_ms = loss.at_ms - self.told[record].at_ms
        said = f"{record}@{offset} of {where}, acknowledged {age_ms:g} ms before"
        if self.configs.get(where.topic, {}).get("flush.messages") == "1":
            self._promised(f"{said}: each record is synced")
        elif loss.window_ms is not None and age_ms >= loss.window_ms:
            self._promised(f"{said}: {loss.window_ms:g} ms may be lost")
        elif age_ms > loss.oldest_ms.get(where, ENDLESS) + ROUNDED_MS:
            self._promised(f"{said}: the server knew of {loss.oldest_ms[where]:.1f} ms that may be lost")

    def _promised(self, detail: str) -> None:
        self.broken_promises.append(Anomaly("lost", f"after a loss: {detail}"))
