"""Transactions, the cluster, and what everybody may."""

from __future__ import annotations

from typing import Final

from triolog.protocol.kafka.apis import ApiKey as K
from triolog.protocol.kafka.authorization import AclPermission, PatternType

from .case import TOPIC, UNKNOWN_ID, Case, Op, case
from .of_groups import COMMITTED

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

CASES: Final[list[Case]] = [
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
