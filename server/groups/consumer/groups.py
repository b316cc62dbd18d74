"""All consumer groups; a group as its records describe it, and the draft of its next state (KIP-848; Kafka: ConsumerGroup,
GroupMetadataManager's half for it).

Not built: members that speak the classic protocol in a group of this kind (Kafka's online migration). A group changes its kind
when it is empty.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator import consumer_group_records as records
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.patterns import compiled_pattern
from ....protocol.types import TopicPartition
from ..assigned.group import AssignedGroup, GroupDraft, RecordTypes, stale
from ..assigned.groups import AssignedGroups, Plan
from ..assigned.values import (
    FIRST_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    HeartbeatAnswer,
    Partitions,
    TopicImage,
    TopicPartitionId,
    metadata_hash,
)
from ..values import CommittingMember
from .assignors import ASSIGNORS, UNIFORM, Subscriber
from .member import CONSUMER_TYPE, ConsumerHeartbeat, ConsumerMember, check_heartbeat

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False, kw_only=True)
class ConsumerGroup(AssignedGroup[ConsumerMember, Partitions]):
    """See the module. Owner: the `ConsumerGroups` that has it, or the draft that is to follow it."""

    KIND: ClassVar[str] = CONSUMER_TYPE
    TYPES: ClassVar[RecordTypes] = RecordTypes(
        records.ConsumerGroupMetadataKey,
        records.ConsumerGroupMetadataValue,
        records.ConsumerGroupMemberMetadataKey,
        records.ConsumerGroupTargetAssignmentMetadataKey,
        records.ConsumerGroupTargetAssignmentMetadataValue,
        records.ConsumerGroupTargetAssignmentMemberKey,
        records.ConsumerGroupTargetAssignmentMemberValue,
        records.ConsumerGroupCurrentMemberAssignmentKey,
    )
    MEMBER: ClassVar[type[ConsumerMember]] = ConsumerMember
    UNASSIGNED: ClassVar[Partitions] = NO_PARTITIONS

    regexes: dict[str, records.ConsumerGroupRegularExpressionValue] = attrs.field(factory=dict)
    """What each regular expression of a member matched."""
    has_partition_metadata: bool = False
    """The log has a record of it that Kafka wrote before 4.1."""
    static_members: dict[str, str] = attrs.field(factory=dict)
    """Member ids by instance id."""
    owners: dict[TopicPartitionId, str] = attrs.field(factory=dict)
    """The member that has a partition, or has not given it up yet."""

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put_other(self, key: Any, value: Any | None) -> None:
        if isinstance(key, records.ConsumerGroupPartitionMetadataKey):
            self.has_partition_metadata = value is not None
        elif value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = value

    def follow(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None:
            if before.instance_id is not None and self.static_members.get(before.instance_id) == before.member_id:
                del self.static_members[before.instance_id]
            for partition in before.held:
                if self.owners.get(partition) == before.member_id:
                    del self.owners[partition]
        if after is not None:
            if after.instance_id is not None:
                self.static_members[after.instance_id] = after.member_id
            self.owners.update(dict.fromkeys(after.held, after.member_id))

    def own_keys(self) -> list[Any]:
        keys: list[Any] = [
            records.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
            for regex in self.regexes
        ]
        if self.has_partition_metadata:
            keys.append(records.ConsumerGroupPartitionMetadataKey(group_id=self.group_id))
        return keys + super().own_keys()

    # ---- subscriptions ---------------------------------------------------------------------------------------------------

    def names_of(self, member: ConsumerMember) -> set[str]:
        """Topics that a member is subscribed to, by name or because its regular expression matches them."""
        matched = self.regexes.get(member.topic_regex or "")
        return {*member.topic_names, *(matched.topics if matched is not None else ())}

    def subscribed_names(self) -> set[str]:
        named = {name for member in self.members.values() for name in member.topic_names}
        return named.union(*(self.regexes[regex].topics for regex in self.used_regexes() if regex in self.regexes))

    def used_regexes(self) -> set[str]:
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_names()

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer."""
        preferred = (member.server_assignor for member in self.members.values())
        wishes = Counter(name for name in preferred if name is not None and name in ASSIGNORS)
        return min(wishes, key=lambda name: (-wishes[name], name), default=UNIFORM)

    # ---- offsets ---------------------------------------------------------------------------------------------------------

    def check_since(self, member: ConsumerMember, epoch: int, topic_partition: TopicPartition, topics: TopicImage) -> None:
        topic = topics.find(topic_partition.topic)
        since = None if topic is None else member.since.get((topic.topic_id, topic_partition.partition))
        if since is None or epoch < since:
            has = "does not have" if since is None else f"has had since epoch {since}"
            raise stale(
                f"member {member.member_id!r} commits with epoch {epoch}, its epoch is {member.epoch}, and it {has} "
                f"{topic_partition}"
            )

    def is_anonymous(self, who: CommittingMember) -> bool:
        return super().is_anonymous(who) and who.group_instance_id is None


