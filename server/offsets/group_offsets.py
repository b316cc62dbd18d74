"""The state of one partition of `__consumer_offsets`: committed offsets, and offsets whose transaction has not ended yet
(Kafka: OffsetMetadataManager). Pure memory: the result of replaying the log, for every reader.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from ...protocol.coordinator.classic_group_records import GroupMetadataValue, decode_group_metadata_value
from ...protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from ...protocol.coordinator.fields import RecordKinds
from ...protocol.coordinator.offsets import (
    NO_EXPIRE_TIMESTAMP,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_commit_value,
    decode_offsets_key,
)
from ...protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS
from ...protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS
from ...protocol.records.batch import BatchHeader
from ...protocol.records.control import ControlRecordType, control_record_type
from ...protocol.records.record import iter_records
from ...protocol.types import NO_PRODUCER_ID, Bytes, TopicPartition
from ..system.client_memory import Account

K = TypeVar("K")
V = TypeVar("V")

ASSIGNED_KINDS: Final[tuple[RecordKinds[Any, Any], ...]] = (CONSUMER_GROUP_RECORDS, SHARE_GROUP_RECORDS, STREAMS_GROUP_RECORDS)
MayExpire = Callable[[str], bool]
"""Whether nobody is a member of a group, nor about to be one: the log knows of members only when their assignment is stored."""


Date = Callable[[int], int]
"""The time, in ms, from which the age of something counts that the server stamped: later where its clock was not trusted."""


class CommittedOffset(NamedTuple):
    """A committed offset and where in the log it stands: of two, the later record counts."""

    value: OffsetCommitValue
    record_offset: int

    def is_expired(self, now_ms: int, retention_ms: int, empty_since_ms: int, date: Date) -> bool:
        """Old records say themselves when they go, later ones go by the server's retention, reckoned from their commit, or
        from when the last member was gone if that was later."""
        if self.value.expire_timestamp != NO_EXPIRE_TIMESTAMP:
            return now_ms >= date(self.value.expire_timestamp)
        return now_ms - date(max(self.value.commit_timestamp, empty_since_ms)) >= retention_ms


class GroupRecord(NamedTuple):
    """The facts to remember of a group's own record."""

    has_members: bool
    since_ms: int
    """Since when it is as it is; -1 where old records do not say."""


_NO_RECORD: Final = GroupRecord(has_members=False, since_ms=-1)


_NO_OFFSETS: Final[dict[TopicPartition, CommittedOffset]] = {}


IsStale = Callable[[OffsetCommitKey, OffsetCommitValue], bool]
"""Whether an offset belongs to a topic that was deleted."""
OFFSET_BYTES: Final = 600
"""An offset with its partition and its place, without the metadata."""
GROUP_BYTES: Final = 300
"""The name of a group in a table, without its characters."""

Moved = Callable[[str, TopicPartition, int, int], None]
"""(group, partition, offset before, offset): a group that had committed an offset has committed another one."""


