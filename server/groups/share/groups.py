"""All share groups: their members, and share states that come and go (KIP-932; Kafka: GroupMetadataManager's ShareGroup half).

A partition is assigned when it has a share state. A heartbeat that finds subscribed ones without requests states; `states_done`
says when they exist, and the next heartbeat assigns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from ..assigned.groups import AssignedGroups, Plan
from ..assigned.values import NO_PARTITIONS, HeartbeatAnswer, Partitions
from .group import ShareDraft, ShareGroup
from .member import ShareHeartbeat, ShareMember, check_heartbeat


@attrs.define(eq=False, repr=False)
class ShareGroups(AssignedGroups[ShareGroup]):
    """See the module and `AssignedGroups`."""

    GROUP: ClassVar[type[Any]] = ShareGroup
    DRAFT: ClassVar[type[Any]] = ShareDraft

    check = staticmethod(check_heartbeat)

    def advance(self, draft: ShareDraft, request: ShareHeartbeat, known: ShareMember, member: ShareMember) -> Plan[ShareGroup]:
        is_new = member.member_id not in draft.base.members
        is_changed = is_new or known.topic_names != member.topic_names
        is_stale = is_changed or self.topics.version != draft.base.seen_version
        if is_stale:
            draft.drop_deleted_topics()
        if is_changed or (is_stale and draft.has_something_else_to_assign()):
            draft.bump_epoch()
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        target = draft.group.targets.get(member.member_id, NO_PARTITIONS)
        reconciled = member.at(draft.group.assignment_epoch, target)
        if reconciled != member or is_new:
            draft.put_current(reconciled)
        if is_stale:
            draft.begin_missing_states()
        is_news = request.is_full or is_new or reconciled.assigned != known.assigned
        answer = HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self.times_of(request.group_id).heartbeat_interval_ms,
            assignment=reconciled.assigned if is_news else None,
        )
        return self.plan(draft, answer, alive=member.member_id, seen_version=self.topics.version)

    # ---- share states ----------------------------------------------------------------------------------------------------

    def waiting_states(self, group_id: str) -> Partitions:
        """Return the partitions whose share state was requested and is not known to exist."""
        group = self.find(group_id)
        return NO_PARTITIONS if group is None else group.states.initializing

    def plan_states(self, group_id: str, partitions: Partitions, names: Mapping[bytes, str], wall_ms: int) -> Plan[ShareGroup]:
        """Plan states of partitions for an administrator; `names` of their topics by id. An unknown group is created. Raises
        NON_EMPTY_GROUP."""
        group = self.empty_group(group_id) if group_id in self else self.new_group(group_id)
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.put_states(group.states.begin(partitions, names))
        return self.plan(draft)

    def states_done(self, group_id: str, partitions: Partitions, wall_ms: int) -> Plan[ShareGroup]:
        """Plan that the states of these partitions exist."""
        draft = ShareDraft(self.known(group_id), self.topics, wall_ms)
        draft.put_states(draft.base.states.done(partitions))
        return self.plan(draft)

    def plan_deletion(self, group_id: str, topic_ids: frozenset[bytes], wall_ms: int) -> Plan[ShareGroup]:
        """Plan that the states of these topics are to go. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.empty_group(group_id)
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.put_states(group.states.begin_deletion(topic_ids & group.states.names.keys()))
        return self.plan(draft)

    def states_gone(self, group_id: str, topic_ids: frozenset[bytes], wall_ms: int) -> Plan[ShareGroup]:
        """Plan that they are gone."""
        draft = ShareDraft(self.known(group_id), self.topics, wall_ms)
        draft.put_states(draft.base.states.without(topic_ids))
        return self.plan(draft)
