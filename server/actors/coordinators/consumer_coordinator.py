"""The coordinator of consumer groups, whose assignments the server makes (KIP-848; Kafka: GroupCoordinatorService).

What is decided is `server.groups.consumer`'s matter. Here are the turns, the clock and the log: each group has one change at a
time, in the order of the heartbeats, and its records are in `__consumer_offsets` before anybody is told what they say. A
heartbeat without news waits for nothing but the turns before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import attrs

from ....protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from ....protocol.coordinator.fields import RecordKinds
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...groups.classic import ClassicGroups
from ...groups.consumer import ConsumerGroups, Plan, unknown_group
from ...groups.consumer_checks import check_commit, check_fetch, check_heartbeat
from ...groups.consumer_values import (
    ConsumerGroupDescription,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    ConsumerTimerKey,
)
from ...groups.values import CommittingMember
from ...logs.configs import GroupConfigs
from ...settings.broker_config import BrokerConfig
from ...system.clock import NowMs
from .managed.group_log import member_times
from .managed.group_turns import GroupTurns
from .managed.managed_coordinator import ManagedCoordinator, in_place_of_classic
from .managed.topic_image import ServerTopics
from .offsets_topic import OffsetsTopic


@attrs.define(eq=False, repr=False)
class ConsumerCoordinator(ManagedCoordinator[ConsumerGroups, Plan, ConsumerTimerKey]):
    """See the module."""

    KIND: ClassVar[str] = "consumer"
    RECORDS: ClassVar[RecordKinds[Any, Any]] = CONSUMER_GROUP_RECORDS

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
    ) -> ConsumerCoordinator:
        settings = ConsumerGroupSettings(max_size=config.group_max_size, max_groups=config.max_groups)
        groups = ConsumerGroups(settings, ServerTopics(topic.topics), partial(member_times, configs, "consumer"))
        return cls(topic, groups, wall_ms, turns, classic=classic)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def heartbeat_now(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer | None:
        """The answer to a heartbeat without news: nothing changes but that its session begins anew, and nothing waits. None:
        nothing has happened, ask `heartbeat`."""
        plan = self._plan_now(request, check_heartbeat)
        if plan is None:
            return None
        self._commit(plan)
        return plan.answer

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Join, stay in, or leave. Raises RequestError. Cancelled: what it has led to is stored all the same."""
        check_heartbeat(request)
        self._check_serving(request.group_id)
        async with self._turns.of(request.group_id):
            if self.is_of_another_kind(request.group_id):
                raise not_a_consumer_group(request.group_id)
            plan = self._groups.heartbeat(request, self._wall_ms())
            is_new = request.group_id not in self._groups
            refusal = RequestError(
                f"Group {request.group_id} is not a consumer group: it has members that speak the classic protocol",
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
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
            check_commit(found, member, partitions, self._groups.topics, is_transactional=is_transactional)

    def check_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Raises RequestError unless this member may read offsets."""
        found = self._groups.find(group)
        if found is not None:
            check_fetch(found, member_id, member_epoch)

    def is_subscribed_to(self, group: str, topic: str) -> bool:
        found = self._groups.find(group)
        return found is not None and found.is_subscribed_to(topic)

    def describe(self, group: str) -> ConsumerGroupDescription:
        """Raises RequestError: GROUP_ID_NOT_FOUND for a group that is not of this kind."""
        self._check_serving(group)
        found = self._groups.find(group)
        if found is None:
            raise not_a_consumer_group(group) if self.is_of_another_kind(group) else unknown_group(group)
        return found.describe()


def not_a_consumer_group(group: str) -> RequestError:
    return RequestError(f"Group {group} is not a consumer group.", ErrorCode.GROUP_ID_NOT_FOUND)
