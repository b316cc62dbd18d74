"""The configuration of one log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.types import CompressionType, TimestampType
from .key import ConfigKey
from .topic_keys import INTERNAL_SEGMENT_BYTES, KNOWN_KEYS, TOPIC_KEYS
from .values import DiskFullPolicy, Durability, GapPolicy, RecordValidation


def _read_value(key: ConfigKey, text: str) -> Any:
    try:
        return key.read(text)
    except ValueError as exc:
        raise InvalidConfigError(f"topic configuration {key.name}={text!r}: {exc}") from exc


@attrs.frozen(kw_only=True)
class LogConfig:
    """Everything a log needs to know about itself. Fields are the topic keys with `_` for `.`."""

    compression_type: CompressionType | None = TOPIC_KEYS["compression.type"].default
    compression_gzip_level: int = TOPIC_KEYS["compression.gzip.level"].default
    compression_lz4_level: int = TOPIC_KEYS["compression.lz4.level"].default
    compression_zstd_level: int = TOPIC_KEYS["compression.zstd.level"].default
    message_timestamp_type: TimestampType = TOPIC_KEYS["message.timestamp.type"].default
    message_timestamp_before_max_ms: int = TOPIC_KEYS["message.timestamp.before.max.ms"].default
    message_timestamp_after_max_ms: int = TOPIC_KEYS["message.timestamp.after.max.ms"].default
    max_message_bytes: int = TOPIC_KEYS["max.message.bytes"].default
    segment_bytes: int = TOPIC_KEYS["segment.bytes"].default
    segment_ms: int = TOPIC_KEYS["segment.ms"].default
    segment_jitter_ms: int = TOPIC_KEYS["segment.jitter.ms"].default
    segment_index_bytes: int = TOPIC_KEYS["segment.index.bytes"].default
    index_interval_bytes: int = TOPIC_KEYS["index.interval.bytes"].default
    preallocate: bool = TOPIC_KEYS["preallocate"].default
    flush_messages: int = TOPIC_KEYS["flush.messages"].default
    flush_ms: int = TOPIC_KEYS["flush.ms"].default
    file_delete_delay_ms: int = TOPIC_KEYS["file.delete.delay.ms"].default
    durability: Durability = TOPIC_KEYS["durability"].default
    record_validation: RecordValidation = TOPIC_KEYS["record.validation"].default
    fetch_check_crcs: bool = TOPIC_KEYS["fetch.check.crcs"].default
    gap_policy: GapPolicy = TOPIC_KEYS["gap.policy"].default
    min_insync_replicas: int = TOPIC_KEYS["min.insync.replicas"].default
    disk_full_policy: DiskFullPolicy = TOPIC_KEYS["disk.full.policy"].default
    disk_full_priority: int = TOPIC_KEYS["disk.full.priority"].default
    cleanup_policy: tuple[str, ...] = TOPIC_KEYS["cleanup.policy"].default
    retention_ms: int = TOPIC_KEYS["retention.ms"].default
    retention_bytes: int = TOPIC_KEYS["retention.bytes"].default
    retention_hold_groups: tuple[str, ...] = TOPIC_KEYS["retention.hold.groups"].default
    retention_hold_max_bytes: int = TOPIC_KEYS["retention.hold.max.bytes"].default
    retention_hold_max_ms: int = TOPIC_KEYS["retention.hold.max.ms"].default
    delete_retention_ms: int = TOPIC_KEYS["delete.retention.ms"].default
    min_compaction_lag_ms: int = TOPIC_KEYS["min.compaction.lag.ms"].default
    max_compaction_lag_ms: int = TOPIC_KEYS["max.compaction.lag.ms"].default
    min_cleanable_dirty_ratio: float = TOPIC_KEYS["min.cleanable.dirty.ratio"].default

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
                    f"unknown topic configuration key {name!r}; `triolog topics describe` lists the known ones"
                )
            if not isinstance(text, str):
                raise InvalidConfigError(f"topic configuration {name} is a {type(text).__name__}; values are strings")
            if key is not None:
                value = _read_value(key, text)
                if name in TOPIC_KEYS:
                    changes[key.attribute] = value
        if INTERNAL_SEGMENT_BYTES.name in overrides:
            changes["segment_bytes"] = _read_value(INTERNAL_SEGMENT_BYTES, overrides[INTERNAL_SEGMENT_BYTES.name])
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
