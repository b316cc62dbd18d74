"""Every way to ask for something: about records, topics and configuration, about groups of all kinds, about transactions, the
cluster, and what everybody may.
"""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.apis import ApiKey as K
from triolog.protocol.kafka.authorization import AclPermission, PatternType

from tests.support.kafka_rights.case import (
    IN_TRANSACTION,
    MEMBER,
    PLAIN_BATCH,
    TOPIC,
    UNKNOWN_ID,
    Case,
    Fields,
    Names,
    Op,
    case,
    in_topic,
)


def _produce(records: bytes, *, in_transaction: bool = False, by_id: bool = False) -> Fields:
    return lambda names: {
        "transactional_id": names.of if in_transaction else None,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [
            {
                **({"topic_id": names.topic_id} if by_id else {"name": names.of}),
                "partition_data": [{"index": 0, "records": records}],
            }
        ],
    }


def _fetch(*, by_id: bool = False) -> Fields:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return lambda names: {
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{**({"topic_id": names.topic_id} if by_id else {"topic": names.of}), "partitions": [part]}],
    }


def _new_topic(names: Names) -> dict[str, Any]:
    return {"topics": [{"name": names.of, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 30_000}


def _metadata(*, makes: bool = False, by_id: bool = False) -> Fields:
    return lambda names: {
        "topics": [{"topic_id": names.topic_id, "name": None} if by_id else {"name": names.of}],
        "allow_auto_topic_creation": makes,
    }


CONFIGURED: Final[dict[str, tuple[int, str]]] = {
    "TOPIC": (2, "retention.ms"),
    "GROUP": (32, "consumer.session.timeout.ms"),
    "CLUSTER": (4, "log.cleaner.threads"),
}
"""What has a configuration -> its type, and a key of it."""


def _resource(kind: str, names: Names) -> dict[str, Any]:
    number, _ = CONFIGURED[kind]
    return {"resource_type": number, "resource_name": "" if kind == "CLUSTER" else names.of}


def _described(kind: str) -> Fields:
    return lambda names: {"resources": [{**_resource(kind, names), "configuration_keys": [CONFIGURED[kind][1]]}]}


def _altered(kind: str, **operation: int) -> Fields:
    value = {"name": CONFIGURED[kind][1], "value": "50000" if kind != "CLUSTER" else "1", **operation}
    return lambda names: {"resources": [{**_resource(kind, names), "configs": [value]}], "validate_only": True}


OF_TOPICS: Final[list[Case]] = [
    case(K.PRODUCE, 12, "WRITE TOPIC", _produce(PLAIN_BATCH)),
    case(K.PRODUCE, 13, "WRITE TOPIC", _produce(PLAIN_BATCH, by_id=True)),
    case(K.PRODUCE, 12, "WRITE TRANSACTIONAL_ID, WRITE TOPIC", _produce(IN_TRANSACTION, in_transaction=True), way="in one"),
    case(K.FETCH, 12, "READ TOPIC", _fetch()),
    case(K.FETCH, 17, "READ TOPIC", _fetch(by_id=True)),
    case(
        K.LIST_OFFSETS,
        10,
        "DESCRIBE TOPIC",
        lambda names: {"topics": in_topic(partition_index=0, current_leader_epoch=-1, timestamp=-1)(names), "replica_id": -1},
    ),
    case(
        K.OFFSET_FOR_LEADER_EPOCH,
        4,
        "DESCRIBE TOPIC",
        lambda names: {
            "replica_id": -1,
            "topics": [{"topic": names.of, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}],
        },
    ),
    case(
        K.DELETE_RECORDS,
        2,
        "DELETE TOPIC",
        lambda names: {"topics": in_topic(partition_index=0, offset=0)(names), "timeout_ms": 30_000},
    ),
    case(K.METADATA, 12, "DESCRIBE TOPIC", _metadata()),
    case(K.METADATA, 13, "DESCRIBE TOPIC", _metadata(by_id=True), way="by id"),
    case(K.METADATA, 12, "DESCRIBE TOPIC, CREATE TOPIC", _metadata(makes=True), way="makes one", is_about_new=True),
    case(
        K.METADATA,
        12,
        "DESCRIBE TOPIC, CREATE CLUSTER",
        _metadata(makes=True),
        way="makes one by right of the cluster",
        is_about_new=True,
    ),
    case(
        K.DESCRIBE_TOPIC_PARTITIONS,
        0,
        "DESCRIBE TOPIC",
        lambda names: {"topics": [{"name": names.of}], "response_partition_limit": 10, "cursor": None},
    ),
    case(K.CREATE_TOPICS, 7, "CREATE TOPIC", _new_topic, is_about_new=True),
    case(K.CREATE_TOPICS, 7, "CREATE CLUSTER", _new_topic, way="by right of the cluster", is_about_new=True),
    case(K.DELETE_TOPICS, 5, "DELETE TOPIC", lambda names: {"topic_names": [names.of], "timeout_ms": 30_000}),
    case(
        K.DELETE_TOPICS,
        6,
        "DELETE CLUSTER",
        lambda names: {"topics": [{"name": names.of, "topic_id": bytes(16)}], "timeout_ms": 30_000},
    ),
    case(
        K.DELETE_TOPICS,
        6,
        "DELETE TOPIC",
        lambda names: {"topics": [{"name": None, "topic_id": names.topic_id}], "timeout_ms": 30_000},
        way="by id",
    ),
    case(
        K.CREATE_PARTITIONS,
        3,
        "ALTER TOPIC",
        lambda names: {"topics": [{"name": names.of, "count": 2, "assignments": None}], "timeout_ms": 30_000},
    ),
    *(case(K.DESCRIBE_CONFIGS, 4, f"DESCRIBE_CONFIGS {kind}", _described(kind), way=kind.lower()) for kind in CONFIGURED),
    *(case(K.ALTER_CONFIGS, 2, f"ALTER_CONFIGS {kind}", _altered(kind), way=kind.lower()) for kind in CONFIGURED),
    *(
        case(K.INCREMENTAL_ALTER_CONFIGS, 1, f"ALTER_CONFIGS {kind}", _altered(kind, config_operation=0), way=kind.lower())
        for kind in CONFIGURED
    ),
    case(K.LIST_CONFIG_RESOURCES, 1, "DESCRIBE_CONFIGS CLUSTER", lambda _: {"resource_types": [2]}),
]


COMMITTED: Final = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}

JOIN: Final = {"member_id": "", "member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}

_TASKS: Final[dict[str, Any]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def _share_fetch(names: Names) -> dict[str, Any]:
    parts = [{"partition_index": 0, "acknowledgement_batches": []}]
    return {
        "group_id": names.of,
        "member_id": MEMBER,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": names.topic_id, "partitions": parts}],
    }


def _share_acknowledge(names: Names) -> dict[str, Any]:
    done = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    parts = [{"partition_index": 0, "acknowledgement_batches": [done]}]
    return {
        "group_id": names.of,
        "member_id": MEMBER,
        "share_session_epoch": 1,
        "topics": [{"topic_id": names.topic_id, "partitions": parts}],
    }


def streams(*, makes: bool) -> Fields:
    def fields(names: Names) -> dict[str, Any]:
        kept = [{"name": f"{names.of}-store-changelog", "partitions": 0, "replication_factor": 0, "topic_configs": []}]
        part = {"subtopology_id": "0", "source_topics": [names.of], "state_changelog_topics": kept if makes else []}
        return {
            "group_id": names.of,
            "member_id": MEMBER,
            "rebalance_timeout_ms": 60_000,
            "process_id": "process",
            "topology": {"epoch": 0, "subtopologies": [part]},
            **_TASKS,
        }

    return fields


def commit_offsets(names: Names) -> dict[str, Any]:
    return {
        "group_id": names.of,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": names.of, "partitions": [COMMITTED]}],
    }


def alter_share_offsets(names: Names) -> dict[str, Any]:
    parts = [{"partition_index": 0, "start_offset": 0}]
    return {"group_id": names.of, "topics": [{"topic_name": names.of, "partitions": parts}]}


def of_groups(names: Names) -> dict[str, Any]:
    return {"group_ids": [names.of]}


OF_GROUPS: Final[list[Case]] = [
    *(
        case(K.FIND_COORDINATOR, 3, f"DESCRIBE {kind}", lambda names, n=n: {"key": names.of, "key_type": n}, way=kind.lower())
        for n, kind in enumerate(("GROUP", "TRANSACTIONAL_ID"))
    ),
    *(
        case(
            K.FIND_COORDINATOR,
            6,
            f"DESCRIBE {kind}",
            lambda names, n=n: {"coordinator_keys": [names.of], "key_type": n},
            way=kind.lower(),
        )
        for n, kind in enumerate(("GROUP", "TRANSACTIONAL_ID"))
    ),
    case(
        K.JOIN_GROUP,
        9,
        "READ GROUP",
        lambda names: {
            "group_id": names.of,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    case(
        K.SYNC_GROUP,
        5,
        "READ GROUP",
        lambda names: {
            "group_id": names.of,
            "generation_id": 1,
            "member_id": MEMBER,
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
    ),
    case(K.HEARTBEAT, 4, "READ GROUP", lambda names: {"group_id": names.of, "generation_id": 1, "member_id": MEMBER}),
    case(K.LEAVE_GROUP, 5, "READ GROUP", lambda names: {"group_id": names.of, "members": [{"member_id": MEMBER}]}),
    case(K.OFFSET_COMMIT, 9, "READ GROUP, READ TOPIC", commit_offsets),
    case(
        K.OFFSET_FETCH,
        9,
        "DESCRIBE GROUP, DESCRIBE TOPIC",
        lambda names: {
            "groups": [{"group_id": names.of, "member_id": None, "topics": [{"name": names.of, "partition_indexes": [0]}]}]
        },
    ),
    case(
        K.OFFSET_FETCH,
        7,
        "DESCRIBE GROUP, DESCRIBE TOPIC",
        lambda names: {"group_id": names.of, "topics": [{"name": names.of, "partition_indexes": [0]}]},
        way="of one group",
    ),
    case(
        K.OFFSET_DELETE,
        0,
        "DELETE GROUP, READ TOPIC",
        lambda names: {"group_id": names.of, "topics": in_topic(partition_index=0)(names)},
    ),
    case(K.DESCRIBE_GROUPS, 6, "DESCRIBE GROUP", lambda names: {"groups": [names.of]}),
    case(K.LIST_GROUPS, 5, "", lambda _: {}),
    case(K.DELETE_GROUPS, 2, "DELETE GROUP", lambda names: {"groups_names": [names.of]}),
    case(
        K.CONSUMER_GROUP_HEARTBEAT,
        1,
        "READ GROUP, DESCRIBE TOPIC",
        lambda names: {**JOIN, "member_id": MEMBER, "group_id": names.of, "subscribed_topic_names": [names.of]},
    ),
    case(K.CONSUMER_GROUP_DESCRIBE, 1, "DESCRIBE GROUP", of_groups),
    case(
        K.SHARE_GROUP_HEARTBEAT,
        1,
        "READ GROUP, DESCRIBE TOPIC",
        lambda names: {"group_id": names.of, "member_id": MEMBER, "subscribed_topic_names": [names.of]},
    ),
    case(K.SHARE_GROUP_DESCRIBE, 1, "DESCRIBE GROUP", of_groups),
    case(K.SHARE_FETCH, 1, "READ GROUP, READ TOPIC", _share_fetch),
    case(K.SHARE_ACKNOWLEDGE, 1, "READ GROUP, READ TOPIC", _share_acknowledge, before=((K.SHARE_FETCH, 1, _share_fetch),)),
    case(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        0,
        "DESCRIBE GROUP, DESCRIBE TOPIC",
        lambda names: {"groups": [{"group_id": names.of, "topics": [{"topic_name": names.of, "partitions": [0]}]}]},
    ),
    case(K.ALTER_SHARE_GROUP_OFFSETS, 0, "READ GROUP, READ TOPIC", alter_share_offsets),
    case(
        K.DELETE_SHARE_GROUP_OFFSETS,
        0,
        "DELETE GROUP, READ TOPIC",
        lambda names: {"group_id": names.of, "topics": [{"topic_name": names.of}]},
    ),
    case(K.STREAMS_GROUP_HEARTBEAT, 0, "READ GROUP, DESCRIBE TOPIC", streams(makes=False)),
    *(
        case(
            K.STREAMS_GROUP_HEARTBEAT,
            0,
            f"READ GROUP, DESCRIBE TOPIC, {right}",
            streams(makes=True),
            way=f"{right.lower()} for a changelog",
        )
        for right in ("CREATE TOPIC", "CREATE CLUSTER")
    ),
    case(K.STREAMS_GROUP_DESCRIBE, 0, "DESCRIBE GROUP", of_groups),
]


_ACL: Final = {
    "resource_type": TOPIC,
    "resource_name": "of-nobody",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:nobody",
    "host": "*",
    "operation": Op.READ,
    "permission_type": AclPermission.ALLOW,
}
_FILTER: Final = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": "of-nobody",
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": Op.ANY,
    "permission_type": AclPermission.ANY,
}

_PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0}
_V3: Final = "v3_and_below_"

OF_CLUSTER: Final[list[Case]] = [
    case(
        K.INIT_PRODUCER_ID,
        4,
        "WRITE TRANSACTIONAL_ID",
        lambda names: {"transactional_id": names.of, "transaction_timeout_ms": 60_000},
    ),
    *(
        case(
            K.INIT_PRODUCER_ID,
            4,
            right,
            lambda _: {"transactional_id": None, "transaction_timeout_ms": 60_000},
            way=right.lower(),
        )
        for right in ("WRITE TOPIC", "IDEMPOTENT_WRITE CLUSTER")
    ),
    case(
        K.ADD_PARTITIONS_TO_TXN,
        3,
        "WRITE TRANSACTIONAL_ID, WRITE TOPIC",
        lambda names: {
            f"{_V3}transactional_id": names.of,
            **{f"{_V3}{name}": value for name, value in _PRODUCER.items()},
            f"{_V3}topics": [{"name": names.of, "partitions": [0]}],
        },
    ),
    case(
        K.ADD_OFFSETS_TO_TXN,
        4,
        "WRITE TRANSACTIONAL_ID, READ GROUP",
        lambda names: {"transactional_id": names.of, "group_id": names.of, **_PRODUCER},
    ),
    case(
        K.TXN_OFFSET_COMMIT,
        4,
        "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
        lambda names: {
            "transactional_id": names.of,
            "group_id": names.of,
            **_PRODUCER,
            "topics": [{"name": names.of, "partitions": [COMMITTED]}],
        },
    ),
    case(K.END_TXN, 4, "WRITE TRANSACTIONAL_ID", lambda names: {"transactional_id": names.of, **_PRODUCER, "committed": True}),
    *(
        case(
            K.WRITE_TXN_MARKERS,
            1,
            right,
            lambda names: {
                "markers": [
                    {**_PRODUCER, "transaction_result": False, "topics": [{"name": names.of, "partition_indexes": [0]}]}
                ]
            },
            way=right.lower(),
        )
        for right in ("ALTER CLUSTER", "CLUSTER_ACTION CLUSTER")
    ),
    case(K.DESCRIBE_PRODUCERS, 0, "READ TOPIC", lambda names: {"topics": [{"name": names.of, "partition_indexes": [0]}]}),
    case(K.DESCRIBE_TRANSACTIONS, 0, "DESCRIBE TRANSACTIONAL_ID", lambda names: {"transactional_ids": [names.of]}),
    case(K.LIST_TRANSACTIONS, 1, "", lambda _: {"duration_filter": -1}),
    case(K.DESCRIBE_ACLS, 3, "DESCRIBE CLUSTER", lambda _: dict(_FILTER)),
    case(K.CREATE_ACLS, 3, "ALTER CLUSTER", lambda _: {"creations": [dict(_ACL)]}),
    case(K.DELETE_ACLS, 3, "ALTER CLUSTER", lambda _: {"filters": [dict(_FILTER)]}),
    case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "DESCRIBE CLUSTER", lambda _: {"users": [{"name": "nobody"}]}),
    case(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        "ALTER CLUSTER",
        lambda _: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    ),
    case(
        K.DESCRIBE_CLIENT_QUOTAS,
        1,
        "DESCRIBE_CONFIGS CLUSTER",
        lambda _: {"components": [{"entity_type": "user", "match_type": 0, "match": "nobody"}], "strict": False},
    ),
    case(
        K.ALTER_CLIENT_QUOTAS,
        1,
        "ALTER_CONFIGS CLUSTER",
        lambda _: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    case(K.DESCRIBE_LOG_DIRS, 4, "DESCRIBE CLUSTER", lambda names: {"topics": [{"topic": names.of, "partitions": [0]}]}),
    case(
        K.ALTER_REPLICA_LOG_DIRS,
        2,
        "ALTER CLUSTER",
        lambda names: {"dirs": [{"path": "/nowhere", "topics": [{"name": names.of, "partitions": [0]}]}]},
    ),
    case(
        K.ELECT_LEADERS,
        2,
        "ALTER CLUSTER",
        lambda names: {"election_type": 0, "topic_partitions": [{"topic": names.of, "partitions": [0]}], "timeout_ms": 30_000},
    ),
    case(
        K.ALTER_PARTITION_REASSIGNMENTS,
        0,
        "ALTER CLUSTER",
        lambda names: {
            "topics": [{"name": names.of, "partitions": [{"partition_index": 0, "replicas": None}]}],
            "timeout_ms": 30_000,
        },
    ),
    case(
        K.LIST_PARTITION_REASSIGNMENTS,
        0,
        "DESCRIBE CLUSTER",
        lambda names: {"topics": [{"name": names.of, "partition_indexes": [0]}], "timeout_ms": 30_000},
    ),
    case(
        K.DESCRIBE_QUORUM,
        2,
        "DESCRIBE CLUSTER",
        lambda _: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    case(
        K.UPDATE_FEATURES,
        1,
        "ALTER CLUSTER",
        lambda _: {
            "feature_updates": [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}],
            "timeout_ms": 30_000,
            "validate_only": True,
        },
    ),
    case(K.API_VERSIONS, 3, "", lambda _: {"client_software_name": "rights", "client_software_version": "1"}),
    case(K.DESCRIBE_CLUSTER, 1, "", lambda _: {"endpoint_type": 1}),
    case(K.GET_TELEMETRY_SUBSCRIPTIONS, 0, "", lambda _: {"client_instance_id": UNKNOWN_ID}),
    case(K.PUSH_TELEMETRY, 0, "", lambda _: {"client_instance_id": UNKNOWN_ID, "subscription_id": 1, "terminating": False}),
]
