"""The configuration of one log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import INT64_MAX, MAX_MESSAGE_BYTES, MIB
from ...protocol.types import CompressionType, TimestampType
from .key import ConfigKey
from .topic_keys import KNOWN_KEYS, TOPIC_KEYS
from .values import DAY_MS, DiskFullPolicy, Durability, DurabilityMode, RecordValidation


def _read_value(key: ConfigKey, text: str) -> Any:
    try:
        return key.read(text)
    except ValueError as exc:
        raise InvalidConfigError(f"topic configuration {key.name}={text!r}: {exc}") from exc


OS: Final = Durability(DurabilityMode.OS)


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
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    durability: Durability = OS
    record_validation: RecordValidation = RecordValidation.FULL
    fetch_check_crcs: bool = False
    min_insync_replicas: int = 1
    disk_full_policy: DiskFullPolicy = DiskFullPolicy.REFUSE
    cleanup_policy: tuple[str, ...] = ("delete",)
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    delete_retention_ms: int = DAY_MS
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
