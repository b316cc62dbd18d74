"""The configuration of one log: topic keys, Kafka's topic keys without effect here, and rules for the server's own topics.

Source of names and defaults: Kafka's TopicConfig and LogConfig (4.1); of the names of the broker's keys that topics follow and
that can be set while the server runs: ServerTopicConfigSynonyms, DynamicBrokerConfig (4.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import ErrorCode, InvalidConfigError, InvalidRequestError, RequestError
from ...protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX, MAX_MESSAGE_BYTES, MIB
from ...protocol.types import CompressionType, TimestampType
from .key import ConfigKey, bool_key, choice, field, int_key, keys_of, list_of, named, number, ratio, switch
from .values import DAY_MS, FORMER_POLICIES, DiskFullPolicy, Durability, DurabilityMode, GapPolicy, RecordValidation


def _read_cleanup_policy(text: str) -> tuple[str, ...]:
    policies = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if (text.strip() and not policies) or any(policy not in ("delete", "compact") for policy in policies):
        raise ValueError(f"{text!r} is not a list of delete and compact")
    return policies


def _read_groups(text: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if any(not group or len(group.encode()) > INT16_MAX for group in groups):
        raise ValueError(f"{text!r} is not a list of group names, each of 1 to {INT16_MAX} bytes, separated by commas")
    if len(set(groups)) < len(groups):
        raise ValueError(f"{text!r} names a group twice")
    return groups


_CODECS: Final[dict[str, CompressionType | None]] = {
    "producer": None,
    "uncompressed": CompressionType.NONE,
    **{name: CompressionType[name.upper()] for name in ("gzip", "snappy", "lz4", "zstd")},
}
_TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


@attrs.frozen(kw_only=True)
class LogConfig:
    """Everything a log needs to know about itself. Fields are the topic keys with `_` for `.`."""

    compression_type: CompressionType | None = field(
        choice(
            None,
            _CODECS,
            "Codec of stored batches. `producer` keeps the codec of the producer.",
            broker_name="compression.type",
        )
    )
    compression_gzip_level: int = int_key(
        -1, "Level when the server compresses with gzip.", low=-1, high=9, broker_name="compression.gzip.level"
    )
    compression_lz4_level: int = int_key(
        9, "Level when the server compresses with lz4.", low=1, high=17, broker_name="compression.lz4.level"
    )
    compression_zstd_level: int = int_key(
        3, "Level when the server compresses with zstd.", low=-131072, high=22, broker_name="compression.zstd.level"
    )
    message_timestamp_type: TimestampType = field(
        choice(
            TimestampType.CREATE_TIME,
            _TIMESTAMP_TYPES,
            "Whose clock a record's timestamp is: the producer's or the log's.",
            broker_name="log.message.timestamp.type",
        )
    )
    message_timestamp_before_max_ms: int = int_key(
        INT64_MAX,
        "Largest distance of a record's timestamp before the server's clock.",
        broker_name="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = int_key(
        3_600_000,
        "Largest distance of a record's timestamp after the server's clock.",
        broker_name="log.message.timestamp.after.max.ms",
    )
    max_message_bytes: int = int_key(
        MAX_MESSAGE_BYTES, "Largest record batch, as stored.", high=INT32_MAX, broker_name="message.max.bytes"
    )
    segment_bytes: int = int_key(
        1024 * MIB,
        "A segment is rolled before its log grows past this.",
        low=14,
        high=INT32_MAX,
        broker_name="log.segment.bytes",
        internal=True,
    )
    segment_ms: int = int_key(7 * DAY_MS, "A segment is rolled when it spans more than this.", low=1, broker_name="log.roll.ms")
    segment_jitter_ms: int = int_key(
        0, "Random reduction of segment.ms, so that partitions roll apart.", broker_name="log.roll.jitter.ms"
    )
    segment_index_bytes: int = int_key(
        10 * MIB,
        "Size of a preallocated offset or time index, rounded down to whole entries.",
        low=24,
        high=INT32_MAX,
        broker_name="log.index.size.max.bytes",
    )
    index_interval_bytes: int = int_key(
        4096, "Log bytes between two index entries.", high=INT32_MAX, broker_name="log.index.interval.bytes", internal=True
    )
    errors_deadletterqueue_group_enable: bool = bool_key(
        False, "Permission for share groups to use the topic as their dead-letter queue (KIP-1191)."
    )
    preallocate: bool = bool_key(False, "Give a new segment's log file its full size at once.", broker_name="log.preallocate")
    flush_messages: int = int_key(
        INT64_MAX,
        "Sync once this many records are unsynced.",
        unit="records",
        low=1,
        broker_name="log.flush.interval.messages",
        internal=True,
    )
    flush_ms: int = int_key(
        INT64_MAX, "Sync once records are unsynced for this long.", broker_name="log.flush.interval.ms", internal=True
    )
    file_delete_delay_ms: int = int_key(
        60_000,
        "Time between taking files out of the log and deleting them.",
        broker_name="log.segment.delete.delay.ms",
        internal=True,
    )
    durability: Durability = field(
        ConfigKey(
            type="string",
            default=Durability(DurabilityMode.OS),
            read=Durability.parse,
            doc="Time at which an append is synced to the device. The high watermark follows.",
            valid="fsync, group:<ms>, os",
        )
    )
    record_validation: RecordValidation = field(
        choice(
            RecordValidation.FULL,
            RecordValidation,
            "`full` checks every record of a produced batch. `header` trusts the producer's header, and without "
            "`compression.type` it does not check `max_headers_per_record` either.",
        )
    )
    fetch_check_crcs: bool = bool_key(False, "Check CRC and header of every batch before a reader gets it.")
    gap_policy: GapPolicy = field(
        choice(
            GapPolicy.SKIP,
            GapPolicy,
            "At a gap (data lost to corruption): skip it, or return an error until it is accepted.",
        )
    )
    min_insync_replicas: int = int_key(
        1,
        "One server is one replica: the value is stored, but no append waits for it or is refused.",
        low=1,
        high=INT32_MAX,
        broker_name="min.insync.replicas",
        internal=True,
    )
    disk_full_policy: DiskFullPolicy = field(
        choice(
            DiskFullPolicy.REFUSE,
            DiskFullPolicy,
            "Without space, or at the bounds of a hold: refuse appends, or drop the oldest segments.",
            former=FORMER_POLICIES,
        )
    )
    disk_full_priority: int = int_key(
        0, "Of the topics with `drop-oldest`, those with the lowest are dropped from first.", low=-1000, high=1000
    )
    cleanup_policy: tuple[str, ...] = field(
        list_of(
            _read_cleanup_policy,
            ("delete",),
            "Treatment of old records. Empty: all are kept.",
            "delete, compact, or nothing",
            broker_name="log.cleanup.policy",
        )
    )
    retention_ms: int = int_key(
        7 * DAY_MS, "Age at which a segment may be deleted. -1: never.", low=-1, broker_name="log.retention.ms"
    )
    retention_bytes: int = int_key(
        -1, "Size of a partition above which old segments may be deleted. -1: never.", low=-1, broker_name="log.retention.bytes"
    )
    retention_hold_groups: tuple[str, ...] = field(
        list_of(_read_groups, (), "Retention takes nothing that one of these groups has not committed.", "names of groups")
    )
    retention_hold_max_bytes: int = int_key(
        -1, "Bytes of a partition that such groups hold beyond retention. -1: no limit.", low=-1
    )
    retention_hold_max_ms: int = int_key(
        -1, "Age of a segment up to which such groups hold it beyond retention. -1: no limit.", low=-1
    )
    delete_retention_ms: int = int_key(
        DAY_MS, "Life of a tombstone after compaction.", broker_name="log.cleaner.delete.retention.ms", internal=True
    )
    min_compaction_lag_ms: int = int_key(
        0, "Records younger than this are not compacted.", broker_name="log.cleaner.min.compaction.lag.ms", internal=True
    )
    max_compaction_lag_ms: int = int_key(
        INT64_MAX,
        "Records older than this are compacted.",
        low=1,
        broker_name="log.cleaner.max.compaction.lag.ms",
        internal=True,
    )
    min_cleanable_dirty_ratio: float = field(
        ratio(
            0.5,
            "Share of uncompacted bytes that starts a compaction.",
            broker_name="log.cleaner.min.cleanable.ratio",
            internal=True,
        )
    )

    def overlay(self, overrides: Mapping[str, str], *, lenient: bool = False) -> LogConfig:
        """This configuration with the topic keys of `overrides` (Kafka's names, text values) laid over it.

        Keys that are only kept change nothing; `lenient`: neither do unknown ones, and nobody looks at the values of both.
        Raises InvalidConfigError naming the key, the value and what would be valid.
        """
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            key = TOPIC_KEYS.get(name) if lenient and name != INTERNAL_SEGMENT_BYTES.name else KNOWN_KEYS.get(name)
            if key is None and not lenient:
                raise InvalidConfigError(
                    f"unknown topic configuration key {name!r}. `triolog topics describe` lists the known ones"
                )
            if not isinstance(text, str):
                raise InvalidConfigError(f"topic configuration {name} is a {type(text).__name__}. Values are strings")
            if key is not None:
                value = key.parse("topic", text)
                if name in TOPIC_KEYS:
                    changes[key.attribute] = value
        if INTERNAL_SEGMENT_BYTES.name in overrides:
            changes["segment_bytes"] = INTERNAL_SEGMENT_BYTES.parse("topic", overrides[INTERNAL_SEGMENT_BYTES.name])
        config = attrs.evolve(self, **changes)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms={config.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
            )
        return config

    def as_strings(self) -> dict[str, str]:
        """Every key with its value as text, as `describe_configs` answers."""
        return {key.name: key.write(getattr(self, key.attribute)) for key in TOPIC_KEYS.values()}

    @property
    def max_segment_ms(self) -> int:
        """segment.ms; in a compacted topic at most max.compaction.lag.ms, because the active segment is never compacted."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    def compression_level(self, compression_type: CompressionType) -> int | None:
        """The configured level of a codec, None where it has none."""
        levels = {
            CompressionType.GZIP: self.compression_gzip_level,
            CompressionType.LZ4: self.compression_lz4_level,
            CompressionType.ZSTD: self.compression_zstd_level,
        }
        return levels.get(compression_type)


TOPIC_KEYS: Final = keys_of(LogConfig, ".")


def _read_throttled_replicas(text: str) -> str:
    if text.strip() not in ("", "*") and not all(re.fullmatch(r"\s*\d+:\d+\s*", part) for part in text.split(",")):
        raise ValueError(f"{text!r} is neither * nor a list of partition:node")
    return text


def _read_nothing_but_false(text: str) -> bool:
    if text.lower() != "false":
        raise ValueError(f"{text!r} is not false: tiered storage is not supported")
    return False


_THROTTLED: Final = ConfigKey(
    type="list", default="", read=_read_throttled_replicas, doc="Nothing is replicated.", valid="*, partition:node"
)
_NO_TIERS: Final = "Tiered storage is not supported"

KEPT_KEYS: Final = named(
    {
        "leader.replication.throttled.replicas": _THROTTLED,
        "follower.replication.throttled.replicas": _THROTTLED,
        "unclean.leader.election.enable": switch(
            False, "A partition has one replica, its leader.", broker_name="unclean.leader.election.enable"
        ),
        "remote.storage.enable": ConfigKey(
            type="boolean", default=False, read=_read_nothing_but_false, doc=f"{_NO_TIERS}.", valid="false"
        ),
        "remote.log.copy.disable": switch(False, f"{_NO_TIERS}."),
        "remote.log.delete.on.disable": switch(False, f"{_NO_TIERS}."),
        "local.retention.ms": number(-2, f"{_NO_TIERS}. `retention.ms` applies.", low=-2, broker_name="log.local.retention.ms"),
        "local.retention.bytes": number(
            -2, f"{_NO_TIERS}. `retention.bytes` applies.", low=-2, broker_name="log.local.retention.bytes"
        ),
    }
)
"""Kafka's topic keys that are kept and have no effect."""

FORMER_KEYS: Final = named(
    {
        name: ConfigKey(type=kind, default=None, read=lambda text: text, doc=doc, valid="anything")
        for name, kind, doc in (
            ("message.format.version", "string", "Records are stored in format 2, that of Kafka 0.11 and later."),
            ("message.downconversion.enable", "boolean", "Records are returned as they are stored."),
            ("message.timestamp.difference.max.ms", "long", "message.timestamp.before.max.ms and after.max.ms count."),
        )
    }
)
"""Kept in the same way: keys that Kafka 4 does not have any more and that programs for older brokers still name."""

INTERNAL_SEGMENT_BYTES: Final = attrs.evolve(
    TOPIC_KEYS["segment.bytes"],
    name="internal.segment.bytes",
    doc="Replaces segment.bytes. Kafka has it for tests, with segments smaller than segment.bytes allows.",
    broker_name="",
)

KNOWN_KEYS: Final[dict[str, ConfigKey]] = {
    **TOPIC_KEYS,
    **KEPT_KEYS,
    **FORMER_KEYS,
    INTERNAL_SEGMENT_BYTES.name: INTERNAL_SEGMENT_BYTES,
}


FOLLOWED_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.broker_name: key for key in (*TOPIC_KEYS.values(), *KEPT_KEYS.values()) if key.broker_name
}
"""By name, the broker's keys that can change while it runs: the default of a topic key that the topic does not override."""


