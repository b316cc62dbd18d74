"""The group coordinator: offsets that groups commit, kept in `__consumer_offsets` in Kafka's format (Kafka: GroupCoordinator,
OffsetMetadataManager; KIP-98 for offsets in transactions, KIP-211 for their expiry).

A group is a name under which offsets are kept; its members are `group_coordinator`'s, only their records are written here. Each
group's records are in one partition of the topic.
A commit is one batch, and it counts, for readers too, once the partition's high watermark has passed it. Offsets that are part
of a transaction are kept aside until the transaction's marker is in the same log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.consumer_group_records import ConsumerGroupKey, ConsumerGroupValue
from ...protocol.coordinator.group_metadata import GroupMetadataValue
from ...protocol.coordinator.offsets import OFFSETS_TOPIC, GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from ...protocol.errors import (
    ErrorCode,
    InvalidRequestError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RequestError,
    TriologError,
)
from ...protocol.limits import INT16_MAX
from ...protocol.records.builder import BatchBuilder
from ...protocol.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from ..broker_config import BrokerConfig
from ..clock import NowMs
from ..storage.append import AppendResult
from ..storage.diskops import Procedure
from ..storage.errors import LogOfflineError
from ..storage.log import Log
from .group_offsets import GroupOffsets, MayExpire
from .internal_topic import InternalTopic
from .log_manager import LogManager

LOGGER: Final = logging.getLogger(__name__)


class Commit(NamedTuple):
    """An offset to be kept: of the record to be read next, with the group's own note and the leader epoch of the last one."""

    topic_partition: TopicPartition
    offset: int
    metadata: str | None = None
    leader_epoch: int = -1


class GroupOffset(NamedTuple):
    """What a group has committed for a partition; None: nothing. `is_pending`: an open transaction may still change it."""

    topic_partition: TopicPartition
    value: OffsetCommitValue | None
    is_pending: bool


RawRecord = tuple[bytes, bytes | None]
"""(key, value) of a record; None takes away what the key names."""

_BYTES_PER_TOMBSTONES: Final = 128 * 1024
"""Tombstones are written in batches of about this size: what is taken back need not go all at once."""


