"""APIs of Kafka's protocol that change topics, groups, users, ACLs, quotas, features or configuration, and what they name: for
the audit log. Topics that Metadata and StreamsGroupHeartbeat make beside their answer are noted where they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from ....protocol.kafka.messages import security as messages
from ....protocol.kafka.messages.cluster import UpdateFeaturesRequest
from ....protocol.kafka.messages.groups import DeleteGroupsRequest
from ....protocol.kafka.messages.offsets import OffsetDeleteRequest
from ....protocol.kafka.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from ....protocol.kafka.messages.transactions import WriteTxnMarkersRequest

KAFKA: Final = "kafka"
RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
"""Whose configuration is altered, by type."""


def _topics(body: Any) -> Iterable[str]:
    return [topic.name for topic in body.topics]


def _deleted_topics(body: DeleteTopicsRequest) -> Iterable[str]:
    return [*(body.topic_names or ()), *(each.name or each.topic_id.hex() for each in body.topics or ())]


def _partitions(body: DeleteRecordsRequest) -> Iterable[str]:
    return [f"{topic.name}-{each.partition_index}" for topic in body.topics for each in topic.partitions]


def _configs(body: Any) -> Iterable[str]:
    return [
        f"{RESOURCES.get(each.resource_type, each.resource_type)} {each.resource_name}: {config.name}"
        for each in body.resources
        for config in each.configs
    ]


def _quotas(body: messages.AlterClientQuotasRequest) -> Iterable[str]:
    return [
        ", ".join(f"{part.entity_type} {'<default>' if part.entity_name is None else part.entity_name}" for part in each.entity)
        for each in body.entries
    ]


def _users(body: messages.AlterUserScramCredentialsRequest) -> Iterable[str]:
    return [*(f"set {each.name}" for each in body.upsertions), *(f"delete {each.name}" for each in body.deletions)]


def _new_acls(body: messages.CreateAclsRequest) -> Iterable[str]:
    return [
        f"{_name(AclPermission, each.permission_type)} {each.principal} at {each.host} {_name(AclOperation, each.operation)} "
        f"{_name(ResourceType, each.resource_type)} {_name(PatternType, each.resource_pattern_type)} {each.resource_name}"
        for each in body.creations
    ]


def _filters(body: messages.DeleteAclsRequest) -> Iterable[str]:
    return [
        f"{_name(AclPermission, each.permission_type)} {each.principal_filter} at {each.host_filter} "
        f"{_name(AclOperation, each.operation)} {_name(ResourceType, each.resource_type_filter)} "
        f"{_name(PatternType, each.pattern_type_filter)} {each.resource_name_filter}"
        for each in body.filters
    ]


def _name(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name)
    except ValueError:
        return str(number)


def _groups(body: DeleteGroupsRequest) -> Iterable[str]:
    return body.groups_names


def _offsets(body: OffsetDeleteRequest) -> Iterable[str]:
    return [f"{body.group_id}: {topic.name}-{each.partition_index}" for topic in body.topics for each in topic.partitions]


def _share_offsets(body: Any) -> Iterable[str]:
    return [f"{body.group_id}: {topic.topic_name}" for topic in body.topics]


def _markers(body: WriteTxnMarkersRequest) -> Iterable[str]:
    return [
        f"producer {marker.producer_id}: {topic.name}-{number}"
        for marker in body.markers
        for topic in marker.topics
        for number in topic.partition_indexes
    ]


def _features(body: UpdateFeaturesRequest) -> Iterable[str]:
    return [f"{each.feature}={each.max_version_level}" for each in body.feature_updates]


AUDITED: Final[dict[ApiKey, Callable[[Any], Iterable[str]]]] = {
    ApiKey.CREATE_TOPICS: _topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _topics,
    ApiKey.DELETE_RECORDS: _partitions,
    ApiKey.DELETE_GROUPS: _groups,
    ApiKey.OFFSET_DELETE: _offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _share_offsets,
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _users,
    ApiKey.CREATE_ACLS: _new_acls,
    ApiKey.DELETE_ACLS: _filters,
    ApiKey.UPDATE_FEATURES: _features,
}
"""By API: what it names."""
