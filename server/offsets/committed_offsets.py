"""The offsets that groups commit, kept in `__consumer_offsets` in Kafka's format (Kafka: OffsetMetadataManager; KIP-98 for
offsets in transactions, KIP-211 for their expiry).

A group is a name under which offsets are kept; its members are `group_coordinator`'s. What the topic says is in
`offsets_topic`. A commit is one batch, and it counts, for readers too, once the partition's high watermark has passed it.
Offsets that are part of a transaction are kept aside until the transaction's marker is in the same log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.offsets import (
    NO_EXPIRE_TIMESTAMP,
    NO_TOPIC_ID,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ...protocol.errors import ErrorCode, RecordBatchTooLargeError, RecordTooLargeError, RequestError
from ...protocol.limits import INT64_MAX
from ...protocol.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AppendResult, TopicPartition
from ..config.broker_config import BrokerConfig
from ..logs.log_manager import LogManager
from ..system.clock import NowMs
from .group_offsets import CommittedOffset, Date, GroupOffsets, MayExpire
from .offsets_topic import OffsetsTopic, batch_builder, check_group

LOGGER: Final = logging.getLogger(__name__)


class GroupOffset(NamedTuple):
    """The committed offset of a group for a partition; a `value` of None: nothing is committed. `is_pending`: an open
    transaction may still change it."""

    topic_partition: TopicPartition
    value: OffsetCommitValue | None
    is_pending: bool


_BYTES_PER_TOMBSTONES: Final = 128 * 1024
"""Tombstones are written in batches of about this size: what is taken back need not go all at once."""
OFFSETS_PER_BATCH: Final = 300
"""A batch is built, and what it says takes effect, in one turn of the event loop."""


@attrs.define(eq=False, repr=False)
class CommittedOffsets:
    """See the module. Called from any task of the trio thread, once `topic` is loaded."""

    _config: BrokerConfig
    topic: OffsetsTopic
    """Where they are kept, and what it says."""
    _now_ms: NowMs
    _date: Date

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> CommittedOffsets:
        return cls(manager.config, OffsetsTopic.of(manager, now_ms), now_ms, manager.undated.date)

    async def commit(
        self,
        group: str,
        commits: Sequence[Commit],
        *,
        check: Callable[[], None],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> list[RequestError | None]:
        """Keep offsets; one answer for each, in order. With a producer: they count when its transaction commits.

        `check` raises RequestError unless whoever commits may do so; nothing can run between that and the append. Raises
        RequestError for all of them. Cancelled: they are committed all the same, and that is waited for.

        More than OFFSETS_PER_BATCH are several commits, one after the other.
        """
        if len(commits) <= OFFSETS_PER_BATCH:
            return await self._commit_batch(group, commits, check, producer_id, producer_epoch)
        answers: list[RequestError | None] = []
        with trio.CancelScope(shield=True):
            for first in range(0, len(commits), OFFSETS_PER_BATCH):
                some = commits[first : first + OFFSETS_PER_BATCH]
                answers += await self._commit_batch(group, some, check, producer_id, producer_epoch)
                await trio.lowlevel.checkpoint()
        return answers

    async def _commit_batch(
        self, group: str, commits: Sequence[Commit], check: Callable[[], None], producer_id: int, producer_epoch: int
    ) -> list[RequestError | None]:
        check_group(group)
        check()
        batch = self._batch(group, commits, producer_id)
        if not batch.entries:
            return batch.answers
        if not self.topic.exists:
            await self.topic.ensure()
            check()
        topic_partition = self.topic.partition_of(group)
        offsets = self.topic.contents(topic_partition)
        offsets.check_memory(batch.entries, producer_id)
        records = batch.build(producer_epoch)
        offsets.begin_commit(group)
        try:
            with trio.CancelScope(shield=True):
                await self.topic.append(topic_partition, records, partial(batch.put_into, offsets))
        except RequestError as exc:
            raise batch.in_words(topic_partition, exc) from exc
        finally:
            offsets.end_commit(group)
        return batch.answers

    def try_commit(self, group: str, commits: Sequence[Commit], answer: AnswerCommit, *, check: Callable[[], None]) -> bool:
        """`commit` outside of a transaction: enqueue it, and have `answer` called with what that answers or raises. False, and
        nothing has happened: it has to be waited for. Raises RequestError."""
        check_group(group)
        check()
        batch = self._batch(group, commits, NO_PRODUCER_ID)
        if not batch.entries:
            answer(batch.answers)
            return True
        if not self.topic.exists:
            return False
        topic_partition = self.topic.partition_of(group)
        offsets = self.topic.contents(topic_partition)

        def done(result: AppendResult | RequestError) -> None:
            if not isinstance(result, RequestError):
                batch.put_into(offsets, result)
            offsets.end_commit(group)
            answer(batch.in_words(topic_partition, result) if isinstance(result, RequestError) else batch.answers)

        offsets.check_memory(batch.entries, NO_PRODUCER_ID)
        records = batch.build(NO_PRODUCER_EPOCH)
        offsets.begin_commit(group)
        is_enqueued = False
        try:
            is_enqueued = self.topic.try_append(topic_partition, records, done)
        except RequestError as exc:
            raise batch.in_words(topic_partition, exc) from exc
        finally:
            if not is_enqueued:
                offsets.end_commit(group)
        return is_enqueued

    def _batch(self, group: str, commits: Sequence[Commit], producer_id: int) -> CommitBatch:
        """Return the batch of those commits that can be stored."""
        topics, now_ms = self.topic.topics, self._now_ms()
        answers: list[RequestError | None] = []
        entries = []
        for commit in commits:
            topic_partition, offset, metadata, leader_epoch, retention_ms = commit
            hosted = topics.find(topic_partition.topic)
            if hosted is None or not 0 <= topic_partition.partition < len(hosted.partitions):
                answers.append(_missing(topic_partition))
                continue
            error = self._check_metadata(commit)
            answers.append(error)
            if error is None:
                expires = NO_EXPIRE_TIMESTAMP if retention_ms == DEFAULT_RETENTION else commit.expire_timestamp(now_ms)
                value = OffsetCommitValue(offset, metadata or "", now_ms, leader_epoch, expires, hosted.topic.id_bytes)
                entries.append((OffsetCommitKey(group, topic_partition), value))
        return CommitBatch(group, producer_id, now_ms, answers, entries)

    def _check_metadata(self, commit: Commit) -> RequestError | None:
        topic_partition, _, metadata, *_ = commit
        size, limit = len((metadata or "").encode()), self._config.offset_metadata_max_bytes
        if size > limit:
            return RequestError(
                f"{topic_partition}: the metadata has {size} bytes, above offset_metadata_max_bytes={limit}",
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
            )
        return None

    def committed(self, group: str, partitions: Sequence[TopicPartition] | None) -> list[GroupOffset]:
        """Return the committed offsets of the group as they are stored, in the order of `partitions`; None selects all. Some
        clients store negative offsets, for the earliest and the latest record; `fetch` and `offset_of` read these as none.
        Raises RequestError."""
        check_group(group)
        offsets = self.topic.contents(self.topic.partition_of(group))
        committed, pending = offsets.offsets(group), offsets.pending(group)
        asked = sorted({*committed, *pending}) if partitions is None else partitions
        return [GroupOffset(each, self._value(each, committed.get(each)), each in pending) for each in asked]

    def _value(self, topic_partition: TopicPartition, found: CommittedOffset | None) -> OffsetCommitValue | None:
        return None if found is None or self._is_stale(topic_partition, found.value) else found.value

    def _is_stale(self, topic_partition: TopicPartition, value: OffsetCommitValue) -> bool:
        """Return whether an offset belongs to a deleted topic; another topic may have its name. An offset without a topic id is
        stale, too: an older version of triolog, or of Kafka, wrote it."""
        return value.topic_id not in (NO_TOPIC_ID, self._topic_id(topic_partition.topic))

    def _topic_id(self, topic: str) -> bytes | None:
        hosted = self.topic.topics.find(topic)
        return None if hosted is None else hosted.topic.id_bytes

    def committed_partitions(self, group: str) -> list[TopicPartition]:
        """For which the group has committed something, in order. Raises RequestError."""
        check_group(group)
        return sorted(self.topic.contents(self.topic.partition_of(group)).offsets(group))

    def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> list[tuple[TopicPartition, int, str]]:
        """Committed offsets with their metadata, -1 where there is none; None asks for all that the group has.

        `require_stable` (KIP-447): an offset that an open transaction may still change is an error. Raises RequestError.
        """
        found = self.committed(group, partitions)
        if require_stable and (waiting := sorted(each.topic_partition for each in found if each.is_pending)):
            raise RequestError(
                f"group {group!r}: a transaction that is still open has offsets for {', '.join(map(str, waiting))}. Try again",
                ErrorCode.UNSTABLE_OFFSET_COMMIT,
            )
        return [
            (each.topic_partition, NO_OFFSET, "")
            if each.value is None or each.value.offset < 0
            else (each.topic_partition, each.value.offset, each.value.metadata)
            for each in found
            if partitions is not None or (each.value is not None and each.value.offset >= 0)
        ]

    def offset_of(self, group: str, topic_partition: TopicPartition) -> int | None:
        """Return the committed offset of the group for a partition, from memory. None: nothing is committed, or the partition
        of the group cannot be read."""
        try:
            offsets = self.topic.contents(self.topic.partition_of(group)).offsets(group)
        except RequestError:
            return None
        value = self._value(topic_partition, offsets.get(topic_partition))
        return None if value is None or value.offset < 0 else value.offset

    def _is_held_for(self, key: OffsetCommitKey) -> bool:
        """Return whether retention waits for the group there: without its offset retention would hold everything from the start
        again."""
        hosted = self.topic.topics.find(key.topic_partition.topic)
        return hosted is not None and key.group in hosted.config.retention_hold_groups

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Return whether the partition exists, so that groups can commit offsets for it."""
        hosted = self.topic.topics.find(topic_partition.topic)
        return hosted is not None and 0 <= topic_partition.partition < len(hosted.partitions)

    async def delete(self, group: str) -> None:
        """Forget a group and its offsets. Raises RequestError: unknown, or it commits at this moment."""
        check_group(group)
        topic_partition = self.topic.partition_of(group)
        offsets = self.topic.contents(topic_partition)
        if offsets.commits_under_way[group] or offsets.pending(group):
            raise RequestError(
                f"group {group!r} is committing offsets, or has some in a transaction that is still open. Stop its consumers",
                ErrorCode.NON_EMPTY_GROUP,
            )
        if not offsets.keys(group):
            raise RequestError(
                f"there is no group {group!r}. `triolog groups list` lists the groups", ErrorCode.GROUP_ID_NOT_FOUND
            )
        await self._take_back(topic_partition, offsets, lambda: offsets.keys(group))

    async def expire(self, may_expire: MayExpire) -> int:
        """Take back offsets older than the retention, and answer how many; what deleted topics have left; and the records of
        groups that have none left. An offset that `retention.hold.groups` names stays. What fails is logged and tried again
        the next time."""
        retention_ms, count, errors = self._config.offsets_retention_ms, 0, self.topic.errors

        def contained(group: str) -> bool:
            with errors.isolate("offset-expiry", group):
                return may_expire(group)
            return False

        for topic_partition, offsets in self.topic.readable():
            expired = partial(self._expired, offsets, retention_ms, contained)
            with errors.isolate("offset-expiry", topic_partition):
                try:
                    count += await self._take_back(topic_partition, offsets, expired)
                    await self._take_back(topic_partition, offsets, partial(self._stale, offsets))
                    await self._take_back(topic_partition, offsets, partial(offsets.without_offsets, contained))
                except RequestError as exc:
                    LOGGER.warning("could not delete expired offsets of %s, trying again: %s", topic_partition, exc)
        return count

    def _expired(self, offsets: GroupOffsets, retention_ms: int, may_expire: MayExpire) -> Iterator[OffsetCommitKey]:
        expired = offsets.expired(self._now_ms(), retention_ms, may_expire, self._date)
        return (key for key in expired if not self._is_held_for(key))

    async def take_back(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget these offsets of a group; those that are not there are fine. Raises RequestError."""
        topic_partition = self.topic.partition_of(group)
        offsets, asked = self.topic.contents(topic_partition), set(partitions)

        def choose() -> list[OffsetCommitKey]:
            held = asked & (offsets.offsets(group).keys() | offsets.pending(group))
            return [OffsetCommitKey(group, each) for each in sorted(held)[:OFFSETS_PER_BATCH]]

        with trio.CancelScope(shield=True):
            await self._take_back(topic_partition, offsets, choose)

    async def forget_topic(self, topic: str) -> None:
        """Take back every offset of a topic that was deleted, and none of another topic that has its name by now. Where that
        fails it is logged, because the topic is gone by now: that other topic has another id, and inherits nothing."""
        for topic_partition, offsets in self.topic.readable():
            try:
                with trio.CancelScope(shield=True):
                    await self.topic.catch_up(topic_partition)
                    await self._take_back(topic_partition, offsets, partial(self._stale, offsets, topic))
            except RequestError as exc:
                LOGGER.error("offsets for the deleted topic %r stay in %s: %s", topic, topic_partition, exc)

    def _stale(self, offsets: GroupOffsets, topic: str | None = None) -> Iterator[OffsetCommitKey]:
        """Yield the keys of offsets that deleted topics have left, or only the topic that had this name. Groups that commit
        right now are left out, since they may commit for the next topic with the name: the tombstone would come after that
        offset."""

        def is_stale(key: OffsetCommitKey, value: OffsetCommitValue) -> bool:
            if topic is None:
                return self._is_stale(key.topic_partition, value) and not offsets.commits_under_way[key.group]
            if key.topic_partition.topic != topic:
                return False
            known = self._topic_id(topic)
            return known is None or (known != value.topic_id and not offsets.commits_under_way[key.group])

        return offsets.stale(is_stale)

    async def _take_back(
        self,
        topic_partition: TopicPartition,
        offsets: GroupOffsets,
        choose: Callable[[], Iterable[OffsetCommitKey | GroupMetadataKey]],
    ) -> int:
        """Write tombstones, in batches, until `choose` names nothing more; answer how many. It is asked again for each batch,
        and nothing can run before that is enqueued: no tombstone comes behind an offset that `choose` did not see."""
        count = 0
        while batch := self._tombstones(choose()):
            keys, records = batch

            def on_stored(result: AppendResult, keys: Sequence[OffsetCommitKey | GroupMetadataKey] = keys) -> None:
                for record_offset, key in enumerate(keys, result.base_offset):
                    if isinstance(key, OffsetCommitKey):
                        offsets.put(key, None, record_offset, NO_PRODUCER_ID)
                    else:
                        offsets.put_group(key.group, None)

            await self.topic.append(topic_partition, records, on_stored)
            count += len(keys)
        return count

    def _tombstones(
        self, keys: Iterable[OffsetCommitKey | GroupMetadataKey]
    ) -> tuple[list[OffsetCommitKey | GroupMetadataKey], bytes] | None:
        now_ms, builder = self._now_ms(), batch_builder()
        taken = []
        for key in keys:
            builder.append(now_ms, key.encode(), None)
            taken.append(key)
            if len(taken) >= OFFSETS_PER_BATCH or builder.estimated_size_bytes >= _BYTES_PER_TOMBSTONES:
                break
        return (taken, builder.build()) if taken else None


def _missing(topic_partition: TopicPartition) -> RequestError:
    return RequestError(
        f"{topic_partition} does not exist. No offset can be committed for it", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


DEFAULT_RETENTION: Final = -1
"""As long as the server says."""


class Commit(NamedTuple):
    """An offset to be kept: of the record to be read next, with the group's own note and the leader epoch of the last one."""

    topic_partition: TopicPartition
    offset: int
    metadata: str | None = None
    leader_epoch: int = -1
    retention_ms: int = DEFAULT_RETENTION
    """How long it stays from now on, as clients before Kafka 2.1 can request."""

    def expire_timestamp(self, now_ms: int) -> int:
        """Return the time at which the offset expires; NO_EXPIRE_TIMESTAMP: the server decides."""
        return NO_EXPIRE_TIMESTAMP if self.retention_ms == DEFAULT_RETENTION else min(now_ms + self.retention_ms, INT64_MAX)


AnswerCommit = Callable[[list[RequestError | None] | RequestError], None]
"""Called with an answer for each offset, in order, or with the error of all. Must not raise and must not block."""


class CommitBatch(NamedTuple):
    """Offsets of a group that go into the log in one batch."""

    group: str
    producer_id: int
    now_ms: int
    answers: list[RequestError | None]
    """Of all that were to be committed; None for those that are in the batch."""
    entries: list[tuple[OffsetCommitKey, OffsetCommitValue]]

    def build(self, producer_epoch: int) -> bytes:
        """Its records."""
        builder = batch_builder(self.producer_id, producer_epoch)
        for key, value in self.entries:
            builder.append(self.now_ms, key.encode(), value.encode())
        return builder.build()

    def put_into(self, offsets: GroupOffsets, result: AppendResult) -> None:
        """It is stored."""
        for record_offset, (key, value) in enumerate(self.entries, result.base_offset):
            offsets.put(key, value, record_offset, self.producer_id)

    def in_words(self, topic_partition: TopicPartition, error: RequestError) -> RequestError:
        """Why it could not be stored, as who commits is told."""
        if not isinstance(error, RecordTooLargeError | RecordBatchTooLargeError):
            return error.as_answer()
        return RequestError(
            f"group {self.group!r}: {len(self.entries)} offsets do not fit one batch of {topic_partition}: "
            f"{error.message}. Commit fewer at a time, or with less metadata",
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        )
