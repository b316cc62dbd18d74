"""The tables of the keys of topics: those that mean something, those that are only kept, those of former Kafkas."""

from __future__ import annotations

import re
from typing import Final

import attrs

from ...protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX, MAX_MESSAGE_BYTES, MIB
from ...protocol.types import CompressionType, TimestampType
from .key import ConfigKey, choice, number, ratio, switch, write_switch
from .values import DAY_MS, FORMER_POLICIES, DiskFullPolicy, Durability, DurabilityMode, GapPolicy, RecordValidation


def _read_cleanup_policy(text: str) -> tuple[str, ...]:
    policies = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if (text.strip() and not policies) or any(policy not in ("delete", "compact") for policy in policies):
        raise ValueError(f"{text!r} is not a list of delete and compact")
    return policies


def _read_groups(text: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if any(not group or len(group.encode()) > INT16_MAX for group in groups):
        raise ValueError(f"{text!r} is not a list of names of groups, each of 1 to {INT16_MAX} bytes, with commas between them")
    if len(set(groups)) < len(groups):
        raise ValueError(f"{text!r} names a group twice")
    return groups


_PRODUCER = "producer"
_CODECS: Final[dict[str, CompressionType | None]] = {
    _PRODUCER: None,
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}

TOPIC_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (
        choice("compression.type", None, _CODECS, "Codec of stored batches; `producer` keeps what was sent."),
        number("compression.gzip.level", -1, "Level when the server compresses with gzip.", low=-1, high=9),
        number("compression.lz4.level", 9, "Level when the server compresses with lz4.", low=1, high=17),
        number("compression.zstd.level", 3, "Level when the server compresses with zstd.", low=-131072, high=22),
        choice(
            "message.timestamp.type",
            TimestampType.CREATE_TIME,
            _TIMESTAMP_TYPES,
            "Whose clock a record's timestamp is: the producer's or the log's.",
        ),
        number(
            "message.timestamp.before.max.ms",
            INT64_MAX,
            "How far before the server's clock a record's timestamp may lie.",
            unit="ms",
        ),
        number(
            "message.timestamp.after.max.ms",
            3_600_000,
            "How far after the server's clock a record's timestamp may lie.",
            unit="ms",
        ),
        number("max.message.bytes", MAX_MESSAGE_BYTES, "Largest record batch, as stored.", unit="bytes", high=INT32_MAX),
        number(
            "segment.bytes",
            1024 * MIB,
            "A segment is rolled before its log grows past this.",
            unit="bytes",
            low=14,
            high=INT32_MAX,
        ),
        number("segment.ms", 7 * DAY_MS, "A segment is rolled when it spans more than this.", unit="ms", low=1),
        number("segment.jitter.ms", 0, "Random reduction of segment.ms, so that partitions roll apart.", unit="ms"),
        number(
            "segment.index.bytes",
            10 * MIB,
            "Size of a preallocated offset or time index, rounded down to whole entries.",
            unit="bytes",
            low=24,
            high=INT32_MAX,
        ),
        number("index.interval.bytes", 4096, "Log bytes between two index entries.", unit="bytes", high=INT32_MAX),
        switch("preallocate", False, "Give a new segment's log file its full size at once."),
        number("flush.messages", INT64_MAX, "Sync once this many records are unsynced.", unit="records", low=1),
        number("flush.ms", INT64_MAX, "Sync once records are unsynced for this long.", unit="ms"),
        number("file.delete.delay.ms", 60_000, "Time between taking files out of the log and deleting them.", unit="ms"),
        ConfigKey(
            name="durability",
            type="string",
            default=Durability(DurabilityMode.OS),
            read=Durability.parse,
            write=str,
            doc="When an append is forced to the device; the high watermark follows.",
            valid="fsync, group:<ms>, os",
        ),
        choice(
            "record.validation",
            RecordValidation.FULL,
            {mode.value: mode for mode in RecordValidation},
            "`full` walks every record of a produced batch; `header` trusts the producer's header, and without "
            "`compression.type` does not look for `max_headers_per_record` either.",
        ),
        switch("fetch.check.crcs", False, "Check CRC and header of every batch before it is answered to a reader."),
        choice(
            "gap.policy",
            GapPolicy.SKIP,
            {policy.value: policy for policy in GapPolicy},
            "At offsets that damage took out of the log: go on behind them, or answer an error until they are accepted.",
        ),
        number(
            "min.insync.replicas",
            1,
            "One server is one replica: kept for those who ask, no append waits for it or is refused.",
            low=1,
            high=INT32_MAX,
        ),
        choice(
            "disk.full.policy",
            DiskFullPolicy.REFUSE,
            {policy.value: policy for policy in DiskFullPolicy},
            "Where there is no room, or a hold is at its bounds: refuse appends, or drop the oldest segments.",
            former=FORMER_POLICIES,
        ),
        number(
            "disk.full.priority",
            0,
            "Of the topics with `drop-oldest`, those with the lowest are dropped from first.",
            low=-1000,
            high=1000,
        ),
        ConfigKey(
            name="cleanup.policy",
            type="list",
            default=("delete",),
            read=_read_cleanup_policy,
            write=",".join,
            doc="What happens to old records; empty: all are kept.",
            valid="delete, compact, or nothing",
        ),
        number("retention.ms", 7 * DAY_MS, "Age at which a segment may go; -1: never.", unit="ms", low=-1),
        number(
            "retention.bytes",
            -1,
            "Size of a partition above which old segments may go; -1: never.",
            unit="bytes",
            low=-1,
        ),
        ConfigKey(
            name="retention.hold.groups",
            type="list",
            default=(),
            read=_read_groups,
            write=",".join,
            doc="Retention takes nothing that one of these groups has not committed.",
            valid="names of groups",
        ),
        number(
            "retention.hold.max.bytes",
            -1,
            "Up to how much such groups hold of a partition beyond retention; -1: no limit.",
            unit="bytes",
            low=-1,
        ),
        number(
            "retention.hold.max.ms",
            -1,
            "Up to which age of a segment such groups hold it beyond retention; -1: no limit.",
            unit="ms",
            low=-1,
        ),
        number("delete.retention.ms", DAY_MS, "Life of a tombstone after compaction.", unit="ms"),
        number("min.compaction.lag.ms", 0, "Records younger than this are not compacted.", unit="ms"),
        number(
            "max.compaction.lag.ms",
            INT64_MAX,
            "Records older than this are compacted.",
            unit="ms",
            low=1,
        ),
        ratio("min.cleanable.dirty.ratio", 0.5, "Share of uncompacted bytes that starts a compaction."),
    )
}


