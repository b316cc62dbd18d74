"""The coordinator of Streams groups (KIP-1071; Kafka: GroupCoordinatorService).

What is decided is `server.groups.streams`' matter. Here are the turns, the clock and the log, see `managed_coordinator`.
Internal topics that are missing stand in the answer of a heartbeat: whoever sent it makes them, if the member may.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import attrs

from .....protocol.coordinator.fields import RecordKinds
from .....protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS
from .....protocol.types import TopicPartition
from ....groups.classic import ClassicGroups
from ....groups.streams.checks import check_commit, check_fetch, check_heartbeat, other_kind, unknown_group
from ....groups.streams.streams_groups import StreamsGroups, StreamsPlan
from ....groups.streams.values import (
    StreamsGroupDescription,
    StreamsGroupSettings,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsTimerKey,
    StreamsTimes,
)
from ....groups.values import CommittingMember
from ....logs.configs import GroupConfigs
from ....settings.broker_config import BrokerConfig
from ....system.clock import NowMs
from ..offsets_topic import OffsetsTopic
from .group_turns import GroupTurns
from .managed_coordinator import ManagedCoordinator, in_place_of_classic
from .topic_image import ServerTopics


@attrs.define(eq=False, repr=False)
class StreamsCoordinator(ManagedCoordinator[StreamsGroups, StreamsPlan, StreamsTimerKey]):
    """See the module."""

    KIND: ClassVar[str] = "streams"
    RECORDS: ClassVar[RecordKinds[Any, Any]] = STREAMS_GROUP_RECORDS

    _classic: ClassicGroups = attrs.field(kw_only=True)

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        topic: OffsetsTopic,
        classic: ClassicGroups,
        wall_ms: NowMs,
        *,
        turns: GroupTurns,
        configs: GroupConfigs,
    ) -> StreamsCoordinator:
        settings = StreamsGroupSettings(max_size=config.group_streams_max_size, max_groups=config.max_groups)
        groups = StreamsGroups(settings, ServerTopics(topic.topics), partial(_times, configs))
        return cls(topic, groups, wall_ms, turns, classic=classic)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def heartbeat_now(self, request: StreamsHeartbeat) -> StreamsHeartbeatAnswer | None:
        """The answer to a heartbeat without news: nothing changes but that its session begins anew, and nothing waits, nor are
        there topics to be made. None: nothing has happened, ask `heartbeat`."""
        plan = self._plan_now(request, check_heartbeat)
        if plan is None or plan.answer is None or plan.answer.missing_topics:
            return None
        self._commit(plan)
        return plan.answer

    async def heartbeat(self, request: StreamsHeartbeat) -> StreamsHeartbeatAnswer:
        """Join, stay in, or leave. Raises RequestError. Cancelled: what it has led to is stored all the same."""
        check_heartbeat(request)
        self._check_serving(request.group_id)
        async with self._turns.of(request.group_id):
            if self.is_of_another_kind(request.group_id):
                raise other_kind(request.group_id)
            plan = self._groups.heartbeat(request, self._wall_ms())
            is_new = request.group_id not in self._groups
            refusal = other_kind(request.group_id)
            async with in_place_of_classic(self._classic, request.group_id, refusal, is_new=is_new):
                await self._carry_out(plan, replaces_classic=is_new)
        assert plan.answer is not None
        return plan.answer

    # ---- questions -------------------------------------------------------------------------------------------------------

    def check_commit(
        self, group: str, member: CommittingMember, partitions: Iterable[TopicPartition], *, is_transactional: bool
    ) -> None:
        """Raises RequestError unless this member may commit offsets of these partitions."""
        found = self._groups.find(group)
        if found is not None:
            check_commit(
                found,
                member.member_id,
                member.generation,
                partitions,
                is_transactional=is_transactional,
                version=member.version,
            )

    def check_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Raises RequestError unless this member may read offsets."""
        found = self._groups.find(group)
        if found is not None:
            check_fetch(found, member_id, member_epoch)

    def is_subscribed_to(self, group: str, topic: str) -> bool:
        found = self._groups.find(group)
        return found is not None and found.is_subscribed_to(topic)

    def describe(self, group: str) -> StreamsGroupDescription:
        """Raises RequestError: GROUP_ID_NOT_FOUND for a group that is not of this kind."""
        self._check_serving(group)
        found = self._groups.find(group)
        if found is None:
            raise other_kind(group) if self.is_of_another_kind(group) else unknown_group(group)
        return self._groups.describe(found)


def _times(configs: GroupConfigs, group: str) -> StreamsTimes:
    config = configs.of_group(group)
    return StreamsTimes(
        heartbeat_interval_ms=config["streams.heartbeat.interval.ms"],
        session_timeout_ms=config["streams.session.timeout.ms"],
        initial_rebalance_delay_ms=config["streams.initial.rebalance.delay.ms"],
        num_standby_replicas=config["streams.num.standby.replicas"],
    )
