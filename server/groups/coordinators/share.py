"""The coordinator of share groups (KIP-932). Beside what all coordinators do (see `assigned`) it has share states created and
deleted. A heartbeat that finds partitions without a share state is answered when they have one.

A name is a share group's until the group is deleted: it changes to no other kind, and no other kind to this one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final

import attrs
import trio

from ....protocol.coordinator.fields import RecordKinds
from ....protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS
from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnknownTopicOrPartitionError
from ....protocol.types import TopicPartition
from ..assigned.groups import Plan
from ..assigned.values import NO_PARTITIONS, AssignedGroupDescription, HeartbeatAnswer, Partitions, TopicPartitionId
from ..share.groups import SHARE_TYPE, ShareGroup, ShareGroups, ShareHeartbeat
from ..share.states import UNINITIALIZED_OFFSET, UNKNOWN_COUNT, ShareStates, ShareStateSummary
from .assigned import AssignedCoordinator

NO_STATE: Final = ShareStateSummary(0, UNINITIALIZED_OFFSET, 0, UNKNOWN_COUNT)


@attrs.frozen(kw_only=True)
class ShareOffset:
    """The offset where a group begins to read a partition, as DescribeShareGroupOffsets shows it."""

    topic_partition: TopicPartition
    topic_id: bytes | None
    """None: there is no such topic."""
    summary: ShareStateSummary = NO_STATE
    error: RequestError | None = None


@attrs.define(eq=False, repr=False)
class ShareCoordinator(AssignedCoordinator[ShareGroups, HeartbeatAnswer, AssignedGroupDescription]):
    """See the module. A group of another kind that has its name never makes way."""

    KIND: ClassVar[str] = SHARE_TYPE
    GROUPS: ClassVar[type[Any]] = ShareGroups
    RECORDS: ClassVar[RecordKinds[Any, Any]] = SHARE_GROUP_RECORDS

    states: ShareStates | None = None
    """The keeper of share states. Without one no member can join."""
    _claims: set[str] = attrs.field(factory=set)
    """Names that are about to be share groups."""

    # ---- members ---------------------------------------------------------------------------------------------------------

    def waits(self, plan: Plan[ShareGroup]) -> bool:
        return plan.group.states.is_unsettled

    async def heartbeat(self, request: ShareHeartbeat) -> HeartbeatAnswer:
        self._groups.check(request)
        self._keeper(request.group_id)
        async with self._changing(request.group_id, may_be_new=request.is_joining):
            plan = self._groups.heartbeat(request, self._wall_ms())
            await self._carry_out(plan)
            if not request.is_leaving:
                await self._settle_states(request.group_id)
        assert isinstance(plan.answer, HeartbeatAnswer)
        return plan.answer

    @asynccontextmanager
    async def _changing(self, group: str, *, may_be_new: bool) -> AsyncIterator[None]:
        """Hold the group's lock for the time of the block. Raises GROUP_ID_NOT_FOUND for one of another kind."""
        async with self._locks.hold(group):
            self._check_kind(group)
            is_claimed = may_be_new and group not in self._groups
            if is_claimed:
                self._claims.add(group)
            try:
                yield
            finally:
                if is_claimed:
                    self._claims.discard(group)

    def _keeper(self, group: str) -> ShareStates:
        """Return the keeper of a group's states. Raises RequestError."""
        self._check_serving(group)
        if self.states is None:
            raise RequestError("this server stores no share states", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.states

    # ---- plans -----------------------------------------------------------------------------------------------------------

    async def _settle_states(self, group: str) -> None:
        """Delete share states that are to go and make those that are missing. What fails is tried again with the next
        heartbeat. Raises RequestError. Cancelled: it is done all the same."""
        found, states = self._groups.find(group), self.states
        if found is None or states is None or not found.states.is_unsettled:
            return
        with trio.CancelScope(shield=True):
            await self._delete_states(group, found.states.deleting)
            wanted, begun = found.states.initializing, {topic_id for topic_id, _ in found.states.initialized}
            # A partition that was added to a topic is read from its first record on: the group would miss those that come
            # before it has a state (Kafka 4.4: GroupMetadataManager.buildInitializeShareGroupStateRequest).
            added = frozenset(each for each in wanted if each[0] in begun)
            failed = {
                **await states.initialize_all(group, sorted(wanted - added), UNINITIALIZED_OFFSET, found.epoch),
                **await states.initialize_all(group, sorted(added), 0, found.epoch),
            }
            if made := wanted - failed.keys():
                await self._carry_out(self._groups.states_done(group, made, self._wall_ms()))
        for error in failed.values():
            raise error

    async def _delete_states(self, group: str, topic_ids: frozenset[bytes]) -> None:
        """Delete the states of topics that are recorded as to go. The states of deleted topics went with these."""
        states, known = self.states, self._groups.known(group).states.names
        if states is None or not topic_ids:
            return
        for topic_id in sorted(topic_ids):
            topic = self._groups.topics.find(known[topic_id])
            if topic is not None and topic.topic_id == topic_id:
                for number in range(topic.partitions):
                    await states.delete(group, topic_id, number)
        await self._carry_out(self._groups.states_gone(group, topic_ids, self._wall_ms()))

    # ---- start offsets ---------------------------------------------------------------------------------------------------

    async def offsets(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> list[ShareOffset]:
        """Return the start offsets of these partitions, or of all that have a share state. A partition without one begins at
        -1, also in an unknown group. Raises RequestError."""
        if group:
            self._check_serving(group)
        found = self._groups.find(group)
        known = NO_PARTITIONS if found is None else found.states.known
        names = {} if found is None else found.states.names
        if partitions is None:
            partitions = sorted(TopicPartition(names[topic_id], number) for topic_id, number in known)
        return [self._offset(group, each, known) for each in partitions]

    def _offset(self, group: str, topic_partition: TopicPartition, known: Partitions) -> ShareOffset:
        topic = self._groups.topics.find(topic_partition.topic)
        if topic is None or self.states is None or (topic.topic_id, topic_partition.partition) not in known:
            return ShareOffset(topic_partition=topic_partition, topic_id=None if topic is None else topic.topic_id)
        try:
            summary = self.states.read_summary(group, topic.topic_id, topic_partition.partition) or NO_STATE
        except RequestError as exc:
            return ShareOffset(topic_partition=topic_partition, topic_id=topic.topic_id, error=exc.as_answer())
        return ShareOffset(topic_partition=topic_partition, topic_id=topic.topic_id, summary=summary)

    async def alter_offsets(self, group: str, offsets: Sequence[tuple[TopicPartition, int]]) -> list[RequestError | None]:
        """Set the start offsets of a group without members; an unknown group is created. Returns one answer for each, in order.
        Raises RequestError for all of them: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. Cancelled: it is done all the same."""
        states = self._keeper(group)
        if not offsets:
            self._check_kind(group)
            return []
        async with self._changing(group, may_be_new=True):
            found = [self._alterable(*each) for each in offsets]
            wanted, names = dict[TopicPartitionId, int](), dict[bytes, str]()
            for partition, (topic_partition, offset) in zip(found, offsets, strict=True):
                if not isinstance(partition, RequestError):
                    wanted[partition] = offset
                    names[partition[0]] = topic_partition.topic
            with trio.CancelScope(shield=True):
                failed = await self._begin_again(group, states, wanted, names)
        return [each if isinstance(each, RequestError) else failed.get(each) for each in found]

    def _alterable(self, topic_partition: TopicPartition, offset: int) -> TopicPartitionId | RequestError:
        topic = self._groups.topics.find(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < topic.partitions:
            return UnknownTopicOrPartitionError(f"{topic_partition} does not exist")
        if offset < UNINITIALIZED_OFFSET:
            return InvalidRequestError(f"{topic_partition}: cannot start reading at offset {offset}")
        return topic.topic_id, topic_partition.partition

    async def _begin_again(
        self, group: str, states: ShareStates, wanted: Mapping[TopicPartitionId, int], names: Mapping[bytes, str]
    ) -> dict[TopicPartitionId, RequestError]:
        """Begin states at these offsets. Returns those that have failed. Raises NON_EMPTY_GROUP."""
        plan = self._groups.plan_states(group, frozenset(wanted), names, self._wall_ms())
        await self._carry_out(plan)
        failed: dict[TopicPartitionId, RequestError] = {}
        for partition, offset in wanted.items():
            try:
                await states.initialize(group, *partition, offset, plan.group.epoch)
            except RequestError as exc:
                failed[partition] = exc.as_answer()
        if done := frozenset(wanted.keys() - failed.keys()):
            await self._carry_out(self._groups.states_done(group, done, self._wall_ms()))
        return failed

    async def delete_offsets(self, group: str, topics: Sequence[str]) -> list[RequestError | None]:
        """Forget the start offsets of topics in a group without members. Returns one answer for each, in order. Raises
        RequestError for all of them: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Cancelled: it is done all the same."""
        self._check_serving(group)
        answers: list[RequestError | None] = []
        async with self._changing(group, may_be_new=False):
            states, ids = self._groups.known(group).states, set()
            for name in topics:
                topic = self._groups.topics.find(name)
                has_state = topic is not None and bool(states.of_topic(topic.topic_id))
                answers.append(None if has_state else _nothing_to_delete(name, is_there=topic is not None))
                if topic is not None and has_state:
                    ids.add(topic.topic_id)
            await self._forget_states(group, frozenset(ids))
        return answers

    async def _forget_states(self, group: str, topic_ids: frozenset[bytes]) -> None:
        """Delete the states of topics. Raises NON_EMPTY_GROUP, also without topics."""
        with trio.CancelScope(shield=True):
            await self._carry_out(self._groups.plan_deletion(group, topic_ids, self._wall_ms()))
            await self._delete_states(group, self._groups.known(group).states.deleting)

    # ---- groups ----------------------------------------------------------------------------------------------------------

    def __contains__(self, group: object) -> bool:
        """Return whether the name is a share group's, or about to be."""
        return group in self._groups or group in self._claims

    async def remove(self, group: str) -> None:
        """Take a group without members out, with its share states. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Cancelled: it
        is done all the same."""
        self._check_serving(group)
        async with self._changing(group, may_be_new=False):
            with trio.CancelScope(shield=True):
                await self._forget_states(group, frozenset(self._groups.known(group).states.names))
                await self._store(self._groups.plan_removal(group), lambda: self._groups.forget(group))

    def partitions(self, group: str) -> Partitions:
        """Return the partitions that a group has a share state of, or is about to have; none for a group of another kind."""
        found = self._groups.find(group)
        return NO_PARTITIONS if found is None else found.states.known


def _nothing_to_delete(topic: str, *, is_there: bool) -> RequestError:
    if is_there:
        return UnknownTopicOrPartitionError("There is no offset information to delete.")
    return UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
