"""Topic configuration: Kafka's keys, their types, defaults and ranges, and ours beside them.

A `LogConfig` is frozen; topic overrides are laid over the server's defaults with `LogConfig.overlay`. Unknown keys and
values outside their range are refused by name. Keys of Kafka's that have no meaning on one node without tiered storage are
checked and kept, without effect. `TOPIC_KEYS` and `KEPT_KEYS` are also what the tables in docs/operations.md are made from.
Source of names and defaults: Kafka's TopicConfig and LogConfig (4.1). `broker_keys` holds the server's own keys.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import attrs

from ..protocol.errors import InvalidConfigError
from ..protocol.limits import INT32_MAX, INT64_MAX, MAX_MESSAGE_BYTES, MIB
from ..protocol.types import CompressionType, TimestampType

_DAY_MS: Final = 86_400_000


class DurabilityMode(enum.Enum):
    FSYNC = "fsync"
    GROUP = "group"
    OS = "os"


@attrs.frozen
class Durability:
    """When appended bytes are forced to the device: `fsync`, `group:<ms>` or `os`.

    `interval_ms` is the oldest age that unsynced bytes may reach; it is 0 except for `group`.
    """

    mode: DurabilityMode
    interval_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `fsync`, `os` or `group:<ms>` (1 ms to one hour); ValueError says what was found."""
        name, _, argument = text.partition(":")
        if name == "group":
            if not argument.isascii() or not argument.isdigit() or not 1 <= int(argument) <= 3_600_000:
                raise ValueError(f"durability {text!r}: write group:<ms> with 1 to 3600000 ms, for example group:100")
            return cls(DurabilityMode.GROUP, int(argument))
        if text in ("fsync", "os"):
            return cls(DurabilityMode(text))
        raise ValueError(f"durability {text!r} is none of fsync, group:<ms>, os")

    def __str__(self) -> str:
        return f"group:{self.interval_ms}" if self.mode is DurabilityMode.GROUP else self.mode.value


class RecordValidation(enum.Enum):
    FULL = "full"
    HEADER = "header"


class DiskFullPolicy(enum.Enum):
    """What a topic does when its device has less left than the server's `disk_reserve_bytes`."""

    REFUSE = "refuse"
    EXPIRE_OLDEST = "expire-oldest"


@attrs.frozen(kw_only=True)
class ConfigKey:
    """One topic key: how its text is read and written, and what people are told about it."""

    name: str
    type: str
    default: Any
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    doc: str
    unit: str = ""
    valid: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def _number(name: str, default: int, doc: str, *, unit: str = "", low: int = 0, high: int = INT64_MAX) -> ConfigKey:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"{value} is not in {low}..{high}")
        return value

    valid = f"{low}.." + ("" if high == INT64_MAX else str(high))
    kind = "int" if high <= INT32_MAX else "long"
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        read=read,
        write=str,
        doc=doc,
        unit=unit,
        valid=valid,
    )


def _ratio(name: str, default: float, doc: str) -> ConfigKey:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{value} is not in 0..1")
        return value

    return ConfigKey(name=name, type="double", default=default, read=read, write=str, doc=doc, valid="0..1")


