"""Every way to ask for something: about records, topics and configuration, about groups of all kinds, about transactions, the
cluster, and what everybody may.
"""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.apis import ApiKey as K
from triolog.protocol.kafka.authorization import AclPermission, PatternType

from .case import IN_TRANSACTION, MEMBER, OF, OF_ID, PLAIN_BATCH, TOPIC, UNKNOWN_ID, Case, Fields, Op, case

WAIT: Final = {"timeout_ms": 30_000}


def named(**partition: Any) -> list[dict[str, Any]]:
    """A list with the topic, which has a list with one partition."""
    return [{"name": OF, "partitions": [partition]}]


def _produced(records: bytes, **topic: Any) -> Fields:
    return {"topic_data": [{**topic, "partition_data": [{"index": 0, "records": records}]}], "acks": -1, **WAIT}


def _fetched(**topic: Any) -> Fields:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {"topics": [{**topic, "partitions": [part]}], "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}


NEW_TOPIC: Final = {"topics": [{"name": OF, "num_partitions": 1, "replication_factor": 1}], **WAIT}
MADE: Final = {"topics": [{"name": OF}], "allow_auto_topic_creation": True, "makes": True}

CONFIGURED: Final[dict[str, tuple[int, str]]] = {
    "TOPIC": (2, "retention.ms"),
    "GROUP": (32, "consumer.session.timeout.ms"),
    "CLUSTER": (4, "log.cleaner.threads"),
}
"""What has a configuration -> its type, and a key of it."""


def _resource(kind: str) -> dict[str, Any]:
    return {"resource_type": CONFIGURED[kind][0], "resource_name": "" if kind == "CLUSTER" else OF}


def _altered(kind: str, **operation: int) -> Fields:
    value = {"name": CONFIGURED[kind][1], "value": "50000" if kind != "CLUSTER" else "1", **operation}
    return {"resources": [{**_resource(kind), "configs": [value]}], "validate_only": True, "way": kind.lower()}


def _described(kind: str) -> Fields:
    return {"resources": [{**_resource(kind), "configuration_keys": [CONFIGURED[kind][1]]}], "way": kind.lower()}


IN_ONE: Final = {**_produced(IN_TRANSACTION, name=OF), "transactional_id": OF, "way": "in one"}
BY_ID: Final = {"topics": [{"topic_id": OF_ID, "name": None}]}
EPOCH: Final = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
ENDS: Final = named(partition_index=0, current_leader_epoch=-1, timestamp=-1)

OF_TOPICS: Final[list[Case]] = [
    case(K.PRODUCE, 12, "WRITE TOPIC", **_produced(PLAIN_BATCH, name=OF), transactional_id=None),
    case(K.PRODUCE, 13, "WRITE TOPIC", **_produced(PLAIN_BATCH, topic_id=OF_ID), transactional_id=None),
    case(K.PRODUCE, 12, "WRITE TRANSACTIONAL_ID, WRITE TOPIC", **IN_ONE),
    case(K.FETCH, 12, "READ TOPIC", **_fetched(topic=OF)),
    case(K.FETCH, 17, "READ TOPIC", **_fetched(topic_id=OF_ID)),
    case(K.LIST_OFFSETS, 10, "DESCRIBE TOPIC", topics=ENDS, replica_id=-1),
    case(K.OFFSET_FOR_LEADER_EPOCH, 4, "DESCRIBE TOPIC", topics=[{"topic": OF, "partitions": [EPOCH]}], replica_id=-1),
    case(K.DELETE_RECORDS, 2, "DELETE TOPIC", topics=named(partition_index=0, offset=0), **WAIT),
    case(K.METADATA, 12, "DESCRIBE TOPIC", topics=[{"name": OF}], allow_auto_topic_creation=False),
    case(K.METADATA, 13, "DESCRIBE TOPIC", way="by id", **BY_ID, allow_auto_topic_creation=False),
    case(K.METADATA, 12, "DESCRIBE TOPIC, CREATE TOPIC", way="makes one", **MADE),
    case(K.METADATA, 12, "DESCRIBE TOPIC, CREATE CLUSTER", way="makes one by right of the cluster", **MADE),
    case(K.DESCRIBE_TOPIC_PARTITIONS, 0, "DESCRIBE TOPIC", topics=[{"name": OF}], response_partition_limit=10, cursor=None),
    case(K.CREATE_TOPICS, 7, "CREATE TOPIC", **NEW_TOPIC, makes=True),
    case(K.CREATE_TOPICS, 7, "CREATE CLUSTER", **NEW_TOPIC, way="by right of the cluster", makes=True),
    case(K.DELETE_TOPICS, 5, "DELETE TOPIC", topic_names=[OF], **WAIT),
    case(K.DELETE_TOPICS, 6, "DELETE CLUSTER", topics=[{"name": OF, "topic_id": bytes(16)}], **WAIT),
    case(K.DELETE_TOPICS, 6, "DELETE TOPIC", **BY_ID, **WAIT, way="by id"),
    case(K.CREATE_PARTITIONS, 3, "ALTER TOPIC", topics=[{"name": OF, "count": 2, "assignments": None}], **WAIT),
    *(case(K.DESCRIBE_CONFIGS, 4, f"DESCRIBE_CONFIGS {kind}", **_described(kind)) for kind in CONFIGURED),
    *(case(K.ALTER_CONFIGS, 2, f"ALTER_CONFIGS {kind}", **_altered(kind)) for kind in CONFIGURED),
    *(
        case(K.INCREMENTAL_ALTER_CONFIGS, 1, f"ALTER_CONFIGS {kind}", **_altered(kind, config_operation=0))
        for kind in CONFIGURED
    ),
    case(K.LIST_CONFIG_RESOURCES, 1, "DESCRIBE_CONFIGS CLUSTER", resource_types=[2]),
]


COMMITTED: Final = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
COMMIT: Final = {
    "group_id": OF,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "topics": [{"name": OF, "partitions": [COMMITTED]}],
}
READ: Final = [{"name": OF, "partition_indexes": [0]}]
ME: Final = {"group_id": OF, "member_id": MEMBER}
SHARING: Final = {**ME, "subscribed_topic_names": [OF]}
CONSUMING: Final = {**SHARING, "member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}
CLASSIC: Final = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}


def _shared(**partition: Any) -> Fields:
    return {**ME, "topics": [{"topic_id": OF_ID, "partitions": [{"partition_index": 0, **partition}]}]}


SHARE_FETCH: Final = {**_shared(acknowledgement_batches=[]), "max_bytes": 1000, "max_records": 10, "batch_size": 10}
DONE: Final = _shared(acknowledgement_batches=[{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}])
ALTER_SHARE_OFFSETS: Final = {
    "group_id": OF,
    "topics": [{"topic_name": OF, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
}
SHARE_OFFSETS: Final = {"groups": [{"group_id": OF, "topics": [{"topic_name": OF, "partitions": [0]}]}]}


def streams(*, makes: bool) -> Fields:
    kept = [{"name": f"{OF}-store-changelog", "partitions": 0, "replication_factor": 0, "topic_configs": []}]
    part = {"subtopology_id": "0", "source_topics": [OF], "state_changelog_topics": kept if makes else []}
    tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    topology = {"epoch": 0, "subtopologies": [part]}
    return {**ME, "rebalance_timeout_ms": 60_000, "process_id": "process", "topology": topology, **tasks}


OF_GROUPS: Final[list[Case]] = [
    *(
        case(K.FIND_COORDINATOR, version, f"DESCRIBE {kind}", **asked, key_type=number, way=kind.lower())
        for version, asked in ((3, {"key": OF}), (6, {"coordinator_keys": [OF]}))
        for number, kind in enumerate(("GROUP", "TRANSACTIONAL_ID"))
    ),
    case(K.JOIN_GROUP, 9, "READ GROUP", group_id=OF, **CLASSIC, protocols=[{"name": "range", "metadata": b""}]),
    case(K.SYNC_GROUP, 5, "READ GROUP", **ME, generation_id=1, protocol_type="consumer", protocol_name="range"),
    case(K.HEARTBEAT, 4, "READ GROUP", **ME, generation_id=1),
    case(K.LEAVE_GROUP, 5, "READ GROUP", group_id=OF, members=[{"member_id": MEMBER}]),
    case(K.OFFSET_COMMIT, 9, "READ GROUP, READ TOPIC", **COMMIT),
    case(
        K.OFFSET_FETCH,
        9,
        "DESCRIBE GROUP, DESCRIBE TOPIC",
        groups=[{"group_id": OF, "member_id": None, "topics": READ}],
    ),
    case(K.OFFSET_FETCH, 7, "DESCRIBE GROUP, DESCRIBE TOPIC", group_id=OF, topics=READ, way="of one group"),
    case(K.OFFSET_DELETE, 0, "DELETE GROUP, READ TOPIC", group_id=OF, topics=named(partition_index=0)),
    case(K.DESCRIBE_GROUPS, 6, "DESCRIBE GROUP", groups=[OF]),
    case(K.LIST_GROUPS, 5, ""),
    case(K.DELETE_GROUPS, 2, "DELETE GROUP", groups_names=[OF]),
    case(K.CONSUMER_GROUP_HEARTBEAT, 1, "READ GROUP, DESCRIBE TOPIC", **CONSUMING),
    case(K.CONSUMER_GROUP_DESCRIBE, 1, "DESCRIBE GROUP", group_ids=[OF]),
    case(K.SHARE_GROUP_HEARTBEAT, 1, "READ GROUP, DESCRIBE TOPIC", **SHARING),
    case(K.SHARE_GROUP_DESCRIBE, 1, "DESCRIBE GROUP", group_ids=[OF]),
    case(K.SHARE_FETCH, 1, "READ GROUP, READ TOPIC", **SHARE_FETCH),
    case(
        K.SHARE_ACKNOWLEDGE,
        1,
        "READ GROUP, READ TOPIC",
        **DONE,
        share_session_epoch=1,
        before=((K.SHARE_FETCH, 1, SHARE_FETCH),),
    ),
    case(K.DESCRIBE_SHARE_GROUP_OFFSETS, 0, "DESCRIBE GROUP, DESCRIBE TOPIC", **SHARE_OFFSETS),
    case(K.ALTER_SHARE_GROUP_OFFSETS, 0, "READ GROUP, READ TOPIC", **ALTER_SHARE_OFFSETS),
    case(K.DELETE_SHARE_GROUP_OFFSETS, 0, "DELETE GROUP, READ TOPIC", group_id=OF, topics=[{"topic_name": OF}]),
    case(K.STREAMS_GROUP_HEARTBEAT, 0, "READ GROUP, DESCRIBE TOPIC", **streams(makes=False)),
    *(
        case(
            K.STREAMS_GROUP_HEARTBEAT,
            0,
            f"READ GROUP, DESCRIBE TOPIC, {right}",
            way=f"{right.lower()} for a changelog",
            **streams(makes=True),
        )
        for right in ("CREATE TOPIC", "CREATE CLUSTER")
    ),
    case(K.STREAMS_GROUP_DESCRIBE, 0, "DESCRIBE GROUP", group_ids=[OF]),
]


ACL: Final = {
    "resource_type": TOPIC,
    "resource_name": "of-nobody",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:nobody",
    "host": "*",
    "operation": Op.READ,
    "permission_type": AclPermission.ALLOW,
}
FILTER: Final = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": "of-nobody",
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": Op.ANY,
    "permission_type": AclPermission.ANY,
}

PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0}
OLD_ADD: Final = {"transactional_id": OF, **PRODUCER, "topics": [{"name": OF, "partitions": [0]}]}
INTRODUCED: Final = {"transactional_id": OF, "transaction_timeout_ms": 60_000}
IN_GROUP: Final = {"transactional_id": OF, "group_id": OF, **PRODUCER}
PARTITION: Final = [{"topic": OF, "partitions": [0]}]
QUOTA: Final = {"key": "producer_byte_rate", "value": 1e6, "remove": False}
QUOTAS: Final = [{"entity": [{"entity_type": "user", "entity_name": "nobody"}], "ops": [QUOTA]}]
FEATURE: Final = {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}
UNASSIGNED: Final = named(partition_index=0, replicas=None)
QUORUM: Final = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
NOBODY: Final = {"entity_type": "user", "match_type": 0, "match": "nobody"}
FORGET: Final = [{"name": "nobody", "mechanism": 1}]

OF_CLUSTER: Final[list[Case]] = [
    case(K.INIT_PRODUCER_ID, 4, "WRITE TRANSACTIONAL_ID", **INTRODUCED),
    *(
        case(K.INIT_PRODUCER_ID, 4, right, transactional_id=None, transaction_timeout_ms=60_000, way=right.lower())
        for right in ("WRITE TOPIC", "IDEMPOTENT_WRITE CLUSTER")
    ),
    case(
        K.ADD_PARTITIONS_TO_TXN,
        3,
        "WRITE TRANSACTIONAL_ID, WRITE TOPIC",
        **{f"v3_and_below_{name}": value for name, value in OLD_ADD.items()},
    ),
    case(K.ADD_OFFSETS_TO_TXN, 4, "WRITE TRANSACTIONAL_ID, READ GROUP", **IN_GROUP),
    case(
        K.TXN_OFFSET_COMMIT,
        4,
        "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
        **IN_GROUP,
        topics=[{"name": OF, "partitions": [COMMITTED]}],
    ),
    case(K.END_TXN, 4, "WRITE TRANSACTIONAL_ID", transactional_id=OF, **PRODUCER, committed=True),
    *(
        case(
            K.WRITE_TXN_MARKERS,
            1,
            right,
            markers=[{**PRODUCER, "transaction_result": False, "topics": READ}],
            way=right.lower(),
        )
        for right in ("ALTER CLUSTER", "CLUSTER_ACTION CLUSTER")
    ),
    case(K.DESCRIBE_PRODUCERS, 0, "READ TOPIC", topics=READ),
    case(K.DESCRIBE_TRANSACTIONS, 0, "DESCRIBE TRANSACTIONAL_ID", transactional_ids=[OF]),
    case(K.LIST_TRANSACTIONS, 1, "", duration_filter=-1),
    case(K.DESCRIBE_ACLS, 3, "DESCRIBE CLUSTER", **FILTER),
    case(K.CREATE_ACLS, 3, "ALTER CLUSTER", creations=[ACL]),
    case(K.DELETE_ACLS, 3, "ALTER CLUSTER", filters=[FILTER]),
    case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "DESCRIBE CLUSTER", users=[{"name": "nobody"}]),
    case(K.ALTER_USER_SCRAM_CREDENTIALS, 0, "ALTER CLUSTER", deletions=FORGET, upsertions=[]),
    case(K.DESCRIBE_CLIENT_QUOTAS, 1, "DESCRIBE_CONFIGS CLUSTER", components=[NOBODY], strict=False),
    case(K.ALTER_CLIENT_QUOTAS, 1, "ALTER_CONFIGS CLUSTER", entries=QUOTAS, validate_only=True),
    case(K.DESCRIBE_LOG_DIRS, 4, "DESCRIBE CLUSTER", topics=PARTITION),
    case(
        K.ALTER_REPLICA_LOG_DIRS, 2, "ALTER CLUSTER", dirs=[{"path": "/nowhere", "topics": [{"name": OF, "partitions": [0]}]}]
    ),
    case(K.ELECT_LEADERS, 2, "ALTER CLUSTER", election_type=0, topic_partitions=PARTITION, **WAIT),
    case(K.ALTER_PARTITION_REASSIGNMENTS, 0, "ALTER CLUSTER", topics=UNASSIGNED, **WAIT),
    case(K.LIST_PARTITION_REASSIGNMENTS, 0, "DESCRIBE CLUSTER", topics=READ, **WAIT),
    case(K.DESCRIBE_QUORUM, 2, "DESCRIBE CLUSTER", topics=QUORUM),
    case(K.UPDATE_FEATURES, 1, "ALTER CLUSTER", feature_updates=[FEATURE], **WAIT, validate_only=True),
    case(K.API_VERSIONS, 3, "", client_software_name="rights", client_software_version="1"),
    case(K.DESCRIBE_CLUSTER, 1, "", endpoint_type=1),
    case(K.GET_TELEMETRY_SUBSCRIPTIONS, 0, "", client_instance_id=UNKNOWN_ID),
    case(K.PUSH_TELEMETRY, 0, "", client_instance_id=UNKNOWN_ID, subscription_id=1, terminating=False),
]
