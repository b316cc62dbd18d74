"""What `__consumer_offsets` says of share groups and their members, in words (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....protocol.coordinator import share_group_records as records
from .group_records import listed, partitions_by_id


def share_group(key: records.ShareGroupKey, value: records.ShareGroupValue | None) -> str:
    """A record of a share group."""
    return f"share group {key.group_id}: {_subject(key)}{'gone' if value is None else _said(value)}"


def _subject(key: records.ShareGroupKey) -> str:
    match key:
        case records.ShareGroupMetadataKey():
            return ""
        case records.ShareGroupStatePartitionMetadataKey():
            return "share states "
        case records.ShareGroupTargetAssignmentMetadataKey():
            return "target assignment "
        case records.ShareGroupTargetAssignmentMemberKey():
            return f"member {key.member_id} is to have "
        case records.ShareGroupCurrentMemberAssignmentKey():
            return f"assignment of member {key.member_id} "
    return f"member {key.member_id} "


def _said(value: records.ShareGroupValue) -> str:
    match value:
        case records.ShareGroupMetadataValue():
            return f"epoch {value.epoch}"
        case records.ShareGroupTargetAssignmentMetadataValue():
            return f"epoch {value.assignment_epoch}"
        case records.ShareGroupTargetAssignmentMemberValue():
            return listed(partitions_by_id(value.topic_partitions))
        case records.ShareGroupCurrentMemberAssignmentValue():
            return f"at epoch {value.member_epoch}, has {listed(partitions_by_id(value.assigned_partitions))}"
        case records.ShareGroupStatePartitionMetadataValue():
            deleted = (each.topic_name for each in value.deleting_topics)
            made, there = _named(value.initializing_topics), _named(value.initialized_topics)
            return f"of {listed(there)}; being made of {listed(made)}; being deleted of {listed(deleted)}"
    topics = listed(value.subscribed_topic_names)
    return f"of client {value.client_id} at {value.client_host}, subscribed to {topics}"


def _named(topics: Iterable[records.ShareGroupTopicPartitionsInfo]) -> Iterator[str]:
    return (f"{each.topic_name}-{number}" for each in topics for number in each.partitions)
