"""Every API of Kafka's protocol that is served: key, versions, messages.

| tier | meaning |
|---|---|
| A | produce, consume, groups, topics: what every client needs |
| B | transactions, authentication, groups whose assignments the broker makes |
| C | views and administration |

Versions are those that are advertised. The lowest are Kafka 4's (KIP-896) or lower where clients of today still send them.
Source: Kafka's message schemas, `ApiKeys`.
"""

from __future__ import annotations

import enum
import functools
import importlib
from typing import Any, Final

import attrs

from ..limits import INT16_MAX


class ApiKey(enum.IntEnum):
    """Kafka's numbers of its APIs, as far as they are served here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@attrs.frozen(slots=False)  # cached properties
class Api:
    """One API. `first_flexible` is the first version with compact lengths and tagged fields (KIP-482)."""

    key: ApiKey
    name: str
    module: str
    """Of `messages`."""
    lowest: int
    highest: int
    first_flexible: int = INT16_MAX
    lowest_read: int = 0
    """Below it a version is advertised and not served."""

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible

    def load(self) -> None:
        """Import the messages now and not with the first request."""
        importlib.import_module(f".messages.{self.module}", __package__)

    @functools.cached_property
    def request(self) -> type[Any]:
        """The class of its requests."""
        return self._message("Request")

    @functools.cached_property
    def response(self) -> type[Any]:
        """The class of its answers."""
        return self._message("Response")

    def _message(self, side: str) -> type[Any]:
        module = importlib.import_module(f".messages.{self.module}", __package__)
        message: type[Any] = getattr(module, self.name + side)
        return message


def _api(key: ApiKey, module: str, lowest: int, highest: int, first_flexible: int = INT16_MAX, lowest_read: int = 0) -> Api:
    name = "".join(word.capitalize() for word in key.name.split("_"))
    return Api(key, name, module, lowest, highest, first_flexible, max(lowest, lowest_read))


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        # Tier A. Produce is advertised from version 0 on: librdkafka looks there whether a broker knows gzip, snappy and lz4.
        _api(ApiKey.PRODUCE, "produce", 0, 13, 9, lowest_read=3),
        _api(ApiKey.FETCH, "fetch", 4, 18, 12),
        _api(ApiKey.LIST_OFFSETS, "list_offsets", 0, 10, 6),
        _api(ApiKey.METADATA, "metadata", 0, 13, 9),
        _api(ApiKey.API_VERSIONS, "api_versions", 0, 4, 3),
        _api(ApiKey.FIND_COORDINATOR, "find_coordinator", 0, 6, 3),
        _api(ApiKey.INIT_PRODUCER_ID, "transactions", 0, 5, 2),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "list_offsets", 2, 4, 4),
        _api(ApiKey.OFFSET_COMMIT, "offsets", 2, 10, 8),
        _api(ApiKey.OFFSET_FETCH, "offsets", 1, 10, 6),
        _api(ApiKey.JOIN_GROUP, "groups", 0, 9, 6),
        _api(ApiKey.HEARTBEAT, "groups", 0, 4, 4),
        _api(ApiKey.LEAVE_GROUP, "groups", 0, 5, 4),
        _api(ApiKey.SYNC_GROUP, "groups", 0, 5, 4),
        _api(ApiKey.DESCRIBE_GROUPS, "groups", 0, 6, 5),
        _api(ApiKey.LIST_GROUPS, "groups", 0, 5, 3),
        _api(ApiKey.DELETE_GROUPS, "groups", 0, 2, 2),
        _api(ApiKey.OFFSET_DELETE, "offsets", 0, 0),
        _api(ApiKey.CREATE_TOPICS, "topics", 2, 7, 5),
        _api(ApiKey.DELETE_TOPICS, "topics", 1, 6, 4),
        _api(ApiKey.DELETE_RECORDS, "topics", 0, 2, 2),
        _api(ApiKey.CREATE_PARTITIONS, "topics", 0, 3, 2),
        _api(ApiKey.DESCRIBE_CONFIGS, "configs", 1, 4, 4),
        _api(ApiKey.ALTER_CONFIGS, "configs", 0, 2, 2),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "configs", 0, 1, 1),
        _api(ApiKey.DESCRIBE_CLUSTER, "cluster", 0, 2, 0),
        # Tier B.
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, "transactions", 0, 3, 3),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, "transactions", 0, 4, 3),
        _api(ApiKey.END_TXN, "transactions", 0, 5, 3),
        _api(ApiKey.TXN_OFFSET_COMMIT, "transactions", 0, 5, 3),
        _api(ApiKey.WRITE_TXN_MARKERS, "transactions", 1, 2, 1),
        _api(ApiKey.DESCRIBE_PRODUCERS, "transactions", 0, 0, 0),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, "transactions", 0, 0, 0),
        _api(ApiKey.LIST_TRANSACTIONS, "transactions", 0, 2, 0),
        _api(ApiKey.SASL_HANDSHAKE, "sasl", 0, 1),
        _api(ApiKey.SASL_AUTHENTICATE, "sasl", 0, 2, 2),
        _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "sasl", 0, 0, 0),
        _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "sasl", 0, 0, 0),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "consumer_groups", 0, 1, 0),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, "consumer_groups", 0, 1, 0),
        # Tier C.
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "metadata", 0, 0, 0),
        _api(ApiKey.DESCRIBE_LOG_DIRS, "log_dirs", 1, 4, 2),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, "log_dirs", 1, 2, 2),
        _api(ApiKey.ELECT_LEADERS, "cluster", 0, 2, 2),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "cluster", 0, 1, 0),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "cluster", 0, 0, 0),
        _api(ApiKey.DESCRIBE_ACLS, "acls", 1, 3, 2),
        _api(ApiKey.CREATE_ACLS, "acls", 1, 3, 2),
        _api(ApiKey.DELETE_ACLS, "acls", 1, 3, 2),
        _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "quotas", 0, 1, 1),
        _api(ApiKey.ALTER_CLIENT_QUOTAS, "quotas", 0, 1, 1),
        _api(ApiKey.UPDATE_FEATURES, "cluster", 0, 2, 0),
        _api(ApiKey.LIST_CONFIG_RESOURCES, "configs", 0, 1, 0),
    )
}
