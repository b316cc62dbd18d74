"""Which step of the worlds makes which call: all calls of both protocols, and all commands for files and administration.

A step counts for both protocols if their calls share one function of the broker, whichever protocol the step speaks. A call
without a step has a reason instead. `test_operations.py` compares these tables with the lists in the product.
"""

from __future__ import annotations

from typing import Final

from triolog.protocol.kafka.apis import ApiKey

StepKind = tuple[str, str]
"""Who (without a number) and what."""
Entry = StepKind | str
"""The step, or the reason why there is none."""

READS: Final = "It changes nothing, and no record depends on its answer."
LOGINS: Final = "The listeners of the worlds have no logins: `tests/server/access` and `tests/server/listeners` have them."
ONE_NODE: Final = "The worlds have one node, so the answer is always the same."
SHARE_OFFSETS: Final = (
    "The checker of deliveries takes a share group to begin at the earliest offset: `tests/server/sharing` changes offsets."
)
TELEMETRY: Final = "Metrics of clients are kept in memory only."

TOPIC: Final = ("owner", "again")
USERS: Final = ("registrar", "user")
QUOTAS: Final = ("registrar", "quota")
CLASSIC: Final = ("classic", "live")
CONSUMER: Final = ("consumers", "live")
SHARE: Final = ("sharers", "live")
STREAMS: Final = ("streams", "live")
DISBAND: Final = ("group", "disband")
MIX: Final = ("mixer", "mix")
HANG: Final = ("hanger", "hang")
BATCH: Final = ("driver", "batch")

