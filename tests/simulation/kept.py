"""What has to be there: of every record that was acknowledged, why it may be gone.

| where | what may be gone |
|---|---|
| everywhere | what was trimmed; what an operator damaged; what a loss took back (`facts`) |
| `cleanup.policy` has `delete` | the oldest, past `retention.ms` by the wall clock, or what leaves at least `retention.bytes` |
| it has `compact` | what a later record of its key replaces, unless that was aborted; aborted records; old tombstones |
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition

from .facts import Anomaly, Facts
from .history import Event, Polled, Refused, Stored, is_tombstone, key_of

NEVER: Final = -1
DAY_MS: Final = 86_400_000


def missing(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """Records that are not there and have to be: at the end, and of compacted topics in every poll that passes them."""
    keys = _Keys.of(events, facts)
    offsets = _by_partition(facts)
    for index, event in enumerate(events):
        if isinstance(event, Stored):
            yield from _lost(index, event, facts, keys, event.start_offset, event.end_offset)
        elif isinstance(event, Polled) and facts.is_compacted(event.partition):
            end = min(event.next_position, facts.kept_end(event.partition, index))
            told = [record for record in offsets.get(event.partition, ()) if facts.told[record].index < index]
            there = {record.id for record in event.records}
            for record in told:
                offset = facts.acknowledged[record]
                if event.position <= offset < end and record not in there:
                    yield from _judge(record, offset, index, event, facts, keys)


def refusals(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """Readers are told of damage where there is some, and nothing good is between: compaction leaves holes beside it."""
    for event in events:
        if not isinstance(event, Refused):
            continue
        where = event.partition
        stored = facts.stored.get((where, event.is_committed))
        offsets = [record.offset for record in stored.records] if stored is not None else []
        if not any(
            not any(event.offset <= offset < damage.start or damage.stop <= offset <= event.offset for offset in offsets)
            for damage in facts.damaged.get(where, ())
        ):
            yield Anomaly("refused", f"{event.who} in {where} at {event.offset}, where nobody has damaged anything")


def _by_partition(facts: Facts) -> dict[TopicPartition, list[str]]:
    found: dict[TopicPartition, list[str]] = defaultdict(list)
    for record in facts.acknowledged:
        found[facts.sent[record].partition].append(record)
    return found


def _lost(index: int, stored: Stored, facts: Facts, keys: _Keys, start: int, end: int) -> Iterator[Anomaly]:
    there = {record.id for record in stored.records}
    for record, offset in facts.acknowledged.items():
        if facts.sent[record].partition == stored.partition and record not in there and not 0 <= offset < start:
            yield from _judge(record, offset, index, stored, facts, keys)


def _judge(record: str, offset: int, index: int, event: Stored | Polled, facts: Facts, keys: _Keys) -> Iterator[Anomaly]:
    """Whether a record may be missing in what `event` has seen."""
    where, outcome = event.partition, facts.outcome(record)
    if (event.is_committed and outcome is not True) or facts.is_damaged(where, offset):
        return
    if facts.is_compacted(where) and (outcome is not True or keys.may_be_gone(record, offset, index, event.at_ms)):
        return
    kind = "committed records" if event.is_committed else "everything"
    yield Anomaly("lost", f"{record}@{offset} of {where}, for {event.who}, a reader of {kind}")


@attrs.define(eq=False)
class _Keys:
    """Who has replaced whom: by partition and key the offsets that were seen, with the index of the event that sent each."""

    facts: Facts
    seen: dict[tuple[TopicPartition, str], list[tuple[int, str]]] = attrs.field(factory=lambda: defaultdict(list))
    unseen: dict[tuple[TopicPartition, str], list[str]] = attrs.field(factory=lambda: defaultdict(list))
    """What was sent, was not refused and is known at no offset."""

    @classmethod
    def of(cls, events: Sequence[Event], facts: Facts) -> _Keys:
        keys = cls(facts)
        offsets = {record: offset for record, offset in facts.acknowledged.items() if offset >= 0}
        for index, event in enumerate(events):
            if isinstance(event, (Polled, Stored)) and facts.is_compacted(event.partition):
                kept_end = facts.kept_end(event.partition, index)
                offsets |= {record.id: record.offset for record in event.records if record.offset < kept_end}
        for record, known in facts.sent.items():
            key = key_of(record)
            if key is None or not facts.is_compacted(known.partition) or record in facts.refused:
                continue
            if record in offsets:
                keys.seen[known.partition, key].append((offsets[record], record))
            else:
                keys.unseen[known.partition, key].append(record)
        for each in keys.seen.values():
            each.sort()
        return keys

    def may_be_gone(self, record: str, offset: int, index: int, at_ms: int) -> bool:
        """Whether another record may have replaced it, or nothing has to say any more that its key was deleted."""
        key = key_of(record)
        assert key is not None, f"{record} has no key"
        place = self.facts.sent[record].partition, key
        later = self.seen.get(place, [])
        for _, other in later[bisect_right(later, (offset, record)) :]:
            if self._may_replace(other, index):
                return True
        # What nobody has seen may have replaced it, if something replaced that, or it was a tombstone.
        for other in self.unseen.get(place, ()):
            if is_tombstone(other) and self._may_replace(other, index) and self._may_expire(other, at_ms):
                return True
        return is_tombstone(record) and self._may_expire(record, at_ms)

    def _may_replace(self, other: str, index: int) -> bool:
        return self.facts.sent[other].index < index and self.facts.outcome(other) is not False

    def _may_expire(self, tombstone: str, at_ms: int) -> bool:
        """Whether so much may have passed by the wall clock since it was stored."""
        sent = self.facts.sent[tombstone]
        retention_ms = int(self.facts.configs[sent.partition.topic].get("delete.retention.ms", DAY_MS))
        first, last = self.facts.clock_between(sent.at_ms, at_ms)
        return last - first >= retention_ms


# ---- starts ------------------------------------------------------------------------------------------------------------------


def wrong_starts(stored: Stored, facts: Facts) -> Iterator[Anomaly]:
    """A log begins where it was trimmed to, or where retention has come to."""
    where, start, trimmed = stored.partition, stored.start_offset, facts.trimmed.get(stored.partition, 0)
    if start < facts.starts.get(where, 0) and not stored.is_committed:
        yield Anomaly("came back", f"{where} begins at {start}, and had begun at {facts.starts[where]}")
    config = facts.configs.get(where.topic, {})
    if start <= trimmed:
        return
    retention_ms = int(config.get("retention.ms", NEVER))
    retention_bytes = int(config.get("retention.bytes", NEVER))
    if "delete" not in config.get("cleanup.policy", "delete") or (retention_ms == NEVER and retention_bytes == NEVER):
        yield Anomaly("lost", f"{where} begins at {start}, asked was {trimmed}")
        return
    if stored.is_committed or (0 <= retention_bytes <= stored.size_bytes):
        return
    if retention_ms == NEVER:
        yield Anomaly("lost", f"{where} begins at {start} with {stored.size_bytes} bytes, {retention_bytes} are to stay")
        return
    for record, offset in facts.acknowledged.items():
        sent = facts.sent[record]
        if (
            sent.partition == where
            and trimmed <= offset < start
            and not _is_old(sent.sent.timestamp, retention_ms, stored, facts)
        ):
            yield Anomaly("lost", f"{record}@{offset} of {where}, which begins at {start}: it is not {retention_ms} ms old")


def _is_old(timestamp: int, retention_ms: int, stored: Stored, facts: Facts) -> bool:
    """Whether the wall clock has ever shown so much more than a record's timestamp."""
    _, latest = facts.clock_between(0, stored.at_ms)
    return timestamp + retention_ms < facts.began_ms + latest
