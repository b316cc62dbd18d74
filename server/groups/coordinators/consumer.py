"""The coordinator of consumer groups (KIP-848). Beside what all coordinators do (see `assigned`) it serves members that use the
classic protocol, and converts groups with members from one protocol to the other.

*Invariant*: at any time one of the two state machines, this one or `ClassicGroups`, has a group. A conversion is one batch of
records. While it is being stored the classic group does not change: what would change it waits for the group's lock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs

from ....protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from ....protocol.coordinator.fields import RecordKinds
from ....protocol.errors import ErrorCode, RequestError
from ...loop.waiting import deadline_now_ms
from ..assigned.groups import Plan
from ..assigned.values import AssignedGroupDescription, HeartbeatAnswer
from ..classic.values import Heartbeat, Join, JoinAnswer, LeaveAnswer, LeavingMember, Outcome, Sync, SyncAnswer
from ..consumer.classic_members import ClassicMembers
from ..consumer.group import ConsumerGroup
from ..consumer.groups import ConsumerGroups
from ..consumer.member import CONSUMER_TYPE, ConsumerHeartbeat
from .assigned import AssignedCoordinator


@attrs.define(eq=False, repr=False)
class ConsumerCoordinator(AssignedCoordinator[ConsumerGroups, HeartbeatAnswer, AssignedGroupDescription]):
    """See the module."""

    KIND: ClassVar[str] = CONSUMER_TYPE
    GROUPS: ClassVar[type[Any]] = ConsumerGroups
    RECORDS: ClassVar[RecordKinds[Any, Any]] = CONSUMER_GROUP_RECORDS

    settle: Callable[[Outcome], None] = lambda _: None
    """Carries out what a conversion leads to in the classic groups."""
    _classic_members: ClassicMembers = attrs.field(
        default=attrs.Factory(lambda self: ClassicMembers(self._groups), takes_self=True), init=False
    )

    # ---- conversion ------------------------------------------------------------------------------------------------------

    def _plan(self, request: ConsumerHeartbeat) -> Plan[ConsumerGroup]:
        classic = self._convertible(request.group_id)
        if classic is not None and request.is_joining:
            return self._groups.upgrade(classic, request, self._wall_ms())
        return self._groups.heartbeat(request, self._wall_ms())

    def _convertible(self, group: str) -> Any:
        """Return the classic group with members that has a name; None where there is none."""
        return None if group in self._groups or self._classic is None else self._classic.with_members(group)

    @asynccontextmanager
    async def _in_place_of_classic(self, group: str) -> AsyncIterator[bool]:
        if self._classic is None or self._convertible(group) is None:
            async with AssignedCoordinator._in_place_of_classic(self, group) as is_new:
                yield is_new
            return
        self._classic.begin_conversion(group)
        try:
            yield True
        finally:
            self.settle(self._classic.end_conversion(group, is_converted=group in self._groups))

    def _commit(self, plan: Plan[ConsumerGroup]) -> None:
        AssignedCoordinator._commit(self, plan)
        downgrade = plan.downgrade
        if downgrade is not None and self._classic is not None:
            adopted = self._classic.adopt(downgrade.group, deadline_now_ms(), must_rebalance=downgrade.must_rebalance)
            self.settle(adopted)

    # ---- members that use the classic protocol ---------------------------------------------------------------------------

    async def join(self, request: Join) -> JoinAnswer | None:
        """Join a group that has members. None: there is no such group of this kind, also if there was an empty one. Cancelled:
        what it has led to is stored all the same."""
        group = request.group_id
        try:
            while self.is_concerned_with(group):
                async with self._locks.hold(group):
                    if self.has_members(group):
                        self._check_serving(group)
                        plan = self._classic_members.join(request, self._wall_ms())
                        await self._carry_out(plan)
                        assert isinstance(plan.answer, JoinAnswer)
                        return plan.answer
                    if group in self._groups:
                        await self._remove_empty(group)
        except RequestError as exc:
            return JoinAnswer(error=_code(exc))
        return None

    async def sync(self, request: Sync) -> SyncAnswer | None:
        """Return a member's partitions. None: there is no such group of this kind."""
        group = request.group_id
        while self.is_concerned_with(group):
            if group not in self._groups:
                async with self._locks.hold(group):
                    continue
            try:
                return self._classic_members.sync(request, deadline_now_ms())
            except RequestError as exc:
                return SyncAnswer(error=_code(exc))
            finally:
                self._alarm.bring_forward(self._groups.earliest_deadline_ms)
        return None

    def beat(self, request: Heartbeat) -> ErrorCode:
        """Extend the session of a member. REBALANCE_IN_PROGRESS: it has to join again."""
        try:
            return self._classic_members.heartbeat(request, deadline_now_ms())
        except RequestError as exc:
            return _code(exc)
        finally:
            self._alarm.bring_forward(self._groups.earliest_deadline_ms)

    async def leave(self, group: str, members: Sequence[LeavingMember]) -> LeaveAnswer | None:
        """Take members of either protocol out. None: there is no such group of this kind. Cancelled: they have left all the
        same."""
        while self.is_concerned_with(group):
            async with self._locks.hold(group):
                if group in self._groups:
                    try:
                        self._check_serving(group)
                        plan = self._classic_members.leave(group, members, self._wall_ms())
                        await self._carry_out(plan)
                    except RequestError as exc:
                        return LeaveAnswer(error=_code(exc))
                    assert isinstance(plan.answer, LeaveAnswer)
                    return plan.answer
        return None


def _code(error: RequestError) -> ErrorCode:
    return error.code if isinstance(error.code, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
