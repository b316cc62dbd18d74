"""A group whose assignments the server computes, as its records describe it, its members, and the draft of its next state.

`AssignedGroup.put` is the only way in which a group changes, with new records and with records read from the log. A command
drafts records on a copy. The group itself does not change until they are in the log, so a failed write needs no undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import attrs

from ....protocol.coordinator.consumer_group_records import ConsumerGroupTopicPartitions
from ....protocol.errors import ErrorCode, RequestError, UnsupportedVersionError
from ....protocol.limits import INT32_MAX
from ....protocol.types import TopicPartition
from ..values import FIRST_COMMIT_WITH_EPOCHS, CommittingMember, GroupState
from .values import (
    FIRST_EPOCH,
    JOIN_EPOCH,
    NO_TIMEOUT,
    NOT_SEEN,
    AssignedGroupDescription,
    AssignedMemberDescription,
    MemberHeartbeat,
    Partitions,
    TopicImage,
    by_first,
)

NO_EPOCH = -1
"""Epoch of a request that does not come from a member."""

M = TypeVar("M", bound=Any)
A = TypeVar("A")


class RecordTypes(NamedTuple):
    """The records that a group of every kind has: classes of their keys and of some values."""

    metadata: type[Any]
    metadata_value: type[Any]
    member: type[Any]
    targets: type[Any]
    targets_value: type[Any]
    target: type[Any]
    target_value: type[Any]
    current: type[Any]


@attrs.define(eq=False, repr=False, kw_only=True)
class AssignedGroup(Generic[M, A]):
    """See the module; `A` is what a member is assigned. Owner: the `AssignedGroups` that has it, or the draft that follows
    it."""

    KIND: ClassVar[str]
    """As ListGroups and error messages call it."""
    TYPES: ClassVar[RecordTypes]
    MEMBER: ClassVar[type[Any]]
    UNASSIGNED: ClassVar[Any]
    """The assignment of a member that has none."""

    group_id: str
    epoch: int = FIRST_EPOCH
    """Changes with the members and with what there is to assign."""
    metadata_hash: int = 0
    """Of the subscribed topics as they were at this epoch."""
    assignment_epoch: int = FIRST_EPOCH
    """The epoch for which the targets were made."""
    members: dict[str, M] = attrs.field(factory=dict)
    targets: dict[str, A] = attrs.field(factory=dict)
    seen_version: int = NOT_SEEN
    """Of the topics, when the group was last compared with them. In memory only."""

    def copy(self) -> Self:
        """Return a group that can change without this one."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        copies: dict[str, Any] = {name: value.copy() for name, value in values.items() if isinstance(value, dict)}
        return attrs.evolve(self, **copies)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put(self, key: Any, value: Any | None) -> None:
        """Apply a record; a value of None takes away. Records of one member may come in any order: compaction keeps the newest
        of each kind where it is."""
        types, kind = self.TYPES, type(key)
        if kind is types.member:
            self._put_member(key.member_id, value)
        elif kind is types.current:
            self._put_current(key.member_id, value)
        elif kind is types.target:
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                self.targets[key.member_id] = self.target_of(value)
        elif kind is types.metadata:
            self.put_metadata(value)
        elif kind is types.targets:
            self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        else:
            self.put_other(key, value)

    def put_metadata(self, value: Any) -> None:
        """Apply the group's own record. Its removal never comes here: then there is no group."""
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def put_other(self, key: Any, value: Any | None) -> None:
        """Apply a record that only this kind of group has."""
        raise NotImplementedError

    def follow(self, before: M | None, after: M | None) -> None:
        """Update what is derived from all members: one has changed, come or gone."""

    def target_of(self, value: Any) -> Any:
        """Return the assignment in a record."""
        return from_record(value.topic_partitions)

    def target_value(self, target: Any) -> Any:
        """Return the record of an assignment."""
        return self.TYPES.target_value(topic_partitions=recorded(target))

    def _put_member(self, member_id: str, value: Any | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._set_member(known, (known or self.MEMBER(member_id=member_id)).with_metadata(value))
        elif known is not None:
            del self.members[member_id]
            self.follow(known, None)

    def _put_current(self, member_id: str, value: Any | None) -> None:
        known = self.members.get(member_id)
        if known is not None or value is not None:
            self._set_member(known, (known or self.MEMBER(member_id=member_id)).with_current(value))

    def _set_member(self, known: M | None, member: M) -> None:
        self.members[member.member_id] = member
        self.follow(known, member)

    def member_keys(self, member_id: str) -> list[Any]:
        """Return the keys of a member's records, in the order in which Kafka takes them out."""
        types = self.TYPES
        return [key(group_id=self.group_id, member_id=member_id) for key in (types.current, types.target, types.member)]

    def own_keys(self) -> list[Any]:
        """Return the keys of a group without members, in the order in which they are taken out."""
        return [key(group_id=self.group_id) for key in (self.TYPES.targets, self.TYPES.metadata)]

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def assignor(self) -> str:
        raise NotImplementedError

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read a topic, by name."""
        raise NotImplementedError

    def describe(self) -> Any:
        return AssignedGroupDescription(
            group_id=self.group_id,
            state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.assignor,
            members=self.described_members(),
        )

    def described_members(self) -> tuple[Any, ...]:
        return tuple(
            self.members[member_id].described(self.targets.get(member_id, self.UNASSIGNED))
            for member_id in sorted(self.members)
        )

    # ---- offsets ---------------------------------------------------------------------------------------------------------

    def member(self, member_id: str | None) -> M:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id or "")
        if member is None:
            raise RequestError(f"Member {member_id} is not a member of group {self.group_id}.", ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_since(self, member: M, epoch: int, topic_partition: TopicPartition, topics: TopicImage) -> None:
        """Raises STALE_MEMBER_EPOCH unless the member has had the partition since an epoch."""
        raise NotImplementedError

    def is_anonymous(self, who: CommittingMember) -> bool:
        """Return whether a transaction commits without naming a member."""
        return who.generation == NO_EPOCH and not who.member_id

    def check_commit(
        self, who: CommittingMember, partitions: Iterable[TopicPartition], topics: TopicImage, *, is_transactional: bool
    ) -> None:
        """Check that offsets may be committed: by a member at its epoch, by one at an epoch since which it has had the
        partitions (KIP-1251), by anybody while there are no members, and anonymously in a transaction. Raises
        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION."""
        epoch, version = who.generation, who.version
        if (epoch < 0 and not self.members) or (is_transactional and self.is_anonymous(who)):
            return
        member = self.member(who.member_id)
        if not is_transactional and version is not None and version < FIRST_COMMIT_WITH_EPOCHS:
            raise UnsupportedVersionError(
                f"OffsetCommit version {FIRST_COMMIT_WITH_EPOCHS} or above must be used by members using the {self.KIND} group "
                "protocol"
            )
        if epoch > member.epoch:
            raise stale(f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
        if epoch < member.epoch:
            for topic_partition in partitions:
                self.check_since(member, epoch, topic_partition, topics)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that committed offsets may be read: by a member at its epoch, or by a client that names no member. Raises
        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id)
        if member_epoch != member.epoch:
            raise stale(f"The received member epoch {member_epoch} does not match the expected member epoch {member.epoch}.")


def stale(message: str) -> RequestError:
    return RequestError(message, ErrorCode.STALE_MEMBER_EPOCH)


G = TypeVar("G", bound=AssignedGroup[Any, Any])


@attrs.define(eq=False, repr=False)
class GroupDraft(Generic[G]):
    """See the module. Lives as long as one command."""

    STAMPS_TARGETS: ClassVar[bool] = True
    """Whether records say when targets were made."""

    base: G
    topics: TopicImage
    wall_ms: int
    """By the wall clock, for records that have a time in them."""
    records: list[tuple[Any, Any]] = attrs.field(factory=list)
    touched: set[str] = attrs.field(factory=set)
    """Members that have another assignment, or are gone."""
    _next: G | None = None

    @property
    def group(self) -> G:
        """The group with the records so far. Only `put` changes it."""
        return self.base if self._next is None else self._next

    def put(self, key: Any, value: Any | None) -> None:
        if self._next is None:
            self._next = self.base.copy()
        self._next.put(key, value)
        self.records.append((key, value))

    def put_own(self, key: type[Any], value: Any | None, **more: Any) -> None:
        """Put a record of the group; `more`: of its key, beside the group id."""
        self.put(key(group_id=self.base.group_id, **more), value)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def put_member(self, member: Any) -> None:
        self.put_own(self.base.TYPES.member, member.metadata_value(), member_id=member.member_id)

    def put_current(self, member: Any) -> None:
        self.put_own(self.base.TYPES.current, member.current_value(), member_id=member.member_id)
        self.touched.add(member.member_id)

    def put_target(self, member_id: str, target: Any) -> None:
        self.put_own(self.base.TYPES.target, self.base.target_value(target), member_id=member_id)

    def remove_member(self, member_id: str) -> None:
        for key in self.base.member_keys(member_id):
            self.put(key, None)
        self.touched.add(member_id)

    def fence(self, member_ids: Iterable[str]) -> None:
        """Take members out. The others get their assignments with their next heartbeats."""
        for member_id in member_ids:
            self.remove_member(member_id)
        self.bump_epoch()

    # ---- epochs and targets ----------------------------------------------------------------------------------------------

    def metadata_hash(self) -> int:
        """Return the hash of the subscribed topics as they are now."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """Return what the metadata record says beside the epoch."""
        return {"metadata_hash": self.metadata_hash()}

    def bump_epoch(self, **facts: Any) -> None:
        """Begin another epoch: the targets depend on something that has changed. Raises RequestError after the last one."""
        if self.group.epoch >= INT32_MAX:
            raise RequestError(
                f"group {self.base.group_id!r} has reached its last epoch {INT32_MAX}. Delete it",
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
        types = self.base.TYPES
        self.put_own(types.metadata, types.metadata_value(epoch=self.group.epoch + 1, **(facts or self.facts())))

    def put_targets(self, targets: Mapping[str, Any]) -> None:
        """Store the targets of this epoch; unchanged ones are not written again."""
        for member_id in sorted(targets):
            if targets[member_id] != self.group.targets.get(member_id):
                self.put_target(member_id, targets[member_id])
        types, stamp = self.base.TYPES, {"assignment_timestamp": self.wall_ms} if self.STAMPS_TARGETS else {}
        self.put_own(types.targets, types.targets_value(assignment_epoch=self.group.epoch, **stamp))


@attrs.frozen(kw_only=True)
class AssignedMember:
    """A value: `evolve` makes the next one. A kind adds its subscription, its assignment and how both are recorded."""

    KIND: ClassVar[str]
    UNASSIGNED: ClassVar[Mapping[str, Any]]
    """Fields of a member that has no assignment and no epoch."""
    PLAIN: ClassVar[tuple[str, ...]] = ("instance_id", "rack_id", "client_id", "client_host", "rebalance_timeout_ms")
    """Fields that heartbeats and the record of a member have under the same names."""
    METADATA: ClassVar[type[Any]]
    """The record of what the member says."""
    DESCRIPTION: ClassVar[type[Any]] = AssignedMemberDescription

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The answer with the present one may have been lost."""

    @property
    def is_revoking(self) -> bool:
        """Return whether the member has to give something up, and has a rebalance timeout to do so."""
        return False

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member has its whole assignment of an epoch."""
        return self.epoch == assignment_epoch

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def news(self, request: Any) -> dict[str, Any]:
        """Return the fields that a heartbeat states; None for those that it leaves as they are."""
        news = {name: getattr(request, name) for name in self.PLAIN}
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            news["rebalance_timeout_ms"] = None
        return news

    def updated(self, request: MemberHeartbeat) -> Self:
        """Return the member with the news of a heartbeat; the same object when it has none."""
        news = self.news(request)
        changes = {name: value for name, value in news.items() if value is not None and value != getattr(self, name)}
        return attrs.evolve(self, **changes) if changes else self

    def has_all_of(self, request: Any) -> bool:
        """Return whether a heartbeat states the member's owned partitions or tasks, and all of them are in its assignment."""
        raise NotImplementedError

    def check_epoch(self, request: MemberHeartbeat) -> None:
        """Raises FENCED_MEMBER_EPOCH. The previous epoch is valid as long as the member owns nothing but its assignment: the
        answer with the present one was lost. A member that joins again under its id has given everything up, and gets it
        back."""
        epoch = request.member_epoch
        if epoch in (JOIN_EPOCH, self.epoch) or (epoch == self.previous_epoch < self.epoch and self.has_all_of(request)):
            return
        raise self.fenced(epoch)

    def fenced(self, epoch: int, why: str = "") -> RequestError:
        differs = "greater" if epoch > self.epoch else "smaller"
        return RequestError(
            f"The {self.KIND} group member has a {differs} member epoch ({epoch}) than the one known by the group coordinator "
            f"({self.epoch}){why}. The member must abandon all its partitions and rejoin.",
            ErrorCode.FENCED_MEMBER_EPOCH,
        )

    # ---- records ---------------------------------------------------------------------------------------------------------

    def subscription(self) -> Mapping[str, Any]:
        """Return the fields of the metadata record beside those of `PLAIN`."""
        raise NotImplementedError

    def subscription_of(self, value: Any) -> Mapping[str, Any]:
        """Return the fields that a metadata record states, beside those of `PLAIN`."""
        raise NotImplementedError

    def metadata_value(self) -> Any:
        return self.METADATA(**{name: getattr(self, name) for name in self.PLAIN}, **self.subscription())

    def with_metadata(self, value: Any) -> Self:
        plain = {name: getattr(value, name) for name in self.PLAIN}
        return attrs.evolve(self, **plain, **self.subscription_of(value))

    def assignment_of(self, value: Any) -> Mapping[str, Any]:
        """Return the fields that a current assignment record states, beside the epochs."""
        raise NotImplementedError

    def with_current(self, value: Any | None) -> Self:
        """None: it has no assignment and no epoch."""
        if value is None:
            return attrs.evolve(self, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, **self.UNASSIGNED)
        return attrs.evolve(
            self, epoch=value.member_epoch, previous_epoch=value.previous_member_epoch, **self.assignment_of(value)
        )

    def described(self, target: Any, **more: Any) -> Any:
        """Return the description. Fields are the member's of the same name, or `more`."""
        more |= {"member_epoch": self.epoch, "target_assignment": target}
        names = [field.name for field in attrs.fields(self.DESCRIPTION) if field.name not in more]
        return self.DESCRIPTION(**{name: getattr(self, name) for name in names if hasattr(self, name)}, **more)


# ---- partitions in records ---------------------------------------------------------------------------------------------------


def recorded(partitions: Partitions) -> list[ConsumerGroupTopicPartitions]:
    return [ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_first(partitions).items()]


def from_record(topics: Iterable[ConsumerGroupTopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)