KAFKA: Final[dict[ApiKey, Entry]] = {
    ApiKey.PRODUCE: ("kafka", "send"),
    ApiKey.FETCH: ("reader", "poll"),
    ApiKey.LIST_OFFSETS: ("looker", "look"),
    ApiKey.METADATA: ("scribe", "write"),
    ApiKey.API_VERSIONS: READS,
    ApiKey.FIND_COORDINATOR: ONE_NODE,
    ApiKey.INIT_PRODUCER_ID: ("kafka", "send"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: READS,
    ApiKey.OFFSET_COMMIT: MIX,
    ApiKey.OFFSET_FETCH: MIX,
    ApiKey.JOIN_GROUP: CLASSIC,
    ApiKey.HEARTBEAT: CLASSIC,
    ApiKey.LEAVE_GROUP: CLASSIC,
    ApiKey.SYNC_GROUP: CLASSIC,
    ApiKey.DESCRIBE_GROUPS: CLASSIC,
    ApiKey.LIST_GROUPS: READS,
    ApiKey.DELETE_GROUPS: DISBAND,
    ApiKey.OFFSET_DELETE: ("group", "forget"),
    ApiKey.CREATE_TOPICS: TOPIC,
    ApiKey.DELETE_TOPICS: TOPIC,
    ApiKey.DELETE_RECORDS: ("admin", "trim"),
    ApiKey.CREATE_PARTITIONS: ("owner", "grow"),
    ApiKey.DESCRIBE_CONFIGS: READS,
    ApiKey.ALTER_CONFIGS: ("owner", "configure"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("owner", "configure"),
    ApiKey.DESCRIBE_CLUSTER: ONE_NODE,
    ApiKey.ADD_PARTITIONS_TO_TXN: ("zombie", "transaction"),
    ApiKey.ADD_OFFSETS_TO_TXN: MIX,
    ApiKey.END_TXN: ("zombie", "transaction"),
    ApiKey.TXN_OFFSET_COMMIT: MIX,
    ApiKey.WRITE_TXN_MARKERS: HANG,
    ApiKey.DESCRIBE_PRODUCERS: HANG,
    ApiKey.DESCRIBE_TRANSACTIONS: READS,
    ApiKey.LIST_TRANSACTIONS: READS,
    ApiKey.SASL_HANDSHAKE: LOGINS,
    ApiKey.SASL_AUTHENTICATE: LOGINS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: USERS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: USERS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: CONSUMER,
    ApiKey.CONSUMER_GROUP_DESCRIBE: CONSUMER,
    ApiKey.SHARE_GROUP_HEARTBEAT: SHARE,
    ApiKey.SHARE_GROUP_DESCRIBE: READS,
    ApiKey.SHARE_FETCH: SHARE,
    ApiKey.SHARE_ACKNOWLEDGE: SHARE,
    ApiKey.STREAMS_GROUP_HEARTBEAT: STREAMS,
    ApiKey.STREAMS_GROUP_DESCRIBE: STREAMS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: READS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: SHARE_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: SHARE_OFFSETS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: READS,
    ApiKey.DESCRIBE_LOG_DIRS: READS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: "The server moves no partition while it runs: it refuses.",
    ApiKey.ELECT_LEADERS: ONE_NODE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ONE_NODE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ONE_NODE,
    ApiKey.DESCRIBE_ACLS: LOGINS,
    ApiKey.CREATE_ACLS: LOGINS,
    ApiKey.DELETE_ACLS: LOGINS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS: QUOTAS,
    ApiKey.DESCRIBE_QUORUM: ONE_NODE,
    ApiKey.UPDATE_FEATURES: ONE_NODE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: TELEMETRY,
    ApiKey.PUSH_TELEMETRY: TELEMETRY,
    ApiKey.LIST_CONFIG_RESOURCES: READS,
}

NATIVE: Final[dict[str, Entry]] = {
    "hello": ("native", "send"),
    "authenticate": LOGINS,
    "produce": ("bundle", "send"),
    "fetch": "It reads as Kafka's Fetch does, which the readers of the worlds send.",
    "offsets_for_times": ("looker", "look"),
    "explain": READS,
    "metadata": ("native", "send"),
    "create_topics": TOPIC,
    "delete_topics": TOPIC,
    "describe_configs": READS,
    "create_partitions": ("owner", "grow"),
    "alter_configs": ("owner", "configure"),
    "delete_records": ("admin", "trim"),
    "init_producer": ("mover", "transaction"),
    "end_transaction": ("mover", "transaction"),
    "list_transactions": READS,
    "describe_transactions": READS,
    "describe_producers": HANG,
    "abort_transaction": ("admin", "abort"),
    "abort_hanging_transactions": HANG,
    "commit_offsets": ("group", "commit"),
    "fetch_offsets": ("group", "resume"),
    "list_groups": READS,
    "describe_groups": READS,
    "delete_groups": DISBAND,
    "alter_share_group_offsets": SHARE_OFFSETS,
    "describe_quotas": QUOTAS,
    "alter_quotas": QUOTAS,
    "describe_users": USERS,
    "alter_users": USERS,
    "describe_acls": LOGINS,
    "create_acls": LOGINS,
    "delete_acls": LOGINS,
    "list_gaps": ("admin", "accept"),
    "accept_gaps": ("admin", "accept"),
    "describe_segments": READS,
    "split_points": READS,
    "stage": BATCH,
    "commit_stage": BATCH,
    "abort_stage": BATCH,
    "last_commit": BATCH,
    "lease_segments": "A lease makes links, which need a real file system: `tests/server/logs` has it.",
    "list_connections": READS,
    "statistics": READS,
}

MIRRORS: Final = "Two servers have worlds of their own: `tests/simulation/pairs`."

COMMANDS: Final[dict[str, Entry]] = {
    "status": READS,
    "top": READS,
    "console": READS,
    "groups": DISBAND,
    "transactions": ("admin", "abort"),
    "connections": READS,
    "users": USERS,
    "acls": LOGINS,
    "quotas": QUOTAS,
    "config": READS,
    "gaps": ("admin", "accept"),
    "mirror": MIRRORS,
    "promote": MIRRORS,
    "backup": ("operator", "restore"),
    "du": READS,
    "explain": READS,
    "dump": READS,
    "verify": ("operator", "verify"),
    "repair": ("operator", "repair"),
    "reindex": ("operator", "reindex"),
    "compact": ("operator", "compact"),
    "demote": MIRRORS,
    "doctor": READS,
    "export": READS,
    "export-kafka": "It moves a directory away from this server: `tests/server/offline/test_export_kafka.py` opens the result.",
}
"""The commands of the sections Administration and Files of `triolog --help`."""
