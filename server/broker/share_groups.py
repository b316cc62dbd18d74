"""What the coordinator of share groups and the keeper of their states tell each other (KIP-932): the one decides who is a
member and which partitions have a state, the other keeps the states and gives members records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from ...protocol.errors import RequestError
from ...protocol.types import Isolation
from ..actors.coordinators.managed.share_coordinator import ShareCoordinator
from ..config.group_keys import GroupConfig
from ..groups.share.config import OffsetReset, ShareConfig
from ..groups.share.share_states import UNINITIALIZED_OFFSET, UNKNOWN_COUNT, ShareStateSummary
from ..logs.configs import GroupConfigs
from .share_partitions import SharePartitions

NOT_THERE: Final = ShareStateSummary(0, UNINITIALIZED_OFFSET, 0, UNKNOWN_COUNT)


def share_config(values: GroupConfig) -> ShareConfig:
    """How a share group behaves that is configured so."""
    reset = values["share.auto.offset.reset"]
    return ShareConfig(
        offset_reset=OffsetReset(reset.strategy),
        offset_reset_duration_ms=reset.duration_ms or 0,
        isolation=Isolation.READ_COMMITTED if values["share.isolation.level"] else Isolation.READ_UNCOMMITTED,
        record_lock_duration_ms=values["share.record.lock.duration.ms"],
        delivery_count_limit=values["share.delivery.count.limit"],
        partition_max_record_locks=values["share.partition.max.record.locks"],
        renew_acknowledge_enabled=values["share.renew.acknowledge.enable"],
        session_timeout_ms=values["share.session.timeout.ms"],
        heartbeat_interval_ms=values["share.heartbeat.interval.ms"],
    )


@attrs.frozen(eq=False, repr=False)
class SharePartitionStates:
    """Share states as the coordinator asks for them (`ShareStates`)."""

    _shares: SharePartitions

    async def initialize(self, group: str, topic_id: bytes, partition: int, start_offset: int, state_epoch: int) -> None:
        await self._shares.initialize(group, topic_id, partition, start_offset, state_epoch)

    async def initialize_all(
        self, group: str, partitions: Iterable[tuple[bytes, int]], start_offset: int, state_epoch: int
    ) -> dict[tuple[bytes, int], RequestError]:
        return await self._shares.initialize_all(group, partitions, start_offset, state_epoch)

    async def alter(self, group: str, topic_id: bytes, partition: int, start_offset: int, state_epoch: int) -> None:
        await self._shares.initialize(group, topic_id, partition, start_offset, state_epoch)

    async def read_summary(self, group: str, topic_id: bytes, partition: int) -> ShareStateSummary:
        found = self._shares.read_summary(group, topic_id, partition)
        return NOT_THERE if found is None else ShareStateSummary(*found)

    async def delete(self, group: str, topic_id: bytes, partition: int) -> None:
        await self._shares.delete(group, topic_id, partition)


def join_share_groups(coordinator: ShareCoordinator, shares: SharePartitions, configs: GroupConfigs) -> None:
    """Let them know of each other."""
    coordinator.states = SharePartitionStates(shares)
    coordinator.on_gone = shares.gone
    shares.config_of = lambda group: share_config(configs.of_group(group))
