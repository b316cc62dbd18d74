"""What `__consumer_offsets` says of Streams groups and their members, in words (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....protocol.coordinator import streams_group_records as records
from .group_records import listed


def streams_group(key: records.StreamsGroupKey, value: records.StreamsGroupValue | None) -> str:
    """A record of a Streams group."""
    return f"Streams group {key.group_id}: {_subject(key)}{'gone' if value is None else _said(value)}"


def _subject(key: records.StreamsGroupKey) -> str:
    match key:
        case records.StreamsGroupMetadataKey():
            return ""
        case records.StreamsGroupTopologyKey():
            return "topology "
        case records.StreamsGroupTargetAssignmentMetadataKey():
            return "target assignment "
        case records.StreamsGroupTargetAssignmentMemberKey():
            return f"member {key.member_id} is to have "
        case records.StreamsGroupCurrentMemberAssignmentKey():
            return f"tasks of member {key.member_id} "
    return f"member {key.member_id} "


def _said(value: records.StreamsGroupValue) -> str:
    match value:
        case records.StreamsGroupMetadataValue():
            return f"epoch {value.epoch}"
        case records.StreamsGroupTopologyValue():
            return f"epoch {value.epoch}: {'; '.join(_part(each) for each in value.subtopologies)}"
        case records.StreamsGroupTargetAssignmentMetadataValue():
            return f"epoch {value.assignment_epoch}"
        case records.StreamsGroupTargetAssignmentMemberValue():
            return _tasks(value.active_tasks, value.standby_tasks)
        case records.StreamsGroupCurrentMemberAssignmentValue():
            revoked = _tasks(value.active_tasks_pending_revocation, value.standby_tasks_pending_revocation)
            has = _tasks(value.active_tasks, value.standby_tasks)
            return f"at epoch {value.member_epoch}: {has}; to be given up: {revoked}"
    topology = f"topology epoch {value.topology_epoch}"
    return f"of client {value.client_id} at {value.client_host}, process {value.process_id}, {topology}"


def _part(part: records.StreamsGroupSubtopology) -> str:
    internal = (*part.repartition_source_topics, *part.state_changelog_topics)
    return f"{part.subtopology_id} reads {listed(part.source_topics)}, has {listed(each.name for each in internal)}"


def _tasks(
    active: Iterable[records.StreamsGroupTaskIds | records.StreamsGroupCurrentTaskIds],
    standby: Iterable[records.StreamsGroupTaskIds | records.StreamsGroupCurrentTaskIds],
) -> str:
    return f"{listed(_ids(active))} active, {listed(_ids(standby))} standby"


def _ids(parts: Iterable[records.StreamsGroupTaskIds | records.StreamsGroupCurrentTaskIds]) -> Iterator[str]:
    return (f"{each.subtopology_id}_{number}" for each in parts for number in each.partitions)
