"""The coordinator of consumer groups, whose assignments the server makes (KIP-848; Kafka: GroupCoordinatorService).

What is decided is `server.groups.consumer`'s matter. Here are the turns, the clock and the log: each group has one change at a
time, in the order of the heartbeats, and its records are in `__consumer_offsets` before anybody is told what they say. A
heartbeat without news waits for nothing but the turns before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import attrs

from ....protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from ....protocol.errors import ErrorCode, RequestError
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
from ...settings.broker_config import BrokerConfig
from ...system.clock import NowMs
from ..manager.state.group_configs import GroupConfigs
from .alarm import Alarm, deadline_now_ms
from .managed.group_log import check_serving, expire_in_time, member_times, store_records
from .managed.group_turns import GroupTurns
from .managed.topic_image import ServerTopics
from .offsets_topic import OffsetsTopic

LOGGER: Final = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""After which a member that is to go is looked at again, when that could not be stored."""


@attrs.define(eq=False)
class ConsumerCoordinator:
    """See the module. Owner of the members of all groups of this kind; called from any task of the trio thread."""

    _topic: OffsetsTopic
    _classic: ClassicGroups
    _groups: ConsumerGroups
    _wall_ms: NowMs
    _turns: GroupTurns = attrs.field(factory=GroupTurns)
    is_of_another_kind: Callable[[str], bool] = lambda _: False
    """Whether a group of that name is neither a classic one nor one of these."""
    _alarm: Alarm = attrs.field(factory=Alarm)
    _is_closed: bool = False

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
        return cls(topic, classic, groups, wall_ms, turns)

    # ---- life ------------------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Take over the groups that the logs know, once they are loaded; the sessions of their members begin."""
        for key, value in self._topic.take_consumer_records():
            self._groups.replay(key, value)
        self._groups.begin_sessions(deadline_now_ms())

    async def run(self) -> None:
        """What comes due. Cancelled: a record that is being written is."""
        await expire_in_time(self._alarm, self._groups, self._expire)

    def close(self) -> None:
        """Answer everybody who comes that this is the coordinator no more."""
        self._is_closed = True

    async def _expire(self, key: ConsumerTimerKey) -> None:
        async with self._turns.of(key.group_id):
            plan = self._groups.expire(key, self._wall_ms())
            if plan is None:
                return
            LOGGER.info("group %s: member %s is out, its %s is over", key.group_id, key.member_id, key.kind.name.lower())
            try:
                await self._carry_out(plan)
            except RequestError as exc:
                LOGGER.warning("group %s: that member %s is out could not be stored: %s", key.group_id, key.member_id, exc)
                self._groups.timers.set(key, deadline_now_ms() + RETRY_MS)
                self._alarm.bring_forward(self._groups.next_deadline_ms)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def heartbeat_now(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer | None:
        """The answer to a heartbeat without news: nothing changes but that its session begins anew, and nothing waits. None:
        nothing has happened, ask `heartbeat`."""
        group = request.group_id
        if group not in self._groups or group in self._turns:
            return None
        try:
            check_heartbeat(request)
            self._check_serving(group)
            plan = self._groups.heartbeat(request, self._wall_ms())
        except RequestError:
            return None
        if plan.records:
            return None
        self._groups.commit(plan, deadline_now_ms())
        self._alarm.bring_forward(self._groups.next_deadline_ms)
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
            if is_new and not self._classic.begin_delete(request.group_id):
                raise RequestError(
                    f"Group {request.group_id} is not a consumer group: it has members that speak the classic protocol",
                    ErrorCode.GROUP_ID_NOT_FOUND,
                )
            is_stored = False
            try:
                await self._carry_out(plan, replaces_classic=is_new)
                is_stored = True
            finally:
                if is_new:
                    self._classic.end_delete(request.group_id, is_deleted=is_stored)
        assert plan.answer is not None
        return plan.answer

    def _check_serving(self, group: str) -> None:
        check_serving(self._topic, group, is_closed=self._is_closed)

    async def _carry_out(self, plan: Plan, *, replaces_classic: bool = False) -> None:
        """Store a plan's records, then make it true. Raises RequestError; then nothing has changed."""
        if not plan.records:
            self._commit(plan)
            return
        await self._store(plan, lambda: self._commit(plan), replaces_classic=replaces_classic)

    def _commit(self, plan: Plan) -> None:
        self._groups.commit(plan, deadline_now_ms())
        self._alarm.bring_forward(self._groups.next_deadline_ms)

    async def _store(self, plan: Plan, on_stored: Callable[[], None], *, replaces_classic: bool = False) -> None:
        encoded = [CONSUMER_GROUP_RECORDS.encode(record) for record in plan.records]
        await store_records(self._topic, plan.group.group_id, encoded, on_stored, replaces_classic=replaces_classic)

    # ---- between the kinds -----------------------------------------------------------------------------------------------

    def __contains__(self, group: object) -> bool:
        """Whether it is a group of this kind."""
        return group in self._groups

    def has_members(self, group: str) -> bool:
        found = self._groups.find(group)
        return found is not None and bool(found.members)

    async def remove(self, group: str) -> None:
        """Take a group without members out; its offsets stay. Nothing of this kind is there when this returns. Raises
        RequestError: NON_EMPTY_GROUP."""
        while group in self._turns or group in self._groups:
            async with self._turns.of(group):
                if group in self._groups:
                    await self._store(self._groups.plan_removal(group), lambda: self._groups.forget(group))

    async def make_way(self, group: str) -> ErrorCode:
        """Remove a consumer group without members, so that a classic one can have its name; answers why that cannot be."""
        try:
            await self.remove(group)
        except RequestError as exc:
            if exc.code is ErrorCode.NON_EMPTY_GROUP:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return exc.code if isinstance(exc.code, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def expire(self) -> int:
        """Take out groups without members and without offsets, and answer how many. Raises RequestError."""
        blank = [
            each.group_id for each in self._groups.groups() if not each.members and not self._topic.is_known(each.group_id)
        ]
        for group in blank:
            if not self.has_members(group):
                await self.remove(group)
        return len(blank)

    # ---- questions -------------------------------------------------------------------------------------------------------

    def check_commit(self, group: str, member: CommittingMember, *, is_transactional: bool) -> None:
        """Raises RequestError unless this member may commit offsets."""
        found = self._groups.find(group)
        if found is not None:
            check_commit(found, member.member_id, member.generation, is_transactional=is_transactional, version=None)

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

    def descriptions(self) -> Collection[ConsumerGroupDescription]:
        return [group.describe() for group in self._groups.groups()]


def not_a_consumer_group(group: str) -> RequestError:
    return RequestError(f"Group {group} is not a consumer group.", ErrorCode.GROUP_ID_NOT_FOUND)
