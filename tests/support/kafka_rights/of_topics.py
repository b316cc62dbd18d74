"""Records, topics and configuration."""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.apis import ApiKey as K

from .case import IN_TRANSACTION, PLAIN_BATCH, Case, Fields, Names, case, in_topic


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


CASES: Final[list[Case]] = [
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
