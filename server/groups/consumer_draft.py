"""What a consumer group is to be next, step by step (see `managed.drafting`)."""

from __future__ import annotations

import logging
from typing import Final

import attrs

from ...protocol.coordinator import consumer_group_records as records
from ...protocol.coordinator.consumer_group_records import ConsumerGroupKey, ConsumerGroupValue
from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import INT32_MAX
from ...protocol.patterns import compiled_pattern
from .consumer_assignors import ASSIGNORS, NO_PARTITIONS, Subscriber
from .consumer_group import ConsumerGroup, member_keys
from .consumer_member import ConsumerMember
from .managed.assigned_partitions import recorded
from .managed.drafting import GroupDraft
from .managed.metadata_hash import metadata_hash

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class Draft(GroupDraft[ConsumerGroup, ConsumerGroupKey, ConsumerGroupValue]):
    """See the module. Made for one command."""

    touched: set[str] = attrs.field(factory=set)
    """Members that have another assignment, or are gone."""

    # ---- members ---------------------------------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        key = records.ConsumerGroupMemberMetadataKey(group_id=self.base.group_id, member_id=member.member_id)
        self.put(key, member.metadata_value())

    def put_current(self, member: ConsumerMember) -> None:
        key = records.ConsumerGroupCurrentMemberAssignmentKey(group_id=self.base.group_id, member_id=member.member_id)
        self.put(key, member.current_value())
        self.touched.add(member.member_id)

    def remove_member(self, member_id: str) -> None:
        for key in member_keys(self.base.group_id, member_id):
            self.put(key, None)
        self.touched.add(member_id)

    def replace_static(self, gone: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give what a static member has to the one that has come back in its place."""
        target = self.group.targets.get(gone.member_id, NO_PARTITIONS)
        self.remove_member(gone.member_id)
        member = gone.back_as(member_id)
        self.put_member(member)
        self._put_target(member_id, target)
        self.put_current(member)
        return member

    def fence(self, member_id: str) -> None:
        """Take a member out. The others get what it had when they ask next."""
        self.remove_member(member_id)
        self.drop_unused_regexes()
        self.bump_epoch()

    # ---- subscriptions ---------------------------------------------------------------------------------------------------

    def drop_unused_regexes(self) -> None:
        for regex in sorted(self.group.regexes.keys() - self.group.used_regexes()):
            key = records.ConsumerGroupRegularExpressionKey(group_id=self.base.group_id, regular_expression=regex)
            self.put(key, None)

    def resolve_new_regex(self, regex: str) -> None:
        """Find the topics of an expression that no member has brought before. Raises INVALID_REGULAR_EXPRESSION."""
        if regex not in self.group.regexes:
            self._put_regex(regex, self._matching(regex))

    def refresh_regexes(self) -> bool:
        """Match all of them against the topics that there are now. Whether one matches others than before."""
        changed = False
        for regex, known in list(self.group.regexes.items()):
            try:
                matching = self._matching(regex)
            except RequestError as exc:
                LOGGER.warning("group %s: %s; the topics of %r stay as they are", self.base.group_id, exc, regex)
                continue
            if matching != known.topics:
                self._put_regex(regex, matching)
                changed = True
        return changed

    def _matching(self, regex: str) -> list[str]:
        matches = compiled_pattern(regex)
        return sorted(name for name in self.topics.names() if matches(name))

    def _put_regex(self, regex: str, names: list[str]) -> None:
        key = records.ConsumerGroupRegularExpressionKey(group_id=self.base.group_id, regular_expression=regex)
        value = records.ConsumerGroupRegularExpressionValue(topics=names, version=self.topics.version, timestamp=self.wall_ms)
        self.put(key, value)

    # ---- epochs and targets ----------------------------------------------------------------------------------------------

    def metadata_hash(self) -> int:
        return metadata_hash(self.group.subscribed_names(), self.topics)

    def bump_epoch(self) -> None:
        """Something has changed that the targets depend on. Raises RequestError when there is no epoch left."""
        if self.group.epoch >= INT32_MAX:
            raise RequestError(
                f"group {self.base.group_id!r} is at its last epoch {INT32_MAX}; delete it", ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        key = records.ConsumerGroupMetadataKey(group_id=self.base.group_id)
        self.put(key, records.ConsumerGroupMetadataValue(epoch=self.group.epoch + 1, metadata_hash=self.metadata_hash()))

    def assign(self) -> None:
        """Make the targets of this epoch; those that are as they were are not written again."""
        group = self.group
        found = {name: self.topics.find(name) for name in group.subscribed_names()}
        there = {name: topic for name, topic in found.items() if topic is not None}
        subscribers = {
            member_id: Subscriber(
                topics=frozenset(there[name].topic_id for name in group.names_of(member) if name in there),
                instance_id=member.instance_id,
                owned=group.targets.get(member_id, NO_PARTITIONS),
            )
            for member_id, member in group.members.items()
        }
        targets = ASSIGNORS[group.preferred_assignor](subscribers, {each.topic_id: each.partitions for each in there.values()})
        before = dict(group.targets)
        for member_id in sorted(targets):
            if targets[member_id] != before.get(member_id):
                self._put_target(member_id, targets[member_id])
        key = records.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)
        self.put(key, records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.epoch))

    def _put_target(self, member_id: str, target: frozenset[tuple[bytes, int]]) -> None:
        key = records.ConsumerGroupTargetAssignmentMemberKey(group_id=self.base.group_id, member_id=member_id)
        self.put(key, records.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=recorded(target)))
