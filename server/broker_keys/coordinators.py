"""The keys of groups, transactions and staged records."""

from __future__ import annotations

from typing import Final

from ...protocol.limits import (
    INT16_MAX,
    INT32_MAX,
    MAX_PARTITIONS_PER_TOPIC,
    MIB,
)
from .key import BrokerKey, number

COORDINATOR_KEYS: Final[tuple[BrokerKey, ...]] = (
    number(
        "offsets_topic_num_partitions",
        1,
        "Partitions of `__consumer_offsets` when it is made; one groups all commits into one write and sync.",
        low=1,
        high=MAX_PARTITIONS_PER_TOPIC,
    ),
    number(
        "offsets_retention_ms",
        604_800_000,
        "How long a committed offset is kept after its last commit.",
        unit="ms",
        low=1,
        high=2**53,
    ),
    number(
        "offset_metadata_max_bytes",
        4096,
        "Largest note that can be committed with an offset.",
        unit="bytes",
        low=0,
        high=INT16_MAX,
    ),
    number(
        "group_initial_rebalance_delay_ms",
        3_000,
        "How long an empty group waits for more members after the first one, and again after each that comes.",
        unit="ms",
        low=0,
        high=INT32_MAX,
    ),
    number(
        "group_min_session_timeout_ms",
        6_000,
        "Smallest session timeout that a member of a group may ask for.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    ),
    number(
        "group_max_session_timeout_ms",
        1_800_000,
        "Largest session timeout that a member of a group may ask for.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    ),
    number(
        "group_consumer_heartbeat_interval_ms",
        5_000,
        "How often members of groups whose assignments the server makes are to send a heartbeat; at least 5000, unless "
        "`lenient`.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    ),
    number(
        "group_consumer_session_timeout_ms",
        45_000,
        "How long such a member may be silent before the others get what it has.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    ),
    number("group_max_size", 10_000, "Members of a group; further ones are refused.", low=1, high=INT32_MAX),
    number("max_groups", 10_000, "Groups that have or have had members; further ones are refused.", low=1, high=INT32_MAX),
    number(
        "transaction_state_log_num_partitions",
        1,
        "Partitions of `__transaction_state` when it is made.",
        low=1,
        high=MAX_PARTITIONS_PER_TOPIC,
    ),
    number(
        "transaction_max_timeout_ms",
        900_000,
        "Largest timeout that a transactional producer may ask for.",
        unit="ms",
        low=1,
        high=INT32_MAX,
    ),
    number(
        "transactional_id_expiration_ms",
        604_800_000,
        "How long a transactional id is remembered after its last transaction.",
        unit="ms",
        low=1,
        high=2**53,
    ),
    number(
        "stage_retention_ms",
        86_400_000,
        "How long staged records are kept that nobody commits, aborts or adds to; a start of the server begins anew.",
        unit="ms",
        low=1000,
        high=2**53,
    ),
    number(
        "max_staged_bytes",
        2**34,
        "Staged records of all applications together; a file counts for 4 KiB at least. Past it staging is refused.",
        unit="bytes",
        low=MIB,
        high=2**50,
    ),
    number(
        "stage_commit_expiration_ms",
        2_592_000_000,
        "How long it is remembered which version an application has committed last.",
        unit="ms",
        low=1000,
        high=2**53,
    ),
)