@attrs.define(eq=False, repr=False)
class ConsumerDraft(GroupDraft[ConsumerGroup]):
    """See `GroupDraft`."""

    STAMPS_TARGETS: ClassVar[bool] = False

    # ---- members ---------------------------------------------------------------------------------------------------------

    def replace_static(self, gone: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give what a static member has to the one that has come back in its place."""
        target = self.group.targets.get(gone.member_id, NO_PARTITIONS)
        self.remove_member(gone.member_id)
        member = gone.back_as(member_id)
        self.put_member(member)
        self.put_target(member_id, target)
        self.put_current(member)
        return member

    def fence(self, member_id: str) -> None:
        self.remove_member(member_id)
        self.drop_unused_regexes()
        self.bump_epoch()

    # ---- subscriptions ---------------------------------------------------------------------------------------------------

    def drop_unused_regexes(self) -> None:
        for regex in sorted(self.group.regexes.keys() - self.group.used_regexes()):
            self._put_regex(regex, None)

    def resolve_new_regex(self, regex: str) -> None:
        """Find the topics of an expression that no member has brought before. Raises INVALID_REGULAR_EXPRESSION."""
        if regex not in self.group.regexes:
            self._put_regex(regex, self._matching(regex))

    def refresh_regexes(self) -> bool:
        """Match all of them against the present topics. Return whether one matches others than before."""
        changed = False
        for regex, known in list(self.group.regexes.items()):
            try:
                matching = self._matching(regex)
            except RequestError as exc:
                LOGGER.warning("group %s: %s. Keeping its topics for %r", self.base.group_id, exc, regex)
                continue
            if matching != known.topics:
                self._put_regex(regex, matching)
                changed = True
        return changed

    def _matching(self, regex: str) -> list[str]:
        matches = compiled_pattern(regex)
        return sorted(name for name in self.topics.names() if matches(name))

    def _put_regex(self, regex: str, names: list[str] | None) -> None:
        value = None
        if names is not None:
            version, now_ms = self.topics.version, self.wall_ms
            value = records.ConsumerGroupRegularExpressionValue(topics=names, version=version, timestamp=now_ms)
        self.put_own(records.ConsumerGroupRegularExpressionKey, value, regular_expression=regex)

    # ---- targets ---------------------------------------------------------------------------------------------------------

    def metadata_hash(self) -> int:
        return metadata_hash(self.group.subscribed_names(), self.topics)

    def assign(self) -> None:
        """Make the targets of this epoch."""
        group = self.group
        found = {name: self.topics.find(name) for name in group.subscribed_names()}
        topics = {name: topic for name, topic in found.items() if topic is not None}
        subscribers = {
            member_id: Subscriber(
                topics=frozenset(topics[name].topic_id for name in group.names_of(member) if name in topics),
                instance_id=member.instance_id,
                owned=group.targets.get(member_id, NO_PARTITIONS),
            )
            for member_id, member in group.members.items()
        }
        counts = {each.topic_id: each.partitions for each in topics.values()}
        self.put_targets(ASSIGNORS[group.assignor](subscribers, counts))


@attrs.define(eq=False, repr=False)
class ConsumerGroups(AssignedGroups[ConsumerGroup]):
    """See the module and `AssignedGroups`."""

    GROUP: ClassVar[type[Any]] = ConsumerGroup
    DRAFT: ClassVar[type[Any]] = ConsumerDraft

    _new_member_id: Callable[[], str] = lambda: str(uuid.uuid4())

    check = staticmethod(check_heartbeat)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def speaker(self, draft: ConsumerDraft, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member is known, new, or a static one in another's place."""
        group, instance_id = draft.base, request.instance_id
        if instance_id is None or (request.is_joining and instance_id not in group.static_members):
            if request.is_joining and request.member_id not in group.members:
                return ConsumerMember(member_id=request.member_id or self._new_member_id())
            member = group.member(request.member_id)
            if instance_id is None:
                member.check_epoch(request)
            return member
        if not request.is_joining:
            member = _static_member(group, request)
            member.check_epoch(request)
            return member
        before = group.members[group.static_members[instance_id]]
        if before.epoch != LEAVE_STATIC_EPOCH:
            raise RequestError(
                f"static member {request.member_id!r} with instance id {instance_id!r} cannot join group {group.group_id!r}: "
                f"member {before.member_id!r} has that instance id and has not left",
                ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        return draft.replace_static(before, request.member_id or self._new_member_id())

    def leave(self, request: ConsumerHeartbeat, wall_ms: int) -> Plan[ConsumerGroup]:
        group = self.known(request.group_id)
        static = request.instance_id is not None
        member = _static_member(group, request) if static else group.member(request.member_id)
        draft = ConsumerDraft(group, self.topics, wall_ms)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            draft.put_current(member.away())
        else:
            draft.fence(member.member_id)
        return self.plan(draft, self.farewell(request))

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def advance(
        self, draft: ConsumerDraft, request: ConsumerHeartbeat, known: ConsumerMember, member: ConsumerMember
    ) -> Plan[ConsumerGroup]:
        _follow_subscription(draft, known, member)
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        member = _reconcile(draft, member, request)
        # What the client knows is what it was told before this heartbeat, whoever it was then.
        is_news = request.is_joining or request.is_full or member.assigned != known.assigned
        answer = HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.times_of(request.group_id).heartbeat_interval_ms,
            assignment=member.assigned if is_news else None,
        )
        return self.plan(draft, answer, alive=member.member_id, seen_version=self.topics.version)


def _static_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    instance_id = request.instance_id or ""
    if instance_id not in group.static_members:
        raise RequestError(
            f"instance id {instance_id!r} is not a member of group {group.group_id!r}", ErrorCode.UNKNOWN_MEMBER_ID
        )
    member = group.members[group.static_members[instance_id]]
    if member.member_id != request.member_id:
        raise RequestError(
            f"static member {request.member_id!r} with instance id {instance_id!r} was fenced by "
            f"{member.member_id!r}, which took its place in group {group.group_id!r}",
            ErrorCode.FENCED_INSTANCE_ID,
        )
    return member


def _follow_subscription(draft: ConsumerDraft, known: ConsumerMember, member: ConsumerMember) -> None:
    """Begin another epoch when what there is to assign, or to whom, has changed."""
    regex_changed = (known.topic_regex or "") != (member.topic_regex or "")
    changed = draft.base.epoch <= FIRST_EPOCH or known.topic_names != member.topic_names or regex_changed
    if member.topic_regex:
        changed |= member.topic_regex not in draft.group.regexes
        draft.resolve_new_regex(member.topic_regex)
    if regex_changed:
        draft.drop_unused_regexes()
    if draft.topics.version != draft.base.seen_version:
        changed |= draft.refresh_regexes()
        changed |= draft.metadata_hash() != draft.group.metadata_hash
    if changed:
        draft.bump_epoch()


def _reconcile(draft: ConsumerDraft, member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    group = draft.group
    reconciled = member.reconciled(
        group.targets.get(member.member_id, NO_PARTITIONS),
        group.assignment_epoch,
        request.owned,
        lambda partition: group.owners.get(partition, member.member_id) != member.member_id,
    )
    if reconciled != member:
        draft.put_current(reconciled)
    return reconciled
