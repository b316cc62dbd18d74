"""The table of the server's keys, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from ...protocol.limits import (
    MAX_FRAME_BYTES,
    MAX_HEADERS_PER_RECORD,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_BYTES,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_PRODUCERS_PER_PARTITION,
    MAX_RECORDS_PER_BATCH,
    MIB,
)
from ..broker_config import Address
from ..config import DataPermissions, Durability
from ..open_files import MOST_CONNECTIONS
from .coordinators import COORDINATOR_KEYS
from .key import BrokerKey, number, one_of, paths, switch, text
from .security import SECURITY_KEYS

BROKER_KEYS: Final[dict[str, BrokerKey]] = {
    key.name: key
    for key in (
        BrokerKey(
            name="data_dirs", type="list", read=paths, default="-", doc="Log directories; comma-separated in a variable."
        ),
        BrokerKey(
            name="data_permissions",
            type="string",
            read=one_of(DataPermissions),
            default="owner",
            doc="Who may read what the server makes in its log directories: owner (0600, 0700), group (0640, 0750) or umask.",
        ),
        BrokerKey(
            name="native",
            type="address",
            read=lambda value: Address.parse(text(value)),
            default="127.0.0.1:9095",
            doc="Where the native protocol listens; port 0 lets the system choose.",
        ),
        BrokerKey(
            name="kafka",
            type="address",
            read=lambda value: Address.parse(text(value)),
            default="-",
            doc="Where Kafka's protocol listens; port 0 lets the system choose. Without it nothing does.",
        ),
        BrokerKey(
            name="kafka_advertised",
            type="address",
            read=lambda value: Address.parse(text(value)),
            default="-",
            doc="Where Kafka clients are sent; by default to the address that they connected to.",
        ),
        BrokerKey(
            name="metrics",
            type="address",
            read=lambda value: Address.parse(text(value)),
            default="-",
            doc="Where /metrics, /livez and /readyz are answered over HTTP. Without it nothing is.",
        ),
        BrokerKey(
            name="durability",
            type="string",
            read=lambda value: Durability.parse(text(value)),
            default="fsync",
            doc="Default of the topic key of that name: fsync, group:<ms> or os.",
        ),
        number("node_id", 1, "Identity in meta.properties.", low=0, high=2**31 - 1),
        BrokerKey(name="cluster_id", type="string", read=text, default="random", doc="Identity in meta.properties."),
        number(
            "max_connections",
            MOST_CONNECTIONS,
            "Of all listeners together; further ones wait to be accepted, or take the place of a peer that has said nothing. "
            "The default is lower where the limit of open files is: see Limits.",
            low=1,
            high=100_000,
        ),
        number(
            "max_frame_bytes",
            MAX_FRAME_BYTES,
            "Largest frame of the native protocol, in both directions.",
            unit="bytes",
            low=1024,
            high=2**31 - 1,
        ),
        number(
            "max_in_flight",
            MAX_IN_FLIGHT,
            "Unanswered requests of a connection; past it the server stops reading from it.",
            low=1,
            high=10_000,
        ),
        number(
            "max_in_flight_bytes",
            MAX_IN_FLIGHT_BYTES,
            "Bytes of unanswered requests of a connection.",
            unit="bytes",
            low=1024,
            high=2**40,
        ),
        number(
            "max_broker_in_flight_bytes",
            256 * MIB,
            "Memory for requests of all connections, and as much again for answers that clients have not taken.",
            unit="bytes",
            low=1024,
            high=2**40,
        ),
        number(
            "max_records_per_batch",
            MAX_RECORDS_PER_BATCH,
            "What a producer may put into one batch, with headers twice as many. More is answered MESSAGE_TOO_LARGE, at which "
            "Kafka's own producer divides the batch.",
            low=1000,
            high=2**31 - 1,
        ),
        number(
            "max_headers_per_record",
            MAX_HEADERS_PER_RECORD,
            "More is answered INVALID_RECORD.",
            low=100,
            high=2**31 - 1,
        ),
        number(
            "checkpoint_interval_ms",
            60_000,
            "How often recovery points, high watermarks and log start offsets are written, if they changed.",
            unit="ms",
            low=100,
            high=86_400_000,
        ),
        number(
            "retention_check_interval_ms",
            300_000,
            "How often it is looked which segments retention lets go.",
            unit="ms",
            low=100,
            high=86_400_000,
        ),
        number(
            "producer_id_expiration_ms",
            86_400_000,
            "How long a producer's sequence numbers are remembered after its last append.",
            unit="ms",
            low=1,
            high=2**53,
        ),
        number(
            "max_producers_per_partition",
            MAX_PRODUCERS_PER_PARTITION,
            "Producer ids that a partition remembers at a time; another one is refused until older ones have expired.",
            low=1,
            high=1_000_000,
        ),
        number(
            "disk_reserve_bytes",
            0,
            "Free space of a log directory's device below which `disk.full.policy` acts; 0: never.",
            unit="bytes",
            low=0,
            high=2**50,
        ),
        BrokerKey(
            name="cleaner_enable",
            type="bool",
            read=switch,
            default="true",
            doc="Whether topics with cleanup.policy=compact are compacted.",
        ),
        number(
            "cleaner_dedupe_buffer_bytes",
            128 * MIB,
            "Memory of a compaction for keys, 24 bytes each. What does not fit is compacted in the next round.",
            unit="bytes",
            low=MIB,
            high=2**40,
        ),
        number(
            "cleaner_io_max_bytes_per_second",
            0,
            "Limit on what compaction reads and writes; 0: none.",
            unit="bytes/s",
            low=0,
            high=2**50,
        ),
        number(
            "cleaner_backoff_ms", 15_000, "How long compaction rests when nothing is due.", unit="ms", low=1, high=86_400_000
        ),
        number(
            "scrub_bytes_per_second",
            0,
            "How fast closed segments are read and checked for damage; 0: never.",
            unit="bytes/s",
            low=0,
            high=2**50,
        ),
        number(
            "scrub_interval_ms",
            604_800_000,
            "How long scrubbing rests between two passes over all segments.",
            unit="ms",
            low=1,
            high=2**53,
        ),
        *COORDINATOR_KEYS,
        number(
            "max_lease_ms",
            3_600_000,
            "Longest lease of segment files that a reader may ask for; it can be renewed.",
            unit="ms",
            low=1000,
            high=2**53,
        ),
        BrokerKey(
            name="auto_create_topics_enable",
            type="bool",
            read=switch,
            default="true",
            doc="Whether a Kafka client that asks for a topic that is not there, and lets it be made, gets one.",
        ),
        number(
            "num_partitions",
            1,
            "Partitions of a topic for which a Kafka client names no number.",
            low=1,
            high=MAX_PARTITIONS_PER_TOPIC,
        ),
        BrokerKey(
            name="lenient",
            type="bool",
            read=switch,
            default="false",
            doc="For tests: Kafka clients may name topic keys that do not exist, and more replicas than there are nodes.",
        ),
        *SECURITY_KEYS,
        number(
            "stop_grace_ms",
            5000,
            "How long open connections may finish their requests when the server stops.",
            unit="ms",
            low=0,
            high=600_000,
        ),
        number(
            "stop_timeout_ms",
            30_000,
            "How long enqueued appends and the final flush may take; after that the stop is not clean.",
            unit="ms",
            low=0,
            high=3_600_000,
        ),
    )
}
