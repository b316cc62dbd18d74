"""The content of `__consumer_offsets` in memory: read at the start, then changed by stored records (Kafka: GroupCoordinator,
CoordinatorRuntime).

The records of a group are in one partition of the topic: its committed offsets (see `committed_offsets`), and its members (see
`group_coordinator` and `consumer_coordinator`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from ...protocol.coordinator.classic_group_records import GroupMetadataValue
from ...protocol.coordinator.fields import RecordKinds
from ...protocol.coordinator.offsets import OFFSETS_TOPIC, GroupMetadataKey
from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import INT16_MAX
from ...protocol.records.builder import BatchBuilder
from ...protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, AppendResult, TopicPartition
from ..logs.internal_topic import InternalTopic
from ..logs.log_manager import LogManager
from ..logs.topics import Topics
from ..storage.disk.diskops import Procedure
from ..storage.log.log import Log
from ..system.client_memory import Account, ClientMemory
from ..system.clock import NowMs
from .group_offsets import GroupOffsets

K = TypeVar("K")
V = TypeVar("V")

RawRecord = tuple[bytes, bytes | None]
"""(key, value) of a record; None takes away what the key names."""


@attrs.define(eq=False, repr=False)
class OffsetsTopic(InternalTopic):
    """Owner of what is in memory of `__consumer_offsets`. Called from any task of the trio thread; `load` comes first."""

    _loaded: dict[int, GroupOffsets | RequestError] = attrs.field(factory=dict)

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> OffsetsTopic:
        return cls(manager, now_ms, OFFSETS_TOPIC, manager.config.offsets_topic_num_partitions)

    @property
    def topics(self) -> Topics:
        return self.manager.topics

    @property
    def memory(self) -> ClientMemory:
        """Return the account of memory that clients use here."""
        return self.manager.client_memory

    @property
    def account(self) -> Account:
        return self.memory.account("committed offsets")

    async def load(self) -> None:
        """Read every partition of the topic to its end. One that cannot be read answers with the reason from then on."""
        for place in self.places:
            await self.load_partition(place)

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
            return self.actor(topic_partition).snapshot().high_watermark
        except RequestError:
            return -1

    async def _load(self, topic_partition: TopicPartition) -> GroupOffsets | RequestError:
        async def read() -> GroupOffsets:
            offsets = GroupOffsets()
            await self.replay(topic_partition, offsets.replay)
            offsets.on_moved = self.manager.gap_passes.committed
            offsets.charge_to(self.account)
            return offsets

        return await self.loaded(read, f"the groups of {topic_partition}", topic_partition)

    def contents(self, topic_partition: TopicPartition) -> GroupOffsets:
        """Return the content of a partition of the topic. Raises RequestError."""
        found = self._loaded.get(topic_partition.partition)
        if found is None:
            found = self._loaded[topic_partition.partition] = GroupOffsets(on_moved=self.manager.gap_passes.committed)
            found.charge_to(self.account)
        if isinstance(found, RequestError):
            raise found.as_answer()
        return found

    def readable(self) -> Iterator[tuple[TopicPartition, GroupOffsets]]:
        """Every partition that could be read; none before the topic is there."""
        for number, offsets in list(self._loaded.items()) if self.exists else ():
            if isinstance(offsets, GroupOffsets):
                yield TopicPartition(OFFSETS_TOPIC, number), offsets

    def names(self) -> set[str]:
        """Every group. Groups of a partition that cannot be served are not among them."""
        return {name for _, offsets in self.readable() for name in offsets.groups()}

    def check_served(self, group: str) -> None:
        """Raises RequestError: it cannot be a group's name, or the log of that group cannot be read."""
        check_group(group)
        self.contents(self.partition_of(group))

    def is_known(self, group: str) -> bool:
        """Return whether the log has records of a group. Raises RequestError."""
        return group in self.contents(self.partition_of(group)).groups()

    def take_restorable(self) -> Iterator[tuple[str, GroupMetadataValue]]:
        """The classic groups whose members the logs know, once, after `load`."""
        for _, offsets in self.readable():
            yield from offsets.take_restorable().items()

    def take_assigned(self, kinds: RecordKinds[K, V]) -> Iterator[tuple[K, V]]:
        """Yield, once after `load`, the entries of the logs for one kind of groups whose assignments the server computes."""
        for _, offsets in self.readable():
            yield from offsets.take_assigned(kinds)

    def end_transaction(self, topic_partition: TopicPartition, producer_id: int, *, commit: bool) -> None:
        """A marker was stored in a partition of `__consumer_offsets`."""
        offsets = self._loaded.get(topic_partition.partition)
        if isinstance(offsets, GroupOffsets):
            offsets.end_transaction(producer_id, commit=commit)

    async def catch_up(self, topic_partition: TopicPartition) -> None:
        """Everything that was enqueued before has been answered when this returns. Raises RequestError."""
        await self.actor(topic_partition).perform(_nothing)

    async def store_members(self, topic_partition: TopicPartition, values: Mapping[str, GroupMetadataValue]) -> None:
        """Keep the members of groups, all of that partition, in one batch. Raises RequestError for all of them."""
        offsets, now_ms, builder = self.contents(topic_partition), self.now_ms(), batch_builder()
        for group, value in values.items():
            builder.append(now_ms, GroupMetadataKey(group).encode(), value.encode())

        def on_stored(result: AppendResult) -> None:
            for group, value in values.items():
                offsets.put_group(group, value)

        await self.append(topic_partition, builder.build(), on_stored)

    async def store(
        self,
        group: str,
        records: Sequence[RawRecord],
        on_stored: Callable[[], None],
        *,
        replaces_classic: bool,
        classic: GroupMetadataValue | None = None,
    ) -> None:
        """Keep records of a group whose assignments the server makes in one batch; `on_stored` is called in log order.
        `replaces_classic`: the record of a classic group of that name is deleted in the same batch; its offsets stay.
        `classic`: the record of the classic group that takes the group's place. Raises RequestError; then none of them is in
        the log."""
        topic_partition = self.partition_of(group)
        offsets, now_ms, builder = self.contents(topic_partition), self.now_ms(), batch_builder()
        if replaces_classic and offsets.has_group_record(group):
            builder.append(now_ms, GroupMetadataKey(group).encode(), None)
        for key, value in records:
            builder.append(now_ms, key, value)
        if classic is not None:
            classic.current_state_timestamp = now_ms
            builder.append(now_ms, GroupMetadataKey(group).encode(), classic.encode())

        def stored(result: AppendResult) -> None:
            if replaces_classic or classic is not None:
                offsets.put_group(group, classic)
            on_stored()

        await self.append(topic_partition, builder.build(), stored)


def batch_builder(producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH) -> BatchBuilder:
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
