"""All share groups: heartbeats, the passing of time, share states that come and go (KIP-932; Kafka: GroupMetadataManager's
ShareGroup half).

A command *plans*: it answers with records to store and changes nothing. Once they are in the log `commit` makes the plan true;
a plan that cannot be stored is dropped. Between a plan for a group and its commit no other one is made for that group: whoever
owns this sees to that. A plan without records is committed at once.

A partition is assigned when it has a share state. A heartbeat that finds subscribed ones without asks for states; when those
are there `states_done` says so, and the next heartbeat assigns them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from ....protocol.coordinator.share_group_records import ShareGroupMetadataKey, ShareGroupRecord
from ....protocol.errors import ErrorCode, RequestError
from ..consumer_assignors import NO_PARTITIONS, Partitions
from ..consumer_values import JOIN_EPOCH, MemberTimes, TopicImage
from ..managed.group_table import GroupTable
from .checks import check_heartbeat, not_empty, unknown_group, unknown_member
from .draft import ShareDraft
from .group import ShareGroup
from .member import ShareMember
from .member_values import (
    ShareGroupSettings,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareSessionKey,
)


@attrs.frozen(kw_only=True)
class SharePlan:
    """What a command has come to: `commit` makes it so."""

    records: tuple[ShareGroupRecord, ...]
    """To be stored, all or none."""
    answer: ShareHeartbeatAnswer | None = None
    base: ShareGroup
    group: ShareGroup
    alive: str | None = None
    """Whose session begins anew."""
    seen_version: int | None = None


@attrs.define(eq=False, repr=False)
class ShareGroups(GroupTable[ShareGroup, ShareSessionKey]):
    """See the module. Owner of all share groups; whoever makes it calls it from one task at a time."""

    METADATA_KEY: ClassVar[type[Any]] = ShareGroupMetadataKey

    settings: ShareGroupSettings
    topics: TopicImage
    times_of: Callable[[str], MemberTimes] = lambda _: MemberTimes()
    """Of a group's members; a change counts from the next heartbeat on."""

    def _new_group(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id=group_id)

    def known(self, group_id: str) -> ShareGroup:
        """Not to be changed. Raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise unknown_group(group_id)
        return group

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat, wall_ms: int) -> SharePlan:
        """What a heartbeat leads to. Raises RequestError; then nothing has come of it."""
        check_heartbeat(request)
        if request.is_leaving:
            return self._leave(request, wall_ms)
        base = self._groups.get(request.group_id)
        if base is None:
            base = self._joined_group(request)
        draft = ShareDraft(base, self.topics, wall_ms)
        self._check_room(base, request.member_id)
        known = base.members.get(request.member_id)
        if known is None and request.member_epoch != JOIN_EPOCH:
            raise unknown_member(request.group_id, request.member_id)
        member = known or ShareMember(member_id=request.member_id)
        member.check_epoch(request)
        member = self._updated(draft, known, member.updated(request))
        return SharePlan(
            records=tuple(draft.records),
            answer=ShareHeartbeatAnswer(
                member_id=member.member_id,
                member_epoch=member.epoch,
                heartbeat_interval_ms=self.times_of(request.group_id).heartbeat_interval_ms,
                assignment=member.assigned if request.is_full or known is None or member.assigned != known.assigned else None,
            ),
            base=base,
            group=draft.group,
            alive=member.member_id,
            seen_version=self.topics.version,
        )

    def _joined_group(self, request: ShareHeartbeat) -> ShareGroup:
        if request.member_epoch != JOIN_EPOCH:
            raise RequestError(f"Share group {request.group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)
        return self._room_for(request.group_id)

    def _room_for(self, group_id: str) -> ShareGroup:
        if len(self._groups) >= self.settings.max_groups:
            raise RequestError(
                f"there are {len(self._groups)} share groups, max_groups={self.settings.max_groups}", ErrorCode.POLICY_VIOLATION
            )
        return self._new_group(group_id)

    def _check_room(self, group: ShareGroup, member_id: str) -> None:
        if len(group.members) >= self.settings.max_size and member_id not in group.members:
            raise RequestError(
                f"The share group has reached its maximum capacity of {self.settings.max_size} members.",
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )

    def _updated(self, draft: ShareDraft, known: ShareMember | None, member: ShareMember) -> ShareMember:
        """The member with what follows of its heartbeat, for the group too."""
        if member != known:
            draft.put_member(member)
        is_changed = known is None or known.topic_names != member.topic_names
        is_stale = is_changed or self.topics.version != draft.base.seen_version
        if is_stale:
            draft.drop_deleted_topics()
        if is_changed or (is_stale and draft.has_something_else_to_assign()):
            draft.bump_epoch()
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        target = draft.group.targets.get(member.member_id, NO_PARTITIONS)
        reconciled = member.at(draft.group.assignment_epoch, target)
        if reconciled != member or known is None:
            draft.put_current(reconciled)
        if is_stale:
            draft.begin_missing_states()
        return reconciled

    def _leave(self, request: ShareHeartbeat, wall_ms: int) -> SharePlan:
        group = self.known(request.group_id)
        if request.member_id not in group.members:
            raise unknown_member(group.group_id, request.member_id)
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.fence(request.member_id)
        return _plan(draft, ShareHeartbeatAnswer(member_id=request.member_id, member_epoch=request.member_epoch))

    # ---- share states ----------------------------------------------------------------------------------------------------

    def waiting_states(self, group_id: str) -> Partitions:
        """Partitions for which a share state was asked, and nobody has said that it is there."""
        group = self._groups.get(group_id)
        return NO_PARTITIONS if group is None else group.states.initializing

    def plan_states(self, group_id: str, partitions: Partitions, names: Mapping[bytes, str], wall_ms: int) -> SharePlan:
        """An administrator wants states for partitions; `names` of their topics by id. A group that is not there is made.
        Raises NON_EMPTY_GROUP."""
        group = self._groups.get(group_id) or self._room_for(group_id)
        if group.members:
            raise not_empty()
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.put_states(group.states.begin(partitions, names))
        return _plan(draft)

    def states_done(self, group_id: str, partitions: Partitions, wall_ms: int) -> SharePlan:
        """The states of these partitions are there."""
        draft = ShareDraft(self.known(group_id), self.topics, wall_ms)
        draft.put_states(draft.base.states.done(partitions))
        return _plan(draft)

    def plan_deletion(self, group_id: str, topic_ids: frozenset[bytes], wall_ms: int) -> SharePlan:
        """States of these topics are to go. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.known(group_id)
        if group.members:
            raise not_empty()
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.put_states(group.states.begin_deletion(topic_ids & group.states.names.keys()))
        return _plan(draft)

    def states_gone(self, group_id: str, topic_ids: frozenset[bytes], wall_ms: int) -> SharePlan:
        """They are gone."""
        draft = ShareDraft(self.known(group_id), self.topics, wall_ms)
        draft.put_states(draft.base.states.without(topic_ids))
        return _plan(draft)

    # ---- time ------------------------------------------------------------------------------------------------------------

    def expire(self, key: ShareSessionKey, wall_ms: int) -> SharePlan | None:
        """Take a member out whose session has ended, unless it has spoken meanwhile."""
        group = self._groups.get(key.group_id)
        if group is None or key.member_id not in group.members or self.timers.deadline(key) is not None:
            return None
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.fence(key.member_id)
        return _plan(draft)

    # ---- what was planned comes true -------------------------------------------------------------------------------------

    def commit(self, plan: SharePlan, now_ms: int) -> None:
        """The records of a plan are in the log, or it has none."""
        group, before = plan.group, plan.base
        assert self._groups.get(group.group_id, before) is before, f"{group.group_id}: two plans at once"
        if plan.records:
            self._groups[group.group_id] = group
        if plan.seen_version is not None:
            group.seen_version = plan.seen_version
        for member_id in before.members.keys() - group.members.keys() if plan.records else ():
            self.timers.cancel(ShareSessionKey(group.group_id, member_id))
        if plan.alive is not None:
            self._time_session(group.group_id, plan.alive, now_ms)

    def _time_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self.times_of(group_id).session_timeout_ms
        self.timers.set(ShareSessionKey(group_id, member_id), now_ms + max(timeout_ms, 1))

    # ---- the log ---------------------------------------------------------------------------------------------------------

    def begin_sessions(self, now_ms: int) -> None:
        """The sessions of all members begin."""
        for group in self._groups.values():
            for member_id in group.members:
                self._time_session(group.group_id, member_id, now_ms)

    def plan_removal(self, group_id: str) -> SharePlan:
        """Take an empty group out. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.known(group_id)
        if group.members:
            raise not_empty()
        return SharePlan(records=tuple(group.tombstones()), base=group, group=group)


def _plan(draft: ShareDraft, answer: ShareHeartbeatAnswer | None = None) -> SharePlan:
    return SharePlan(records=tuple(draft.records), answer=answer, base=draft.base, group=draft.group)