def _read_throttled_replicas(text: str) -> str:
    if text.strip() not in ("", "*") and not all(re.fullmatch(r"\s*\d+:\d+\s*", part) for part in text.split(",")):
        raise ValueError(f"{text!r} is neither * nor a list of partition:node")
    return text


def _read_nothing_but_false(text: str) -> bool:
    if text.lower() != "false":
        raise ValueError(f"{text!r} is not false: there is no tiered storage here")
    return False


def _read_as_it_is(text: str) -> str:
    return text


def _throttled(side: str) -> ConfigKey:
    return ConfigKey(
        name=f"{side}.replication.throttled.replicas",
        type="list",
        default="",
        read=_read_throttled_replicas,
        write=str,
        doc="Nothing is replicated.",
        valid="*, partition:node",
    )


KEPT_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (
        _throttled("leader"),
        _throttled("follower"),
        switch("unclean.leader.election.enable", False, "A partition has one replica, its leader."),
        ConfigKey(
            name="remote.storage.enable",
            type="boolean",
            default=False,
            read=_read_nothing_but_false,
            write=write_switch,
            doc="There is no tiered storage.",
            valid="false",
        ),
        switch("remote.log.copy.disable", False, "There is no tiered storage."),
        switch("remote.log.delete.on.disable", False, "There is no tiered storage."),
        number("local.retention.ms", -2, "There is no tiered storage; retention.ms counts.", unit="ms", low=-2),
        number("local.retention.bytes", -2, "There is no tiered storage; retention.bytes counts.", unit="bytes", low=-2),
    )
}
"""Kafka's topic keys that are kept and have no effect."""

FORMER_KEYS: Final[dict[str, ConfigKey]] = {
    name: ConfigKey(name=name, type=kind, default=None, read=_read_as_it_is, write=str, doc=doc, valid="anything")
    for name, kind, doc in (
        ("message.format.version", "string", "Records are stored in format 2, that of Kafka 0.11 and later."),
        ("message.downconversion.enable", "boolean", "Records are answered as they are stored."),
        ("message.timestamp.difference.max.ms", "long", "message.timestamp.before.max.ms and after.max.ms count."),
    )
}
"""Kept in the same way: keys that Kafka 4 does not have any more and that programs for older brokers still name."""

INTERNAL_SEGMENT_BYTES: Final = attrs.evolve(
    TOPIC_KEYS["segment.bytes"],
    name="internal.segment.bytes",
    doc="Counts in place of segment.bytes; Kafka has it for tests, whose segments are smaller than segment.bytes may be there.",
)

KNOWN_KEYS: Final[dict[str, ConfigKey]] = {
    **TOPIC_KEYS,
    **KEPT_KEYS,
    **FORMER_KEYS,
    INTERNAL_SEGMENT_BYTES.name: INTERNAL_SEGMENT_BYTES,
}