def topic_defaults_of(overrides: Mapping[str, str]) -> dict[str, str]:
    """Topic keys and values, of the broker's keys that were set while it runs. Raises InvalidRequestError for others."""
    if fixed := sorted(overrides.keys() - FOLLOWED_KEYS.keys()):
        raise InvalidRequestError(
            f"{', '.join(fixed)}: cannot be set while the server runs. Change its file or its environment and restart it"
        )
    return {FOLLOWED_KEYS[name].name: value for name, value in overrides.items()}


INTERNAL_KEYS: Final = frozenset(key.name for key in KNOWN_KEYS.values() if key.internal)
"""They decide how files are cut, cleaned and synced, and not which records are accepted or kept: committed offsets and
transactions are in these topics."""
MIN_SEGMENT_BYTES: Final = MIB
"""Of such a topic: each segment costs three files. Tests that need smaller ones have `internal.segment.bytes`, as in Kafka."""


def check_internal_change(topic: str, before: Mapping[str, str], after: Mapping[str, str], usual: Mapping[str, str]) -> None:
    """Raises RequestError when a change of a topic of the server's own is not one that may be. `usual`: what such a topic is
    made with; a change back to that, or to the server's default where that says nothing, always may."""
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    refused = [key for key in changed if key not in INTERNAL_KEYS and after.get(key) != usual.get(key)]
    if refused:
        raise RequestError(
            f"topic {topic!r} is the server's own: {', '.join(refused)} cannot be changed, only "
            f"{', '.join(sorted(INTERNAL_KEYS))}",
            ErrorCode.POLICY_VIOLATION,
        )
    segment_bytes = after.get("segment.bytes", "")
    if "segment.bytes" in changed and segment_bytes.isdecimal() and int(segment_bytes) < MIN_SEGMENT_BYTES:
        raise RequestError(
            f"topic {topic!r} is the server's own: its segment.bytes is at least {MIN_SEGMENT_BYTES}",
            ErrorCode.POLICY_VIOLATION,
        )
