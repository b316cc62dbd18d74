"""Conversion of groups with members from the classic protocol to the consumer protocol and back (KIP-848; Kafka:
GroupMetadataManager.convertToConsumerGroup and convertToClassicGroup, ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup).

| classic group | consumer group |
|---|---|
| generation | group epoch, epoch of every member |
| protocols of a member, its session timeout | classic part of the member's record |
| topics and rack in its subscription | subscription |
| assignment that the leader made | target, and partitions of the member |

*Invariants*: a conversion gives a member no partition that another one may still read, and forgets none that a member may
still read. A rebalance that had begun took the members' assignments: then a cooperative member has what it says it owns (in
Kafka nothing). Where partitions are unassigned, the next heartbeat assigns them even if no subscription changes (in Kafka it
does not).

So a downgraded group records the partitions that members hold, and not their targets, unless they are equal. It rebalances
unless nothing is left to move. Until then its record names no leader, and a start begins that rebalance again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

import attrs

from ....protocol.coordinator import consumer_group_records as records
from ....protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    HIGHEST_VERSION,
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataValue,
    consumer_protocol_version,
    decode_assignment,
    decode_subscription,
    encode_consumer_protocol,
)
from ....protocol.errors import ErrorCode, RemoteProtocolError, RequestError
from ..assigned.values import FIRST_EPOCH, AssignedGroupSettings, Partitions, TopicImage, TopicPartitionId, by_first
from ..classic.group import STABLE, ClassicGroup, Member, Usage
from .group import ConsumerDraft, ConsumerGroup
from .member import ClassicSide, ConsumerMember

LOGGER: Final = logging.getLogger(__name__)

NO_REGEX: Final = ""
"""Members that use the classic protocol subscribe by name only."""


# ---- partitions by name ------------------------------------------------------------------------------------------------------


def partitions_of(named: Iterable[ConsumerPartitions], topics: TopicImage) -> Partitions:
    """Return the existing ones of the partitions that a client names."""
    found = []
    for each in named:
        topic = topics.find(each.topic)
        if topic is not None:
            found += [(topic.topic_id, number) for number in each.partitions if 0 <= number < topic.partitions]
    return frozenset(found)


def assignment_bytes(partitions: Partitions, classic: ClassicSide, topics: TopicImage) -> bytes:
    """Return an assignment as the client of a member reads it, in the version of its subscription."""
    names = ((topics.name_of(topic_id), numbers) for topic_id, numbers in by_first(partitions).items())
    assigned = [ConsumerPartitions(topic=name, partitions=numbers) for name, numbers in names if name is not None]
    version = min(consumer_protocol_version(classic.protocols[0][1]), HIGHEST_VERSION)
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


# ---- to a consumer group -----------------------------------------------------------------------------------------------------


def check_upgrade(classic: ClassicGroup, settings: AssignedGroupSettings) -> None:
    """Raises GROUP_ID_NOT_FOUND for a group that stays classic."""
    if not settings.migration_policy.upgrades:
        raise cannot_upgrade(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise cannot_upgrade(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.max_size:
        raise cannot_upgrade(classic, "the group size exceeds the consumer group maximum size")


def cannot_upgrade(classic: ClassicGroup, why: str) -> RequestError:
    LOGGER.info("group %s stays classic: %s", classic.group_id, why)
    return RequestError(
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.", ErrorCode.GROUP_ID_NOT_FOUND
    )


def put_upgraded(draft: ConsumerDraft, classic: ClassicGroup) -> None:
    """Put the members of a classic group into a group without records. Raises GROUP_ID_NOT_FOUND."""
    try:
        members = _upgraded_members(classic, draft.topics)
    except RemoteProtocolError as exc:
        LOGGER.warning("group %s: a member's subscription or assignment cannot be read: %s", classic.group_id, exc)
        raise cannot_upgrade(classic, "the embedded consumer protocol is malformed") from exc
    epoch = max(classic.generation, FIRST_EPOCH)
    for member in members:
        draft.put_member(member)
    subscribed = [draft.topics.find(name) for name in draft.group.subscribed_names()]
    is_complete = sum(len(member.assigned) for member in members) == sum(topic.partitions for topic in subscribed if topic)
    # Another hash than that of the topics makes the next heartbeat assign partitions.
    known = draft.metadata_hash() if is_complete else 0
    draft.put_own(records.ConsumerGroupMetadataKey, records.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=known))
    for member in members:
        draft.put_target(member.member_id, member.assigned)
    targets = records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    draft.put_own(records.ConsumerGroupTargetAssignmentMetadataKey, targets)
    for member in members:
        draft.put_current(member)


def _upgraded_members(classic: ClassicGroup, topics: TopicImage) -> list[ConsumerMember]:
    """Of two members to which a leader has assigned one partition, the first one has it. Raises RemoteProtocolError."""
    protocol, members = classic.protocol or classic.select_protocol(), []
    subscriptions = {
        member_id: decode_subscription(member.metadata(protocol) or b"") for member_id, member in classic.members.items()
    }
    taken: set[TopicPartitionId] = set()
    held: dict[str, Partitions] = {}
    for member_id, member in classic.members.items():
        held[member_id] = partitions_of(_assigned(classic, member), topics) - taken
        taken.update(held[member_id])
    for member_id, member in classic.members.items():
        if classic.state is not STABLE and not member.assignment:
            held[member_id] = partitions_of(subscriptions[member_id].owned_partitions, topics) - taken
            taken.update(held[member_id])
    for member_id, member in classic.members.items():
        assigned, subscription = held[member_id], subscriptions[member_id]
        subscribed = subscribed_member(
            ConsumerMember(member_id=member.member_id),
            subscription,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
        )
        members.append(
            attrs.evolve(
                subscribed,
                epoch=classic.generation,
                previous_epoch=classic.generation,
                assigned=assigned,
                since=dict.fromkeys(assigned, classic.generation),
            )
        )
    return members


def _assigned(classic: ClassicGroup, member: Member) -> list[ConsumerPartitions]:
    """Raises GROUP_ID_NOT_FOUND for an assignment with more than partitions, RemoteProtocolError."""
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise cannot_upgrade(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
            "before re-attempting the upgrade",
        )
    return assignment.assigned_partitions


def subscribed_member(member: ConsumerMember, subscription: ConsumerProtocolSubscription, **facts: Any) -> ConsumerMember:
    """Return a member with the subscription that its client sends in the classic protocol, and `facts` beside it."""
    names = tuple(sorted(set(subscription.topics)))
    rack = member.rack_id if subscription.rack_id is None else subscription.rack_id
    return attrs.evolve(member, topic_names=names, topic_regex=NO_REGEX, rack_id=rack, **facts)


# ---- to a classic group ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Downgrade:
    """The classic group that takes the place of a consumer group, and its record."""

    group: ClassicGroup
    value: GroupMetadataValue
    must_rebalance: bool


def downgraded(
    group: ConsumerGroup, members: Iterable[ConsumerMember], topics: TopicImage, *, must_rebalance: bool
) -> Downgrade:
    """Return the classic group of members that all use the classic protocol. `group`: as it is before."""
    classic = ClassicGroup(group.group_id, Usage(), STABLE, generation=group.epoch, is_stored=True)
    for member in members:
        classic.add(_downgraded_member(member, topics), CONSUMER_PROTOCOL_TYPE)
    classic.protocol = classic.select_protocol()
    classic.assignment_bytes = sum(len(member.assignment) for member in classic.members.values())
    value = classic.record()
    if must_rebalance:
        value.leader = None
    return Downgrade(group=classic, value=value, must_rebalance=must_rebalance)


def _downgraded_member(member: ConsumerMember, topics: TopicImage) -> Member:
    classic = member.classic
    assert classic is not None, member.member_id
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=classic.protocols,
        assignment=assignment_bytes(member.held, classic, topics),
    )
