"""The records of `__consumer_offsets` about groups and their members, in words: classic groups, and those whose assignments the
server makes (KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ....protocol.coordinator import consumer_group_records as consumer
from ....protocol.coordinator import share_group_records as share
from ....protocol.coordinator import streams_group_records as streams
from ....protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerPartitions,
    GroupMetadataValue,
    MemberMetadata,
    decode_assignment,
)
from ....protocol.errors import RemoteProtocolError
from ....server.groups.consumer.member import MemberState
from ....server.storage.disk.checkpoints import encode_uuid


def classic_group(group: str, value: GroupMetadataValue | None) -> str:
    """Describe a classic group's record; None: the group is gone."""
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
    """Only the clients know what it means, but for consumers."""
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        try:
            assigned: Iterable[ConsumerPartitions] = decode_assignment(assignment).assigned_partitions
            return _listed(f"{each.topic}-{number}" for each in assigned for number in each.partitions)
        except RemoteProtocolError:
            pass
    return f"{len(assignment)} bytes of assignment"


def managed_group(key: Any, value: Any) -> str:
    """Describe a record of a consumer, share or Streams group; without a value the thing of that key is gone."""
    kind, _, name = type(key).__name__.partition("Group")
    subject = _SUBJECTS[name].format(key, "tasks" if kind == "Streams" else "assignment")
    return f"{_KINDS[kind]} {key.group_id}: {subject}{'gone' if value is None else _SAID[type(value)](value)}"


def _consumer(value: consumer.ConsumerGroupMemberMetadataValue) -> str:
    instance = "" if value.instance_id is None else f", instance {value.instance_id}"
    regex = f", expression {value.subscribed_topic_regex!r}" if value.subscribed_topic_regex else ""
    classic = ", speaks the classic protocol" if value.classic_member_metadata is not None else ""
    topics = _listed(value.subscribed_topic_names)
    return f"of client {value.client_id} at {value.client_host}{instance}, subscribed to {topics}{regex}{classic}"


def _consumer_assignment(value: consumer.ConsumerGroupCurrentMemberAssignmentValue) -> str:
    states = {int(state): state.name.lower() for state in MemberState}
    revoked = list(_by_id(value.partitions_pending_revocation))
    gives_up = f", must give up {_listed(revoked)}" if revoked else ""
    has = _listed(_by_id(value.assigned_partitions))
    return f"{states.get(value.state, str(value.state))} at epoch {value.member_epoch}, has {has}{gives_up}"


def _share_states(value: share.ShareGroupStatePartitionMetadataValue) -> str:
    deleted = (each.topic_name for each in value.deleting_topics)
    made, there = (
        _listed(f"{each.topic_name}-{number}" for each in topics for number in each.partitions)
        for topics in (value.initializing_topics, value.initialized_topics)
    )
    return f"of {there}; being made of {made}; being deleted of {_listed(deleted)}"


def _streams_member(value: streams.StreamsGroupMemberMetadataValue) -> str:
    topology = f"topology epoch {value.topology_epoch}"
    return f"of client {value.client_id} at {value.client_host}, process {value.process_id}, {topology}"


def _streams_assignment(value: streams.StreamsGroupCurrentMemberAssignmentValue) -> str:
    revoked = _tasks(value.active_tasks_pending_revocation, value.standby_tasks_pending_revocation)
    has = _tasks(value.active_tasks, value.standby_tasks)
    return f"at epoch {value.member_epoch}: {has}; must give up {revoked}"


def _subtopology(part: streams.StreamsGroupSubtopology) -> str:
    internal = (each.name for each in (*part.repartition_source_topics, *part.state_changelog_topics))
    return f"{part.subtopology_id} reads {_listed(part.source_topics)}, has {_listed(internal)}"


def _tasks(active: Iterable[Any], standby: Iterable[Any]) -> str:
    return ", ".join(
        f"{_listed(f'{each.subtopology_id}_{number}' for each in parts for number in each.partitions)} {kind}"
        for parts, kind in ((active, "active"), (standby, "standby"))
    )


def _by_id(partitions: Iterable[Any]) -> Iterator[str]:
    """A topic's id is all that the record has of it."""
    return (f"{encode_uuid(uuid.UUID(bytes=each.topic_id))}-{number}" for each in partitions for number in each.partitions)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


_KINDS: Final = {"Consumer": "group", "Share": "share group", "Streams": "Streams group"}
_EPOCH: Final = "epoch {0.epoch}".format
_ASSIGNMENT_EPOCH: Final = "epoch {0.assignment_epoch}".format
_SUBJECTS: Final = {
    "MetadataKey": "",
    "PartitionMetadataKey": "topics ",
    "StatePartitionMetadataKey": "share states ",
    "TopologyKey": "topology ",
    "TargetAssignmentMetadataKey": "target assignment ",
    "TargetAssignmentMemberKey": "member {0.member_id} is to have ",
    "RegularExpressionKey": "expression {0.regular_expression!r} ",
    "CurrentMemberAssignmentKey": "{1} of member {0.member_id} ",
    "MemberMetadataKey": "member {0.member_id} ",
}
"""Name of a key's class behind the kind of group -> what the record is about."""
_SAID: Final[Mapping[type, Callable[[Any], str]]] = {
    consumer.ConsumerGroupMetadataValue: _EPOCH,
    consumer.ConsumerGroupPartitionMetadataValue: lambda value: _listed(
        f"{each.topic_name} ({each.num_partitions} partitions)" for each in value.topics
    ),
    consumer.ConsumerGroupTargetAssignmentMetadataValue: _ASSIGNMENT_EPOCH,
    consumer.ConsumerGroupTargetAssignmentMemberValue: lambda value: _listed(_by_id(value.topic_partitions)),
    consumer.ConsumerGroupRegularExpressionValue: lambda value: f"matches {_listed(value.topics)}",
    consumer.ConsumerGroupCurrentMemberAssignmentValue: _consumer_assignment,
    consumer.ConsumerGroupMemberMetadataValue: _consumer,
    share.ShareGroupMetadataValue: _EPOCH,
    share.ShareGroupTargetAssignmentMetadataValue: _ASSIGNMENT_EPOCH,
    share.ShareGroupTargetAssignmentMemberValue: lambda value: _listed(_by_id(value.topic_partitions)),
    share.ShareGroupCurrentMemberAssignmentValue: lambda value: (
        f"at epoch {value.member_epoch}, has {_listed(_by_id(value.assigned_partitions))}"
    ),
    share.ShareGroupStatePartitionMetadataValue: _share_states,
    share.ShareGroupMemberMetadataValue: lambda value: (
        f"of client {value.client_id} at {value.client_host}, subscribed to {_listed(value.subscribed_topic_names)}"
    ),
    streams.StreamsGroupMetadataValue: _EPOCH,
    streams.StreamsGroupTopologyValue: lambda value: (
        f"epoch {value.epoch}: {'; '.join(map(_subtopology, value.subtopologies))}"
    ),
    streams.StreamsGroupTargetAssignmentMetadataValue: _ASSIGNMENT_EPOCH,
    streams.StreamsGroupTargetAssignmentMemberValue: lambda value: _tasks(value.active_tasks, value.standby_tasks),
    streams.StreamsGroupCurrentMemberAssignmentValue: _streams_assignment,
    streams.StreamsGroupMemberMetadataValue: _streams_member,
}
