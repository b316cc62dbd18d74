"""A consumer group as its records describe it, and the draft of its next state (KIP-848; Kafka: ConsumerGroup). Members of both
protocols may be in it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator import consumer_group_records as records
from ....protocol.coordinator.classic_group_records import CONSUMER_PROTOCOL_TYPE
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.patterns import compiled_pattern
from ....protocol.types import TopicPartition
from ..assigned.group import AssignedGroup, GroupDraft, RecordTypes, stale
from ..assigned.values import FIRST_EPOCH, NO_PARTITIONS, Partitions, TopicImage, TopicPartitionId, metadata_hash
from ..classic.values import Protocols
from ..values import CommittingMember
from .assignors import ASSIGNORS, UNIFORM, Subscriber
from .member import CONSUMER_TYPE, ConsumerMember

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False, kw_only=True)
class ConsumerGroup(AssignedGroup[ConsumerMember, Partitions]):
    """See the module. Owner: the `ConsumerGroups` that has it, or the draft that follows it."""

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

    # ---- members that use the classic protocol ---------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether all members that use the classic protocol support one of these protocols."""
        classic = [member.classic for member in self.members.values() if member.classic is not None]
        supported = Counter(name for each in classic for name in {name for name, _ in each.protocols})
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(supported[name] == len(classic) for name, _ in protocols)

    def has_only_classic(self, without: Iterable[str] = ()) -> bool:
        """Return whether members are left that all use the classic protocol, once some have gone."""
        left = self.members.keys() - set(without)
        return bool(left) and all(self.members[member_id].is_classic for member_id in left)

    def must_rejoin(self, member: ConsumerMember) -> bool:
        """Return whether a member that uses the classic protocol has to join again: for a new epoch, to confirm that it gave up
        partitions, or because all partitions that it waits for are free."""
        if member.epoch < self.epoch or member.has_to_revoke:
            return True
        if member.is_reconciled_to(self.assignment_epoch):
            return False
        awaited = self.targets.get(member.member_id, NO_PARTITIONS) - member.assigned
        return all(partition not in self.owners for partition in awaited)

    # ---- offsets ---------------------------------------------------------------------------------------------------------

    def check_commit(
        self, who: CommittingMember, partitions: Iterable[TopicPartition], topics: TopicImage, *, is_transactional: bool
    ) -> None:
        with self._in_words_of(who.member_id) as is_classic:
            who = attrs.evolve(who, version=None) if is_classic else who
            super().check_commit(who, partitions, topics, is_transactional=is_transactional)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        with self._in_words_of(member_id):
            super().check_fetch(member_id, member_epoch)

    @contextmanager
    def _in_words_of(self, member_id: str | None) -> Iterator[bool]:
        """Yield whether a member uses the classic protocol. Its stale epoch is an illegal generation."""
        member = self.members.get(member_id or "")
        is_classic = member is not None and member.is_classic
        try:
            yield is_classic
        except RequestError as exc:
            if not is_classic or exc.code is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            raise RequestError(exc.message, ErrorCode.ILLEGAL_GENERATION) from exc

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

    def fence(self, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
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


def follow_subscription(draft: ConsumerDraft, known: ConsumerMember, member: ConsumerMember) -> None:
    """Begin another epoch when what there is to assign, or to whom, has changed."""
    regex_changed = (known.topic_regex or "") != (member.topic_regex or "")
    is_new = draft.base.epoch <= FIRST_EPOCH and not draft.base.members
    changed = is_new or known.topic_names != member.topic_names or regex_changed
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


def reconcile(draft: ConsumerDraft, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
    """Put the member a step closer to its target. `owned`: what it states that it has."""
    group = draft.group
    reconciled = member.reconciled(
        group.targets.get(member.member_id, NO_PARTITIONS),
        group.assignment_epoch,
        owned,
        lambda partition: group.owners.get(partition, member.member_id) != member.member_id,
    )
    if reconciled != member:
        draft.put_current(reconciled)
    return reconciled