@attrs.define(eq=False)
class Groups:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _config: BrokerConfig
    _topic: InternalTopic
    _now_ms: NowMs
    _loaded: dict[int, GroupOffsets | RequestError] = attrs.field(factory=dict)

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> Groups:
        config = manager.config
        topic = InternalTopic(manager, now_ms, OFFSETS_TOPIC, config.offsets_topic_num_partitions)
        return cls(config, topic, now_ms)

    # ---- start -----------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read every partition of the topic to its end. One that cannot be read answers with the reason from then on."""
        if OFFSETS_TOPIC not in self._topic.manager.topics:
            return
        for number in range(self._topic.partitions):
            await self.load_partition(TopicPartition(OFFSETS_TOPIC, number))

    async def load_partition(self, topic_partition: TopicPartition) -> None:
        """Read one partition; again, if something came into it meanwhile."""
        while True:
            end = self._high_watermark(topic_partition)
            loaded = await self._load(topic_partition)
            if self._high_watermark(topic_partition) == end:
                self._loaded[topic_partition.partition] = loaded
                return

    def _high_watermark(self, topic_partition: TopicPartition) -> int:
        """-1 where it cannot be read."""
        try:
            return self._topic.actor(topic_partition).snapshot().high_watermark
        except RequestError:
            return -1

    async def _load(self, topic_partition: TopicPartition) -> GroupOffsets | RequestError:
        offsets = GroupOffsets()
        try:
            await self._topic.replay(topic_partition, offsets.replay)
        except (TriologError, OSError) as exc:
            error = LogOfflineError(
                f"the groups of {topic_partition} cannot be served: {exc}; `triolog verify` says what is wrong with the log"
            )
            LOGGER.error("%s", error)
            return error
        return offsets

    def _offsets(self, topic_partition: TopicPartition) -> GroupOffsets:
        """Raises RequestError."""
        found = self._loaded.setdefault(topic_partition.partition, GroupOffsets())
        if isinstance(found, RequestError):
            raise found.as_answer()
        return found

    def partition_of(self, group: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that keeps a group."""
        return self._topic.partition_of(group)

    async def ensure_topic(self) -> None:
        """Make `__consumer_offsets` if it is not there. Raises RequestError."""
        await self._topic.ensure()

    # ---- commit ----------------------------------------------------------------------------------------------------------

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
        """
        check_group(group)
        check()
        answers = [self._check(commit) for commit in commits]
        now_ms = self._now_ms()
        entries = [
            (
                OffsetCommitKey(group, commit.topic_partition),
                OffsetCommitValue(commit.offset, commit.metadata or "", now_ms, commit.leader_epoch),
            )
            for commit, error in zip(commits, answers, strict=True)
            if error is None
        ]
        if not entries:
            return answers
        if OFFSETS_TOPIC not in self._topic.manager.topics:
            await self.ensure_topic()
            check()
        topic_partition = self.partition_of(group)
        offsets = self._offsets(topic_partition)
        builder = _builder(producer_id, producer_epoch)
        for key, value in entries:
            builder.append(now_ms, key.encode(), value.encode())

        def on_stored(result: AppendResult) -> None:
            for record_offset, (key, value) in enumerate(entries, result.base_offset):
                offsets.put(key, value, record_offset, producer_id)

        offsets.begin_commit(group)
        try:
            with trio.CancelScope(shield=True):
                await self._topic.append(topic_partition, builder.build(), on_stored)
        except (RecordTooLargeError, RecordBatchTooLargeError) as exc:
            raise RequestError(
                f"group {group!r}: {len(entries)} offsets do not fit one batch of {topic_partition}: {exc.message}; commit "
                "fewer at a time, or with less metadata",
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ) from exc
        finally:
            offsets.end_commit(group)
        return answers

    def _check(self, commit: Commit) -> RequestError | None:
        topic_partition, offset, metadata, _ = commit
        if not self.has_partition(topic_partition):
            return RequestError(
                f"{topic_partition} does not exist; no offset can be committed for it", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        size, limit = len((metadata or "").encode()), self._config.offset_metadata_max_bytes
        if size > limit:
            return RequestError(
                f"{topic_partition}: the metadata has {size} bytes, above offset_metadata_max_bytes={limit}",
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
            )
        if offset < 0:
            return InvalidRequestError(f"{topic_partition}: offset {offset} cannot be committed; the first one is 0")
        return None

    # ---- fetch -----------------------------------------------------------------------------------------------------------

    def committed(self, group: str, partitions: Sequence[TopicPartition] | None) -> list[GroupOffset]:
        """What the group has committed, in the order asked; None asks for all. Raises RequestError."""
        check_group(group)
        offsets = self._offsets(self.partition_of(group))
        committed, pending = offsets.offsets(group), offsets.pending(group)
        asked = sorted({*committed, *pending}) if partitions is None else partitions
        return [GroupOffset(each, found.value if (found := committed.get(each)) else None, each in pending) for each in asked]

    def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> list[tuple[TopicPartition, int, str]]:
        """Committed offsets with their metadata, -1 where there is none; None asks for all that the group has.

        `require_stable` (KIP-447): an offset that an open transaction may still change is an error. Raises RequestError.
        """
        found = self.committed(group, partitions)
        if require_stable and (waiting := sorted(each.topic_partition for each in found if each.is_pending)):
            raise RequestError(
                f"group {group!r}: a transaction that is still open has offsets for {', '.join(map(str, waiting))}; try again",
                ErrorCode.UNSTABLE_OFFSET_COMMIT,
            )
        return [
            (each.topic_partition, NO_OFFSET, "")
            if each.value is None
            else (each.topic_partition, each.value.offset, each.value.metadata)
            for each in found
            if each.value is not None or partitions is not None
        ]

    def names(self) -> list[str]:
        """Every group, by name. Groups of a partition that cannot be served are not among them."""
        return sorted({name for each in self._loaded.values() if isinstance(each, GroupOffsets) for name in each.groups()})

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Whether there is something to commit offsets for."""
        topics, (name, number) = self._topic.manager.topics, topic_partition
        return name in topics and 0 <= number < len(topics.get(name).partitions)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def take_restorable(self) -> Iterator[tuple[str, GroupMetadataValue]]:
        """The groups whose members the logs know, once, after `load`."""
        for offsets in self._loaded.values():
            if isinstance(offsets, GroupOffsets):
                yield from offsets.take_restorable().items()

    def take_consumer_records(self) -> Iterator[tuple[ConsumerGroupKey, ConsumerGroupValue]]:
        """What the logs know of groups whose assignments the server makes, once, after `load`."""
        for offsets in self._loaded.values():
            if isinstance(offsets, GroupOffsets):
                yield from offsets.take_consumer_records()

    def check_served(self, group: str) -> None:
        """Raises RequestError: it cannot be a group's name, or the log of that group cannot be read."""
        check_group(group)
        self._offsets(self.partition_of(group))

    def is_known(self, group: str) -> bool:
        """Whether the log has anything of a group. Raises RequestError."""
        return group in self._offsets(self.partition_of(group)).groups()

    async def store_members(self, topic_partition: TopicPartition, values: Mapping[str, GroupMetadataValue]) -> None:
        """Keep the members of groups, all of that partition, in one batch. Raises RequestError for all of them."""
        offsets, now_ms, builder = self._offsets(topic_partition), self._now_ms(), _builder()
        for group, value in values.items():
            builder.append(now_ms, GroupMetadataKey(group).encode(), value.encode())

        def on_stored(result: AppendResult) -> None:
            for group, value in values.items():
                offsets.put_group(group, value)

        await self._topic.append(topic_partition, builder.build(), on_stored)

    async def store(
        self, group: str, records: Sequence[RawRecord], on_stored: Callable[[], None], *, replaces_classic: bool
    ) -> None:
        """Keep records of a group whose assignments the server makes, in one batch; `on_stored` is called in log order.
        `replaces_classic`: what the log has of a classic group of that name goes with it, but for its offsets. Raises
        RequestError; then none of them is in the log."""
        topic_partition = self.partition_of(group)
        offsets, now_ms, builder = self._offsets(topic_partition), self._now_ms(), _builder()
        if replaces_classic and offsets.has_group_record(group):
            builder.append(now_ms, GroupMetadataKey(group).encode(), None)
        for key, value in records:
            builder.append(now_ms, key, value)

        def stored(result: AppendResult) -> None:
            if replaces_classic:
                offsets.put_group(group, None)
            on_stored()

        await self._topic.append(topic_partition, builder.build(), stored)

    # ---- taking back -----------------------------------------------------------------------------------------------------

    async def delete(self, group: str) -> None:
        """Forget a group and its offsets. Raises RequestError: unknown, or it commits at this moment."""
        check_group(group)
        topic_partition = self.partition_of(group)
        offsets = self._offsets(topic_partition)
        if offsets.commits_under_way[group] or offsets.pending(group):
            raise RequestError(
                f"group {group!r} is committing offsets, or has some in a transaction that is still open; stop its consumers",
                ErrorCode.NON_EMPTY_GROUP,
            )
        if not offsets.keys(group):
            raise RequestError(
                f"there is no group {group!r}; `triolog groups list` shows those there are", ErrorCode.GROUP_ID_NOT_FOUND
            )
        await self._take_back(topic_partition, offsets, lambda: offsets.keys(group))

    async def expire(self, may_expire: MayExpire) -> int:
        """Take back offsets older than the retention, and answer how many; and the records of groups that have none left.
        Raises RequestError."""
        retention_ms, count = self._config.offsets_retention_ms, 0
        for topic_partition, offsets in self._served():
            expired = partial(offsets.expired, self._now_ms(), retention_ms, may_expire)
            count += await self._take_back(topic_partition, offsets, expired)
            await self._take_back(topic_partition, offsets, partial(offsets.without_offsets, may_expire))
        return count

    async def take_back(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget these offsets of a group; those that are not there are fine. Raises RequestError."""
        topic_partition = self.partition_of(group)
        offsets, asked = self._offsets(topic_partition), set(partitions)

        def choose() -> list[OffsetCommitKey]:
            held = asked & (offsets.offsets(group).keys() | offsets.pending(group))
            return [OffsetCommitKey(group, each) for each in sorted(held)]

        with trio.CancelScope(shield=True):
            await self._take_back(topic_partition, offsets, choose)

    async def forget_topic(self, topic: str) -> None:
        """Take back every offset of a topic that was deleted: another one of that name must not inherit them. Where that fails
        it is logged, because the topic is gone by now."""
        for topic_partition, offsets in self._served():
            try:
                with trio.CancelScope(shield=True):
                    await self._topic.actor(topic_partition).perform(_nothing)
                    await self._take_back(topic_partition, offsets, partial(offsets.of_topic, topic))
            except RequestError as exc:
                LOGGER.error("offsets for the deleted topic %r are left in %s: %s", topic, topic_partition, exc)

    def _served(self) -> Iterator[tuple[TopicPartition, GroupOffsets]]:
        for number, offsets in list(self._loaded.items()):
            if isinstance(offsets, GroupOffsets) and OFFSETS_TOPIC in self._topic.manager.topics:
                yield TopicPartition(OFFSETS_TOPIC, number), offsets

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

            await self._topic.append(topic_partition, records, on_stored)
            count += len(keys)
        return count

    def _tombstones(
        self, keys: Iterable[OffsetCommitKey | GroupMetadataKey]
    ) -> tuple[list[OffsetCommitKey | GroupMetadataKey], bytes] | None:
        now_ms, builder = self._now_ms(), _builder()
        taken = []
        for key in keys:
            builder.append(now_ms, key.encode(), None)
            taken.append(key)
            if builder.estimated_size_bytes >= _BYTES_PER_TOMBSTONES:
                break
        return (taken, builder.build()) if taken else None

    # ---- transactions ----------------------------------------------------------------------------------------------------

    def end_transaction(self, topic_partition: TopicPartition, producer_id: int, *, commit: bool) -> None:
        """A marker was stored in a partition of `__consumer_offsets`."""
        offsets = self._loaded.get(topic_partition.partition)
        if isinstance(offsets, GroupOffsets):
            offsets.end_transaction(producer_id, commit=commit)


def _builder(producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH) -> BatchBuilder:
    """Kafka's coordinator writes sequence 0 always: the log checks the sequences of clients only."""
    is_transactional = producer_id != NO_PRODUCER_ID
    return BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0 if is_transactional else NO_SEQUENCE,
        is_transactional=is_transactional,
    )


def check_group(group: str) -> None:
    """Raises INVALID_GROUP_ID for a name that cannot be one."""
    if not group or len(group.encode()) > INT16_MAX:
        raise RequestError(
            f"a group's name has 1 to {INT16_MAX} bytes, this one has {len(group.encode())}", ErrorCode.INVALID_GROUP_ID
        )


def _nothing(log: Log) -> Procedure[None]:
    """Everything that was enqueued before has been answered when this is done."""
    return
    yield