def _switch(name: str, default: bool, doc: str) -> ConfigKey:
    def read(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() == "true"

    return ConfigKey(
        name=name,
        type="boolean",
        default=default,
        read=read,
        write=lambda value: str(value).lower(),
        doc=doc,
        valid="true, false",
    )


def _choice(name: str, default: Any, choices: Mapping[str, Any], doc: str) -> ConfigKey:
    names = {value: text for text, value in choices.items()}

    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return choices[text]

    return ConfigKey(
        name=name, type="string", default=default, read=read, write=names.__getitem__, doc=doc, valid=", ".join(choices)
    )


def _read_cleanup_policy(text: str) -> tuple[str, ...]:
    policies = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not policies or any(policy not in ("delete", "compact") for policy in policies):
        raise ValueError(f"{text!r} is not a list of delete and compact")
    return policies


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
        _choice("compression.type", None, _CODECS, "Codec of stored batches; `producer` keeps what was sent."),
        _number("compression.gzip.level", -1, "Level when the server compresses with gzip.", low=-1, high=9),
        _number("compression.lz4.level", 9, "Level when the server compresses with lz4.", low=1, high=17),
        _number("compression.zstd.level", 3, "Level when the server compresses with zstd.", low=-131072, high=22),
        _choice(
            "message.timestamp.type",
            TimestampType.CREATE_TIME,
            _TIMESTAMP_TYPES,
            "Whose clock a record's timestamp is: the producer's or the log's.",
        ),
        _number(
            "message.timestamp.before.max.ms",
            INT64_MAX,
            "How far before the server's clock a record's timestamp may lie.",
            unit="ms",
        ),
        _number(
            "message.timestamp.after.max.ms",
            3_600_000,
            "How far after the server's clock a record's timestamp may lie.",
            unit="ms",
        ),
        _number("max.message.bytes", MAX_MESSAGE_BYTES, "Largest record batch, as stored.", unit="bytes", high=INT32_MAX),
        _number(
            "segment.bytes",
            1024 * MIB,
            "A segment is rolled before its log grows past this.",
            unit="bytes",
            low=14,
            high=INT32_MAX,
        ),
        _number("segment.ms", 7 * _DAY_MS, "A segment is rolled when it spans more than this.", unit="ms", low=1),
        _number("segment.jitter.ms", 0, "Random reduction of segment.ms, so that partitions roll apart.", unit="ms"),
        _number(
            "segment.index.bytes",
            10 * MIB,
            "Size of a preallocated offset or time index, rounded down to whole entries.",
            unit="bytes",
            low=24,
            high=INT32_MAX,
        ),
        _number("index.interval.bytes", 4096, "Log bytes between two index entries.", unit="bytes", high=INT32_MAX),
        _switch("preallocate", False, "Give a new segment's log file its full size at once."),
        _number("flush.messages", INT64_MAX, "Sync once this many records are unsynced.", unit="records", low=1),
        _number("flush.ms", INT64_MAX, "Sync once records are unsynced for this long.", unit="ms"),
        _number("file.delete.delay.ms", 60_000, "Time between taking files out of the log and deleting them.", unit="ms"),
        ConfigKey(
            name="durability",
            type="string",
            default=Durability(DurabilityMode.OS),
            read=Durability.parse,
            write=str,
            doc="When an append is forced to the device; the high watermark follows.",
            valid="fsync, group:<ms>, os",
        ),
        _choice(
            "record.validation",
            RecordValidation.FULL,
            {mode.value: mode for mode in RecordValidation},
            "`full` walks every record of a produced batch; `header` trusts the producer's header.",
        ),
        _switch("fetch.check.crcs", False, "Check CRC and header of every batch before it is answered to a reader."),
        _number(
            "min.insync.replicas",
            1,
            "One server is one replica: kept for those who ask, no append waits for it or is refused.",
            low=1,
            high=INT32_MAX,
        ),
        _choice(
            "disk.full.policy",
            DiskFullPolicy.REFUSE,
            {policy.value: policy for policy in DiskFullPolicy},
            "Below `disk_reserve_bytes`: refuse appends, or give up the oldest inactive segments.",
        ),
        ConfigKey(
            name="cleanup.policy",
            type="list",
            default=("delete",),
            read=_read_cleanup_policy,
            write=",".join,
            doc="What happens to old records.",
            valid="delete, compact",
        ),
        _number("retention.ms", 7 * _DAY_MS, "Age at which a segment may go; -1: never.", unit="ms", low=-1),
        _number(
            "retention.bytes",
            -1,
            "Size of a partition above which old segments may go; -1: never.",
            unit="bytes",
            low=-1,
        ),
        _number("delete.retention.ms", _DAY_MS, "Life of a tombstone after compaction.", unit="ms"),
        _number("min.compaction.lag.ms", 0, "Records younger than this are not compacted.", unit="ms"),
        _number(
            "max.compaction.lag.ms",
            INT64_MAX,
            "Records older than this are compacted.",
            unit="ms",
            low=1,
        ),
        _ratio("min.cleanable.dirty.ratio", 0.5, "Share of uncompacted bytes that starts a compaction."),
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
        _switch("unclean.leader.election.enable", False, "A partition has one replica, its leader."),
        ConfigKey(
            name="remote.storage.enable",
            type="boolean",
            default=False,
            read=_read_nothing_but_false,
            write=lambda value: str(value).lower(),
            doc="There is no tiered storage.",
            valid="false",
        ),
        _switch("remote.log.copy.disable", False, "There is no tiered storage."),
        _switch("remote.log.delete.on.disable", False, "There is no tiered storage."),
        _number("local.retention.ms", -2, "There is no tiered storage; retention.ms counts.", unit="ms", low=-2),
        _number("local.retention.bytes", -2, "There is no tiered storage; retention.bytes counts.", unit="bytes", low=-2),
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

KNOWN_KEYS: Final[dict[str, ConfigKey]] = {**TOPIC_KEYS, **KEPT_KEYS, **FORMER_KEYS}


def _read_value(key: ConfigKey, text: str) -> Any:
    try:
        return key.read(text)
    except ValueError as exc:
        raise InvalidConfigError(f"topic configuration {key.name}={text!r}: {exc}") from exc


@attrs.frozen(kw_only=True)
class LogConfig:
    """Everything a log needs to know about itself. Fields are the topic keys with `_` for `.`."""

    compression_type: CompressionType | None = None
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = MAX_MESSAGE_BYTES
    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    durability: Durability = Durability(DurabilityMode.OS)
    record_validation: RecordValidation = RecordValidation.FULL
    fetch_check_crcs: bool = False
    min_insync_replicas: int = 1
    disk_full_policy: DiskFullPolicy = DiskFullPolicy.REFUSE
    cleanup_policy: tuple[str, ...] = ("delete",)
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5

    def overlay(self, overrides: Mapping[str, str], *, lenient: bool = False) -> LogConfig:
        """This configuration with the topic keys of `overrides` (Kafka's names, text values) laid over it.

        Keys that are only kept change nothing; `lenient`: neither do unknown ones, and nobody looks at the values of both.
        Raises InvalidConfigError naming the key, the value and what would be valid.
        """
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            key = (TOPIC_KEYS if lenient else KNOWN_KEYS).get(name)
            if key is None and not lenient:
                raise InvalidConfigError(
                    f"unknown topic configuration key {name!r}; `triolog topics describe` lists the known ones"
                )
            if not isinstance(text, str):
                raise InvalidConfigError(f"topic configuration {name} is a {type(text).__name__}; values are strings")
            if key is not None:
                value = _read_value(key, text)
                if name in TOPIC_KEYS:
                    changes[key.attribute] = value
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
