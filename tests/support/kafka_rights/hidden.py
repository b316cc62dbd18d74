"""What answers leave out for who may not see it: requests about things that an administrator has made."""

from __future__ import annotations

from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import ApiKey as K

from tests.support.kafka_rights.cases import JOIN, alter_share_offsets, commit_offsets, of_groups, streams

from .case import MEMBER, ON, Case, Fields, Names, Right, case

Step = tuple[K, int, Fields]


@attrs.frozen
class Hidden:
    """A request, which is served, and what it shows to who has one right more."""

    case: Case
    sees: Right
    shows: str
    """In the answer as text."""
    made: tuple[Step, ...] = ()
    """What an administrator asks for before, about the same names."""


def _hidden(key: K, version: int, rights: str, sees: str, shows: str, fields: Fields, *made: Step, **more: Any) -> Hidden:
    return Hidden(case(key, version, rights, fields, way=f"hiding by {sees.lower()}", **more), ON[sees], shows, made)


def _all_offsets(names: Names) -> dict[str, Any]:
    return {"groups": [{"group_id": names.of, "member_id": None, "topics": None}]}


def _all_share_offsets(names: Names) -> dict[str, Any]:
    return {"groups": [{"group_id": names.of, "topics": None}]}


def _consuming(names: Names) -> dict[str, Any]:
    return {**JOIN, "member_id": MEMBER, "group_id": names.of, "subscribed_topic_names": [names.of]}


def _sharing(names: Names) -> dict[str, Any]:
    return {"group_id": names.of, "member_id": MEMBER, "subscribed_topic_names": [names.of]}


def _new(names: Names) -> dict[str, Any]:
    return {"topics": [{"name": names.of, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 30_000}


HIDDEN: Final = [
    *(
        _hidden(K.LIST_GROUPS, 5, "", sees, "group_id='there'", lambda _: {}, (K.OFFSET_COMMIT, 9, commit_offsets))
        for sees in ("DESCRIBE GROUP", "DESCRIBE CLUSTER")
    ),
    _hidden(
        K.LIST_TRANSACTIONS,
        1,
        "",
        "DESCRIBE TRANSACTIONAL_ID",
        "transactional_id='there'",
        lambda _: {"duration_filter": -1},
        (K.INIT_PRODUCER_ID, 4, lambda names: {"transactional_id": names.of, "transaction_timeout_ms": 60_000}),
    ),
    _hidden(
        K.OFFSET_FETCH,
        9,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        "name='there'",
        _all_offsets,
        (K.OFFSET_COMMIT, 9, commit_offsets),
    ),
    _hidden(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        0,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        "topic_name='there'",
        _all_share_offsets,
        (K.ALTER_SHARE_GROUP_OFFSETS, 0, alter_share_offsets),
    ),
    _hidden(
        K.CONSUMER_GROUP_DESCRIBE,
        1,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        "topic_name='there'",
        of_groups,
        (K.CONSUMER_GROUP_HEARTBEAT, 1, _consuming),
    ),
    _hidden(
        K.SHARE_GROUP_DESCRIBE,
        1,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        "topic_name='there'",
        of_groups,
        (K.SHARE_GROUP_HEARTBEAT, 1, _sharing),
    ),
    _hidden(
        K.STREAMS_GROUP_DESCRIBE,
        0,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        "source_topics=['there']",
        of_groups,
        (K.STREAMS_GROUP_HEARTBEAT, 0, streams(makes=False)),
    ),
    _hidden(
        K.DESCRIBE_TRANSACTIONS,
        0,
        "DESCRIBE TRANSACTIONAL_ID",
        "DESCRIBE TOPIC",
        "topic='there'",
        lambda names: {"transactional_ids": [names.of]},
        (K.INIT_PRODUCER_ID, 4, lambda names: {"transactional_id": names.of, "transaction_timeout_ms": 60_000}),
        (
            K.ADD_PARTITIONS_TO_TXN,
            3,
            lambda names: {
                "v3_and_below_transactional_id": names.of,
                "v3_and_below_topics": [{"name": names.of, "partitions": [0]}],
            },
        ),
    ),
    _hidden(K.CREATE_TOPICS, 7, "CREATE TOPIC", "DESCRIBE_CONFIGS TOPIC", "num_partitions=1", _new, is_about_new=True),
    _hidden(
        K.DELETE_TOPICS,
        6,
        "",
        "DESCRIBE TOPIC",
        "name='there'",
        lambda names: {"topics": [{"name": None, "topic_id": names.topic_id}], "timeout_ms": 30_000},
    ),
]