@attrs.define(eq=False, repr=False)
class GroupOffsets:
    """See the module. Changed only in log order: while loading, then by what the partition's actor has stored."""

    _offsets: dict[str, dict[TopicPartition, CommittedOffset]] = attrs.field(factory=dict)
    _pending: dict[int, dict[OffsetCommitKey, CommittedOffset]] = attrs.field(factory=dict)
    """By producer id: stored in a transaction that has not ended."""
    _topic_ids: dict[bytes, bytes] = attrs.field(factory=dict)
    """One object for each id that a replay has found: thousands of offsets share it."""
    _records: dict[str, GroupRecord] = attrs.field(factory=dict)
    """Groups that have a group metadata record: they have, or have had, members."""
    _restorable: dict[str, GroupMetadataValue] = attrs.field(factory=dict)
    """Their records as the log had them, until somebody has taken them."""
    _assigned: dict[RecordKinds[Any, Any], dict[bytes, tuple[Any, Any]]] = attrs.field(
        factory=lambda: {kinds: {} for kinds in ASSIGNED_KINDS}
    )
    """The newest record of each key of groups whose assignments the server makes, by kind, until somebody has taken them."""
    on_moved: Moved | None = None
    """Told of what is committed from now on; None while the log is replayed."""
    commits_under_way: Counter[str] = attrs.field(factory=Counter)
    """By group: commits that were enqueued and not answered."""
    _bytes: Counter[str | int] = attrs.field(factory=Counter)
    """Memory by group, and by producer id for what waits for its transaction to end."""
    _account: Account | None = None
    """Where that is charged; None while the log is replayed."""

    def charge_to(self, account: Account) -> None:
        """The replay is over: charge what is here, and from now on every change."""
        self._account = account
        for key, size in self._bytes.items():
            account.put(key, size)

    def _grow(self, key: str | int, more: int) -> None:
        if not more:
            return
        size = self._bytes[key] = self._bytes[key] + more
        if not size:
            del self._bytes[key]
        if self._account is not None:
            if size:
                self._account.put(key, size)
            else:
                self._account.drop(key)

    def check_memory(self, entries: Iterable[tuple[OffsetCommitKey, OffsetCommitValue]], producer_id: int) -> None:
        """Raises RequestError where these commits, of one group, take more memory than the client may have. Metadata that is
        the same object as before, mostly the empty one, is not measured: this comes with each commit."""
        is_pending, more, name = producer_id != NO_PRODUCER_ID, 0, ""
        pending = self._pending.get(producer_id, {}) if is_pending else {}
        for key, value in entries:
            name = key.group
            before = pending.get(key) if is_pending else self._offsets.get(name, _NO_OFFSETS).get(key.topic_partition)
            if before is not None and before.value.metadata is value.metadata:
                continue
            more += _offset_bytes(value) - (0 if before is None else _offset_bytes(before.value))
            more += sys.getsizeof(name) if is_pending and before is None else 0
        if self._account is not None and more > 0:
            if not is_pending and name not in self._offsets:
                more += _group_bytes(name)
            self._account.check(producer_id if is_pending else name, more)

    def begin_commit(self, group: str) -> None:
        self.commits_under_way[group] += 1

    def end_commit(self, group: str) -> None:
        self.commits_under_way[group] -= 1
        if not self.commits_under_way[group]:
            del self.commits_under_way[group]

    def replay(self, header: BatchHeader, batch: Bytes) -> None:
        """Take in a stored batch. Raises InvalidRecordError: what cannot be read is not passed over, because the offset
        below it would come back."""
        for record in iter_records(batch, header):
            if header.is_control:
                kind = control_record_type(record.key)
                if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                    self.end_transaction(header.producer_id, commit=kind is ControlRecordType.COMMIT)
                continue
            key = decode_offsets_key(record.key or b"")
            if isinstance(key, OffsetCommitKey):
                value = None if record.value is None else decode_offset_commit_value(record.value)
                if value is not None:
                    value = value._replace(topic_id=self._topic_ids.setdefault(value.topic_id, value.topic_id))
                self.put(key, value, record.offset, header.producer_id if header.is_transactional else NO_PRODUCER_ID)
            elif key is not None:
                self._replay_group(key.group, record.value)
            else:
                for kinds, found in self._assigned.items():
                    _replay_assigned(kinds, found, bytes(record.key or b""), record.value)

    def _replay_group(self, group: str, data: Bytes | None) -> None:
        if data is None:
            self._restorable.pop(group, None)
            self.put_group(group, None)
        else:
            value = self._restorable[group] = decode_group_metadata_value(data)
            self.put_group(group, value)

    def take_restorable(self) -> dict[str, GroupMetadataValue]:
        """The groups that the replay has found, once."""
        restorable, self._restorable = self._restorable, {}
        return restorable

    def take_assigned(self, kinds: RecordKinds[K, V]) -> list[tuple[K, V]]:
        """The records of one kind of groups whose assignments the server makes, once."""
        found, self._assigned[kinds] = self._assigned[kinds], {}
        return list(found.values())

    def has_group_record(self, group: str) -> bool:
        """Return whether the log has a record of a classic group of this name."""
        return group in self._records

    def put(self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int) -> None:
        """An offset commit; None takes the offset back, and those that wait for their transaction too. With a producer id it
        counts once the transaction has committed."""
        if value is None:
            self._remove(key)
            for other_id, pending in self._pending.items():
                if (gone := pending.pop(key, None)) is not None:
                    self._grow(other_id, -_pending_bytes(key, gone))
        elif producer_id != NO_PRODUCER_ID:
            waiting, after = self._pending.setdefault(producer_id, {}), CommittedOffset(value, record_offset)
            before = waiting.get(key)
            waiting[key] = after
            self._grow(producer_id, _pending_bytes(key, after) - (0 if before is None else _pending_bytes(key, before)))
        elif more := self._commit(key, CommittedOffset(value, record_offset)):
            self._grow(key.group, more)

    def _commit(self, key: OffsetCommitKey, committed: CommittedOffset) -> int:
        """Answers how many bytes more the group takes; they are to be charged."""
        offsets, more = self._offsets.get(key.group), 0
        if offsets is None:
            offsets = self._offsets[key.group] = {}
            more = _group_bytes(key.group)
        before = offsets.get(key.topic_partition)
        if before is None:
            more += _offset_bytes(committed.value)
        else:
            if before.value.metadata is not committed.value.metadata:
                more += _offset_bytes(committed.value) - _offset_bytes(before.value)
            if self.on_moved is not None and before.value.offset >= 0:
                self.on_moved(key.group, key.topic_partition, before.value.offset, committed.value.offset)
        offsets[key.topic_partition] = committed
        return more

    def put_group(self, group: str, value: GroupMetadataValue | None) -> None:
        """A group metadata record, or that it was taken away."""
        if value is None:
            if self._records.pop(group, None) is not None:
                self._grow(group, -_group_bytes(group))
        else:
            self._grow(group, 0 if group in self._records else _group_bytes(group))
            self._records[group] = GroupRecord(bool(value.members), value.current_state_timestamp)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker was stored. A second one finds nothing to do."""
        self._grow(producer_id, -self._bytes[producer_id])
        grown: Counter[str] = Counter()
        for key, pending in self._pending.pop(producer_id, {}).items():
            current = self._offsets.get(key.group, {}).get(key.topic_partition)
            if commit and (current is None or current.record_offset < pending.record_offset):
                grown[key.group] += self._commit(key, pending)
        for group, more in grown.items():
            self._grow(group, more)

    def _remove(self, key: OffsetCommitKey) -> None:
        offsets = self._offsets.get(key.group)
        if offsets is not None:
            gone = offsets.pop(key.topic_partition, None)
            less = 0 if gone is None else _offset_bytes(gone.value)
            if not offsets:
                del self._offsets[key.group]
                less += _group_bytes(key.group)
            self._grow(key.group, -less)

    def groups(self) -> set[str]:
        """Every group that has anything here."""
        return {*self._offsets, *self._records, *(key.group for keys in self._pending.values() for key in keys)}

    def offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Its committed offsets. Not to be changed."""
        return self._offsets.get(group, {})

    def pending(self, group: str) -> set[TopicPartition]:
        """Partitions whose offset an open transaction may still change."""
        return {key.topic_partition for keys in self._pending.values() for key in keys if key.group == group}

    def keys(self, group: str) -> list[OffsetCommitKey | GroupMetadataKey]:
        """Return the keys that need tombstones to remove the group."""
        keys: list[OffsetCommitKey | GroupMetadataKey] = [
            OffsetCommitKey(group, topic_partition) for topic_partition in self.offsets(group)
        ]
        return [*keys, GroupMetadataKey(group)] if group in self._records else keys

    def expired(
        self, now_ms: int, retention_ms: int, may_expire: MayExpire, date: Date = lambda stamp_ms: stamp_ms
    ) -> Iterator[OffsetCommitKey]:
        """Offsets that nobody has committed for too long. Not of a group that commits right now, nor below a transaction:
        the tombstone would come behind a newer offset. Nor of one that has members, whatever they are subscribed to (Kafka
        lets those of other topics go); when the last one is gone the retention begins (KIP-211)."""
        for group, offsets in self._offsets.items():
            record = self._records.get(group, _NO_RECORD)
            if self.commits_under_way[group] or record.has_members or not may_expire(group):
                continue
            pending = self.pending(group) if self._pending else set()
            for topic_partition, committed in offsets.items():
                if topic_partition not in pending and committed.is_expired(now_ms, retention_ms, record.since_ms, date):
                    yield OffsetCommitKey(group, topic_partition)

    def without_offsets(self, may_expire: MayExpire) -> Iterator[GroupMetadataKey]:
        """Groups of which nothing is left but their record. Not those that commit right now, or in a transaction."""
        for group, record in self._records.items():
            if record.has_members or group in self._offsets or self.commits_under_way[group] or not may_expire(group):
                continue
            if not self.pending(group):
                yield GroupMetadataKey(group)

    def stale(self, is_stale: IsStale) -> Iterator[OffsetCommitKey]:
        """Places of which everything is stale, what was committed and what waits for its transaction to end. Whoever needs a
        few looks no further; nothing may change meanwhile."""
        kept = {key for keys in self._pending.values() for key, waiting in keys.items() if not is_stale(key, waiting.value)}
        for group, offsets in self._offsets.items():
            for topic_partition, committed in offsets.items():
                key = OffsetCommitKey(group, topic_partition)
                if key not in kept and is_stale(key, committed.value):
                    yield key
        for key in dict.fromkeys(key for keys in self._pending.values() for key in keys):
            if key not in kept and key.topic_partition not in self.offsets(key.group):
                yield key


def _group_bytes(name: str) -> int:
    return GROUP_BYTES + sys.getsizeof(name)


def _offset_bytes(value: OffsetCommitValue) -> int:
    return OFFSET_BYTES + sys.getsizeof(value.metadata)


def _pending_bytes(key: OffsetCommitKey, pending: CommittedOffset) -> int:
    return _offset_bytes(pending.value) + sys.getsizeof(key.group)


def _replay_assigned(kinds: RecordKinds[K, V], found: dict[bytes, tuple[K, V]], key_bytes: bytes, data: Bytes | None) -> None:
    """A record of a group whose assignments the server makes, if it is one of these kinds."""
    key = kinds.decode_key(key_bytes)
    found.pop(key_bytes, None)
    if key is not None and data is not None:
        found[key_bytes] = key, kinds.decode_value(key, data)
