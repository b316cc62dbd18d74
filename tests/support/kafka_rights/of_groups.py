"""Groups of all kinds."""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.apis import ApiKey as K

from .case import MEMBER, Case, Fields, Names, case, in_topic

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


CASES: Final[list[Case]] = [
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
