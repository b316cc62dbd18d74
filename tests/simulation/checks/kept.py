"""What has to be there: of every record that was acknowledged, why it may be gone; and what somebody saw on the spot.

| where | what may be gone |
|---|---|
| everywhere | what was trimmed; what an operator damaged; what a loss took back (`facts`) |
| `cleanup.policy` has `delete` | the oldest, past `retention.ms` by the wall clock, or what leaves at least `retention.bytes` |
| the configuration has changed | what each one allows that was in effect since the record was sent |
| it has `compact` | what a later record of its key replaces, unless that was aborted; aborted records; old tombstones |

Real clients' histories have no configurations: `Expires` and `Compacts` say it there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition

from ..history import ON_ARRIVAL, Event, Polled, Refused, Stored, Wrong, is_tombstone
from .facts import ENDLESS, Anomaly, Facts, Known, Setting

NEVER: Final = -1
DAY_MS: Final = 86_400_000
EARLIER_MS: Final = 3000
"""By so much clients stamp records earlier than they send them."""


def check_kept(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """Records that are not there and have to be: at the end, and of compacted topics in every poll that passes them."""
    keys = _Keys.of(events, facts)
    places = {where: _Places(found) for where, found in facts.acknowledged.items() if facts.is_compacted(where)}
    for index, event in enumerate(events):
        if isinstance(event, Stored):
            yield from _wrong_start(event, facts)
            yield from _lost(index, event, facts, keys)
        elif isinstance(event, Polled) and event.partition in places:
            end = min(event.next_position, facts.kept_end(event.partition, index))
            there = {record.id for record in event.records}
            for offset, record in places[event.partition].between(event.position, end):
                if record not in there and facts.told[record].index < index:
                    yield from _judge(record, offset, index, event, facts, keys)


def check_refusals(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """Readers are told of damage where there is some, and nothing good is between: compaction leaves holes beside it."""
    for event in events:
        if not isinstance(event, Refused):
            continue
        where = event.partition
        stored = facts.stored.get((where, event.is_committed))
        if not any(
            stored is None or not (stored.between(event.offset, damage.start) or stored.between(damage.stop, event.offset + 1))
            for damage in (*facts.damaged.get(where, ()), *facts.torn.get(where, ()))
        ):
            yield Anomaly("refused", f"{event.who} in {where} at {event.offset}, where nobody has damaged anything")


def check_witnesses(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """What somebody saw to be wrong, and losses that were larger than promised."""
    for event in events:
        if isinstance(event, Wrong):
            yield Anomaly(event.kind, event.detail)
    yield from facts.broken_promises


class _Places:
    """What was acknowledged in a partition, by offset."""

    def __init__(self, acknowledged: Mapping[str, int]) -> None:
        self._found = sorted((offset, record) for record, offset in acknowledged.items() if offset >= 0)

    def between(self, start: int, stop: int) -> Sequence[tuple[int, str]]:
        return self._found[bisect_left(self._found, (start, "")) : bisect_left(self._found, (stop, ""))]


def _lost(index: int, stored: Stored, facts: Facts, keys: _Keys) -> Iterator[Anomaly]:
    there = {record.id for record in stored.records}
    where, start = stored.partition, stored.start_offset
    expired = facts.expired.get(where)
    for record, offset in facts.acknowledged.get(where, {}).items():
        if record in there or (offset < 0 and (start or expired is not None or facts.damaged.get(where))):
            continue  # if nobody was told where it is, it may have been before the start, or where the damage is
        if 0 <= offset < start and (expired is None or facts.sent[record].sent.timestamp < expired):
            continue
        yield from _judge(record, offset, index, stored, facts, keys)


def _judge(record: str, offset: int, index: int, event: Stored | Polled, facts: Facts, keys: _Keys) -> Iterator[Anomaly]:
    """Whether a record may be missing in what `event` has seen."""
    where, outcome = event.partition, facts.outcome(record)
    if (event.is_committed and outcome is not True) or facts.is_damaged(where, offset):
        return
    may_be_gone = facts.is_compacted(where) and facts.may_be_compacted_since(where, facts.sent[record].index, index)
    if may_be_gone and (outcome is not True or keys.may_be_gone(record, offset, index, event.at_ms)):
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
        compacted = (found for where, found in facts.acknowledged.items() if facts.is_compacted(where))
        offsets = {record: offset for found in compacted for record, offset in found.items() if offset >= 0}
        for index, event in enumerate(events):
            if isinstance(event, (Polled, Stored)) and facts.is_compacted(event.partition):
                kept_end = facts.kept_end(event.partition, index)
                offsets.update((record.id, record.offset) for record in event.records if record.offset < kept_end)
        for record, known in facts.sent.items():
            if not facts.is_compacted(known.partition) or record in facts.refused:
                continue
            if record in offsets:
                keys.seen[known.partition, known.key].append((offsets[record], record))
            else:
                keys.unseen[known.partition, known.key].append(record)
        for each in keys.seen.values():
            each.sort()
        return keys

    def may_be_gone(self, record: str, offset: int, index: int, at_ms: float) -> bool:
        """Whether another record may have replaced it, or nothing has to say any more that its key was deleted."""
        known = self.facts.sent[record]
        place = known.partition, known.key
        later = self.seen.get(place, [])
        if any(self._may_replace(later[at][1], index) for at in range(bisect_right(later, (offset, record)), len(later))):
            return True
        # What nobody has seen may have replaced it, if something replaced that, or it was a tombstone.
        for other in self.unseen.get(place, ()):
            if is_tombstone(other) and self._may_replace(other, index) and self._may_expire(other, at_ms):
                return True
        return is_tombstone(record) and self._may_expire(record, at_ms)

    def _may_replace(self, other: str, index: int) -> bool:
        return self.facts.sent[other].index < index and self.facts.outcome(other) is not False

    def _may_expire(self, tombstone: str, at_ms: float) -> bool:
        """Whether so much may have passed by the wall clock since it was stored."""
        sent = self.facts.sent[tombstone]
        retention_ms = int(self.facts.configs.get(sent.partition.topic, {}).get("delete.retention.ms", DAY_MS))
        first, last = self.facts.clock_between(sent.at_ms, at_ms)
        return last - first >= retention_ms


def _wrong_start(stored: Stored, facts: Facts) -> Iterator[Anomaly]:
    """A log begins where it was trimmed to, or where retention has come to."""
    where, start, trimmed = stored.partition, stored.start_offset, facts.trimmed.get(stored.partition, 0)
    if start < facts.starts.get(where, 0) and not stored.is_committed:
        yield Anomaly("came back", f"{where} begins at {start}, and had begun at {facts.starts[where]}")
    config = facts.configs.get(where.topic, {})
    if start <= trimmed or where in facts.expired:
        return
    gone = {record: at for record, at in facts.acknowledged.get(where, {}).items() if trimmed <= at < start}
    if gone and all(map(facts.crosses_jump, gone)):
        return
    settings = facts.settings.get(where.topic, [])
    if len(settings) > 1:
        for record, offset in gone.items():
            if not facts.crosses_jump(record) and not any(_may_retire(record, each, stored, facts) for each in settings):
                yield Anomaly("lost", f"{record}@{offset} of {where}, which begins at {start}: no configuration allows it")
        return
    retention_ms = int(config.get("retention.ms", NEVER))
    retention_bytes = int(config.get("retention.bytes", NEVER))
    if "delete" not in config.get("cleanup.policy", "delete") or (retention_ms == NEVER and retention_bytes == NEVER):
        yield Anomaly("lost", f"{where} begins at {start}, asked was {trimmed}")
        return
    if stored.is_committed or (0 <= retention_bytes <= stored.size_bytes):
        return
    if retention_ms == NEVER:
        if not (facts.losses or facts.damaged.get(where)):  # otherwise it may have had more when retention counted
            yield Anomaly("lost", f"{where} begins at {start} with {stored.size_bytes} bytes, {retention_bytes} are to stay")
        return
    for record, offset in gone.items():
        if not facts.crosses_jump(record) and not _is_old(facts.sent[record], retention_ms, stored, facts):
            yield Anomaly("lost", f"{record}@{offset} of {where}, which begins at {start}: it is not {retention_ms} ms old")


def _may_retire(record: str, setting: Setting, stored: Stored, facts: Facts) -> bool:
    """Whether retention may have taken a record while this was the configuration. Of bytes no more is judged than that."""
    config, sent = setting.config, facts.sent[record]
    if "delete" not in config.get("cleanup.policy", "delete") or setting.last_index < sent.index:
        return False
    if int(config.get("retention.bytes", NEVER)) >= 0:
        return True
    retention_ms = int(config.get("retention.ms", NEVER))
    if retention_ms == NEVER:
        return False
    return _is_old(sent, retention_ms, stored, facts, setting.first_ms, setting.last_ms)


def _is_old(
    known: Known, retention_ms: int, stored: Stored, facts: Facts, first_ms: float = 0, last_ms: float = ENDLESS
) -> bool:
    """Whether the wall clock has shown so much more than a record's timestamp between two times. Where the server checks the
    clock, or has stamped the record itself: whether so much time may have passed by it since the record was sent."""
    timestamp, until_ms = known.sent.timestamp, min(last_ms, stored.at_ms)
    if facts.checks_clock or timestamp == ON_ARRIVAL:
        first, last = facts.clock_between(known.at_ms, until_ms)
        return last - first + EARLIER_MS >= retention_ms
    _, latest = facts.clock_between(first_ms, until_ms)
    return timestamp + retention_ms < facts.began_ms + latest
