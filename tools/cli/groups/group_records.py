"""What `__consumer_offsets` says of groups and their members, in words: classic groups, and those whose assignments the server
makes (KIP-848)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from ....protocol.coordinator import consumer_group_records as records
from ....protocol.coordinator.consumer_protocol import CONSUMER_PROTOCOL_TYPE, ConsumerPartitions, decode_assignment
from ....protocol.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from ....protocol.errors import RemoteProtocolError
from ....server.groups.consumer.member import MemberState
from ....server.storage.disk.checkpoints import encode_uuid

TopicPartitions = Iterable[records.ConsumerGroupTopicPartitions] | Iterable[records.ConsumerGroupCurrentPartitions]


def classic_group(group: str, value: GroupMetadataValue | None) -> str:
    """A classic group's record."""
    if value is None:
        return f"group {group}: gone"
    protocol = f"{value.protocol_type or 'no'} protocol {value.protocol or '-'}"
    members = "".join(f"; {_classic_member(value, each)}" for each in value.members)
    return f"group {group}: generation {value.generation}, {protocol}, {len(value.members)} members{members}"


def _classic_member(group: GroupMetadataValue, member: MemberMetadata) -> str:
    leads = ", leads" if member.member_id == group.leader else ""
    instance = "" if member.group_instance_id is None else f", instance {member.group_instance_id}"
    who = f"{member.member_id} of client {member.client_id} at {member.client_host}{instance}{leads}"
    return f"{who}, has {_classic_assignment(group, member.assignment)}"


def _classic_assignment(group: GroupMetadataValue, assignment: bytes) -> str:
    """What it means is the clients' matter; consumers are understood."""
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        try:
            return listed(_named(decode_assignment(assignment).assigned_partitions))
        except RemoteProtocolError:
            pass
    return f"{len(assignment)} bytes of assignment"


def _named(assigned: Iterable[ConsumerPartitions]) -> Iterator[str]:
    return (f"{each.topic}-{number}" for each in assigned for number in each.partitions)


def consumer_group(key: records.ConsumerGroupKey, value: records.ConsumerGroupValue | None) -> str:
    """A record of a group whose assignments the server makes."""
    what = _subject(key)
    return f"group {key.group_id}: {what}{'gone' if value is None else _said(value)}"


def _subject(key: records.ConsumerGroupKey) -> str:
    match key:
        case records.ConsumerGroupMetadataKey():
            return ""
        case records.ConsumerGroupPartitionMetadataKey():
            return "topics "
        case records.ConsumerGroupTargetAssignmentMetadataKey():
            return "target assignment "
        case records.ConsumerGroupTargetAssignmentMemberKey():
            return f"member {key.member_id} is to have "
        case records.ConsumerGroupRegularExpressionKey():
            return f"expression {key.regular_expression!r} "
        case records.ConsumerGroupCurrentMemberAssignmentKey():
            return f"assignment of member {key.member_id} "
    return f"member {key.member_id} "


def _said(value: records.ConsumerGroupValue) -> str:
    match value:
        case records.ConsumerGroupMetadataValue():
            return f"epoch {value.epoch}"
        case records.ConsumerGroupPartitionMetadataValue():
            return listed(f"{each.topic_name} ({each.num_partitions} partitions)" for each in value.topics)
        case records.ConsumerGroupTargetAssignmentMetadataValue():
            return f"epoch {value.assignment_epoch}"
        case records.ConsumerGroupTargetAssignmentMemberValue():
            return listed(partitions_by_id(value.topic_partitions))
        case records.ConsumerGroupRegularExpressionValue():
            return f"matches {listed(value.topics)}"
        case records.ConsumerGroupCurrentMemberAssignmentValue():
            return _current(value)
    return _member(value)


def _member(value: records.ConsumerGroupMemberMetadataValue) -> str:
    instance = "" if value.instance_id is None else f", instance {value.instance_id}"
    regex = f", expression {value.subscribed_topic_regex!r}" if value.subscribed_topic_regex else ""
    classic = ", speaks the classic protocol" if value.classic_member_metadata is not None else ""
    topics = listed(value.subscribed_topic_names)
    return f"of client {value.client_id} at {value.client_host}{instance}, subscribed to {topics}{regex}{classic}"


def _current(value: records.ConsumerGroupCurrentMemberAssignmentValue) -> str:
    states = {int(state): state.name.lower() for state in MemberState}
    revoked = list(partitions_by_id(value.partitions_pending_revocation))
    gives_up = f", gives up {listed(revoked)}" if revoked else ""
    has = listed(partitions_by_id(value.assigned_partitions))
    return f"{states.get(value.state, str(value.state))} at epoch {value.member_epoch}, has {has}{gives_up}"


def partitions_by_id(partitions: TopicPartitions) -> Iterator[str]:
    """A topic's id is all that the record has of it."""
    return (f"{encode_uuid(uuid.UUID(bytes=each.topic_id))}-{number}" for each in partitions for number in each.partitions)


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
