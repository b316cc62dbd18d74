"""The share states of a group's partitions, as far as the group's coordinator has to do with them (KIP-932).

The state itself, with the members that read records and the offset where reading begins, belongs to its keeper: `ShareStates`
is what the coordinator requests of it. The group's log knows which partitions have a state (Kafka:
ShareGroupStatePartitionMetadata):

| set | means |
|---|---|
| initializing | a state was requested, and is not known to exist |
| initialized | a state exists: members may read the partition |
| deleting | these topics need no state any more, and it is not known to be gone |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import attrs

from ....protocol.coordinator.share_group_records import (
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTopicInfo,
    ShareGroupTopicPartitionsInfo,
)
from ....protocol.errors import RequestError
from ..assigned.values import NO_PARTITIONS, Partitions, by_first

UNINITIALIZED_OFFSET: Final = -1
"""In place of a start offset: `share.auto.offset.reset` says where reading begins."""
UNKNOWN_COUNT: Final = -1


class ShareStateSummary(NamedTuple):
    """A partition's share state, in short."""

    state_epoch: int
    start_offset: int
    """-1: nobody has read yet."""
    leader_epoch: int
    delivery_complete_count: int
    """Records from the start offset on whose delivery has ended; -1 where it is not known."""


class ShareStates(Protocol):
    """The keeper of share states. All raise RequestError; what returns is on the device."""

    async def initialize(self, group: str, topic_id: bytes, partition: int, start_offset: int, state_epoch: int) -> None:
        """Have a state that begins there. An existing one begins again, unless its epoch is higher."""

    async def initialize_all(
        self, group: str, partitions: Iterable[tuple[bytes, int]], start_offset: int, state_epoch: int
    ) -> Mapping[tuple[bytes, int], RequestError]:
        """`initialize` for many. Returns those that failed, and raises nothing."""

    def read_summary(self, group: str, topic_id: bytes, partition: int) -> ShareStateSummary | None: ...

    async def delete(self, group: str, topic_id: bytes, partition: int) -> None:
        """Delete a state, if it exists."""


@attrs.frozen(kw_only=True)
class StatePartitions:
    """See the table of the module. A value: its methods make the next one."""

    initializing: Partitions = NO_PARTITIONS
    initialized: Partitions = NO_PARTITIONS
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = attrs.field(factory=dict)
    """Of the topics, by id."""

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    @property
    def is_unsettled(self) -> bool:
        """Return whether share states still have to be created or deleted."""
        return bool(self.initializing or self.deleting)

    @property
    def known(self) -> Partitions:
        """All partitions that may have a state."""
        return self.initializing | self.initialized

    def of_topic(self, topic_id: bytes) -> Partitions:
        return frozenset(each for each in self.known if each[0] == topic_id)

    def begin(self, partitions: Partitions, names: Mapping[bytes, str]) -> StatePartitions:
        """Request states. Those of their topics that were to be deleted begin again instead."""
        return attrs.evolve(
            self,
            initializing=self.initializing | partitions,
            deleting=self.deleting - {topic_id for topic_id, _ in partitions},
            names={**self.names, **names},
        )

    def done(self, partitions: Partitions) -> StatePartitions:
        """Note that these states exist."""
        return attrs.evolve(self, initializing=self.initializing - partitions, initialized=self.initialized | partitions)

    def begin_deletion(self, topic_ids: frozenset[bytes]) -> StatePartitions:
        kept = self.without(topic_ids)
        return attrs.evolve(kept, deleting=kept.deleting | topic_ids, names=self.names)

    def without(self, topic_ids: frozenset[bytes]) -> StatePartitions:
        """Forget everything of these topics."""
        return attrs.evolve(
            self,
            initializing=_outside(self.initializing, topic_ids),
            initialized=_outside(self.initialized, topic_ids),
            deleting=self.deleting - topic_ids,
            names={topic_id: name for topic_id, name in self.names.items() if topic_id not in topic_ids},
        )

    # ---- records ---------------------------------------------------------------------------------------------------------

    def value(self) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=self._recorded(self.initializing),
            initialized_topics=self._recorded(self.initialized),
            deleting_topics=[ShareGroupTopicInfo(topic_id=each, topic_name=self.names[each]) for each in sorted(self.deleting)],
        )

    def _recorded(self, partitions: Partitions) -> list[ShareGroupTopicPartitionsInfo]:
        return [
            ShareGroupTopicPartitionsInfo(topic_id=topic_id, topic_name=self.names[topic_id], partitions=numbers)
            for topic_id, numbers in by_first(partitions).items()
        ]

    @classmethod
    def of(cls, value: ShareGroupStatePartitionMetadataValue | None) -> StatePartitions:
        """Read a record; None: there is none."""
        if value is None:
            return cls()
        names = {each.topic_id: each.topic_name for each in value.deleting_topics}
        names |= {each.topic_id: each.topic_name for each in (*value.initializing_topics, *value.initialized_topics)}
        return cls(
            initializing=_partitions(value.initializing_topics),
            initialized=_partitions(value.initialized_topics),
            deleting=frozenset(each.topic_id for each in value.deleting_topics),
            names=names,
        )


def _partitions(topics: list[ShareGroupTopicPartitionsInfo]) -> Partitions:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def _outside(partitions: Partitions, topic_ids: frozenset[bytes]) -> Partitions:
    return frozenset(each for each in partitions if each[0] not in topic_ids)
