"""What answers leave out for who may not see it: requests about things that an administrator has made."""

from __future__ import annotations

from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import ApiKey as K

from .case import OF, ON, Case, Right, Step, case
from .cases import ALTER_SHARE_OFFSETS, BY_ID, COMMIT, CONSUMING, INTRODUCED, NEW_TOPIC, SHARING, WAIT, streams


@attrs.frozen
class Hidden:
    """A request, which is served, and what it shows to who has one right more."""

    case: Case
    sees: Right
    shows: str
    """In the answer as text."""
    made: tuple[Step, ...] = ()
    """What an administrator asks for before, about the same names."""


def _hidden(key: K, version: int, rights: str, sees: str, shows: str, /, *made: Step, **fields: Any) -> Hidden:
    return Hidden(case(key, version, rights, way=f"hiding by {sees.lower()}", **fields), ON[sees], shows, made)


def _of_group(key: K, version: int, shows: str, made: Step, **fields: Any) -> Hidden:
    return _hidden(key, version, "DESCRIBE GROUP", "DESCRIBE TOPIC", shows, made, **fields)


COMMITTED: Final[Step] = (K.OFFSET_COMMIT, 9, COMMIT)
TRANSACTION: Final[Step] = (K.INIT_PRODUCER_ID, 4, INTRODUCED)
JOINED: Final = {"v3_and_below_transactional_id": OF, "v3_and_below_topics": [{"name": OF, "partitions": [0]}]}
ALL: Final = [{"group_id": OF, "topics": None}]
THERE: Final = "topic_name='there'"

HIDDEN: Final = [
    *(_hidden(K.LIST_GROUPS, 5, "", sees, "group_id='there'", COMMITTED) for sees in ("DESCRIBE GROUP", "DESCRIBE CLUSTER")),
    _hidden(
        K.LIST_TRANSACTIONS,
        1,
        "",
        "DESCRIBE TRANSACTIONAL_ID",
        "transactional_id='there'",
        TRANSACTION,
        duration_filter=-1,
    ),
    _of_group(K.OFFSET_FETCH, 9, "name='there'", COMMITTED, groups=[{**ALL[0], "member_id": None}]),
    _of_group(K.DESCRIBE_SHARE_GROUP_OFFSETS, 0, THERE, (K.ALTER_SHARE_GROUP_OFFSETS, 0, ALTER_SHARE_OFFSETS), groups=ALL),
    _of_group(K.CONSUMER_GROUP_DESCRIBE, 1, THERE, (K.CONSUMER_GROUP_HEARTBEAT, 1, CONSUMING), group_ids=[OF]),
    _of_group(K.SHARE_GROUP_DESCRIBE, 1, THERE, (K.SHARE_GROUP_HEARTBEAT, 1, SHARING), group_ids=[OF]),
    _of_group(
        K.STREAMS_GROUP_DESCRIBE,
        0,
        "source_topics=['there']",
        (K.STREAMS_GROUP_HEARTBEAT, 0, streams(makes=False)),
        group_ids=[OF],
    ),
    _hidden(
        K.DESCRIBE_TRANSACTIONS,
        0,
        "DESCRIBE TRANSACTIONAL_ID",
        "DESCRIBE TOPIC",
        "topic='there'",
        TRANSACTION,
        (K.ADD_PARTITIONS_TO_TXN, 3, JOINED),
        transactional_ids=[OF],
    ),
    _hidden(K.CREATE_TOPICS, 7, "CREATE TOPIC", "DESCRIBE_CONFIGS TOPIC", "num_partitions=1", **NEW_TOPIC, makes=True),
    _hidden(K.DELETE_TOPICS, 6, "", "DESCRIBE TOPIC", "name='there'", **BY_ID, **WAIT),
]
