"""Topic configuration: every key reads what it writes, refuses what it must, and is named when it does."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, InvalidConfigError
from triolog.protocol.limits import INT32_MAX, INT64_MAX
from triolog.protocol.types import CompressionType, TimestampType
from triolog.server.config import (
    FORMER_KEYS,
    KEPT_KEYS,
    KNOWN_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    Durability,
    DurabilityMode,
    LogConfig,
    RecordValidation,
)

OTHERS: dict[str, tuple[str, ...]] = {
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "record.validation": ("full", "header"),
    "disk.full.policy": ("refuse", "drop-oldest"),
    "gap.policy": ("refuse", "skip"),
    "retention.hold.groups": ("", "one", "one,two"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact", ""),
    "durability": ("fsync", "os", "group:1", "group:3600000"),
    "min.cleanable.dirty.ratio": ("0.0", "0.25", "1.0"),
}
WRONG: dict[str, tuple[str, ...]] = {
    "string": (
        "",
        "nonsense",
        "GZIP",
        "createtime",
        "group",
        *(f"group:{each}" for each in ["0", "3600001", "-1", "x", "²"]),
        "fsync:5",
    ),
    "list": (",", "a,,b", "twice,twice"),
    "double": ("", "x", "-0.1", "1.1", "nan"),
    "boolean": ("", "1", "yes", "tru"),
    "int": ("", "x", "1.5", "1e3", str(INT32_MAX + 1), str(-(2**40))),
    "long": ("", "x", "1.5", str(INT64_MAX + 1), str(-(2**40))),
}


def valid_texts(key: ConfigKey) -> tuple[str, ...]:
    """Both ends of a range, every choice."""
    if key.name in OTHERS:
        return OTHERS[key.name]
    if key.type == "boolean":
        return "true", "false"
    low, _, high = key.valid.partition("..")
    return low, high or str(INT64_MAX)


def test_a_key_has_a_field_its_default_and_a_sentence_and_every_field_a_key() -> None:
    for key in TOPIC_KEYS.values():
        assert getattr(LogConfig(), key.attribute) == key.default, key.name
    for key in (*TOPIC_KEYS.values(), *KEPT_KEYS.values()):
        assert key.doc.endswith("."), key.name
        assert key.valid, key.name
        assert key.read(key.write(key.default)) == key.default, key.name
    assert {field.name for field in attrs.fields(LogConfig)} == {key.attribute for key in TOPIC_KEYS.values()}
    assert len(KNOWN_KEYS) == len(TOPIC_KEYS) + len(KEPT_KEYS) + len(FORMER_KEYS) + 1, "one is there twice"


def test_what_is_valid_is_read_and_written_as_it_was() -> None:
    for name, text in ((key.name, text) for key in TOPIC_KEYS.values() for text in valid_texts(key)):
        config = LogConfig().overlay({name: text})
        assert config.as_strings()[name] == text, name
        assert config.overlay({}) == config


@pytest.mark.parametrize("lenient", [True, False])
def test_the_segment_size_of_kafkas_tests_comes_first(lenient: bool) -> None:
    config = LogConfig().overlay({"internal.segment.bytes": "500", "segment.bytes": "5000"}, lenient=lenient)
    assert config.segment_bytes == 500
    with pytest.raises(InvalidConfigError, match=r"internal\.segment\.bytes='3'"):
        LogConfig().overlay({"internal.segment.bytes": "3"}, lenient=lenient)


def wrong_texts(key: ConfigKey) -> tuple[str, ...]:
    """Of another type, and beyond both ends of a range."""
    if key.name == "cleanup.policy":
        return (*WRONG[key.type], "nonsense", "delete,nonsense")
    if key.type not in ("int", "long"):
        return WRONG[key.type]
    low, _, high = key.valid.partition("..")
    return (*WRONG[key.type], str(int(low) - 1), str(int(high or INT64_MAX) + 1))


def test_what_is_not_valid_is_refused_with_the_key_and_the_value() -> None:
    for key, text in ((each, text) for each in TOPIC_KEYS.values() for text in wrong_texts(each)):
        with pytest.raises(InvalidConfigError, match=re.escape(f"{key.name}={text!r}")) as raised:
            LogConfig().overlay({key.name: text})
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        if key.type in ("int", "long") and text not in WRONG[key.type]:
            assert "is not in" in raised.value.message


@pytest.mark.parametrize("name", ["", "no.such.key", "segment_bytes", "Segment.bytes", " segment.bytes"])
def test_unknown_keys_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        LogConfig().overlay({name: "1"})
    assert repr(name) in raised.value.message


@pytest.mark.parametrize("value", [None, 5, True, b"5"], ids=repr)
def test_a_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes is a "):
        LogConfig().overlay({"segment.bytes": value})  # type: ignore[dict-item]


def test_a_former_name_of_a_policy_is_read_and_told_by_the_name_that_it_has_now() -> None:
    config = LogConfig().overlay({"disk.full.policy": "expire-oldest"})
    assert config == LogConfig().overlay({"disk.full.policy": "drop-oldest"})
    assert config.as_strings()["disk.full.policy"] == "drop-oldest"


def test_an_overlay_changes_its_keys_only() -> None:
    base = LogConfig(segment_bytes=1000, retention_ms=5)
    changed = base.overlay({"segment.bytes": "2000", "compression.type": "zstd"})
    assert changed == attrs.evolve(base, segment_bytes=2000, compression_type=CompressionType.ZSTD)
    assert base.segment_bytes == 1000


def test_compaction_lags_are_refused_the_wrong_way_round() -> None:
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms=10 is above max\.compaction\.lag\.ms=5"):
        LogConfig().overlay({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_texts_become_the_values_that_storage_works_with() -> None:
    config = LogConfig().overlay(
        {
            "compression.type": "producer",
            "message.timestamp.type": "LogAppendTime",
            "record.validation": "header",
            "cleanup.policy": " Compact , delete",
            "preallocate": "TRUE",
            "durability": "group:25",
        }
    )
    assert config.compression_type is None
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.record_validation is RecordValidation.HEADER
    assert config.cleanup_policy == ("compact", "delete")
    assert config.preallocate is True
    assert config.durability == Durability(DurabilityMode.GROUP, 25)


def test_codecs_have_the_level_of_their_key_or_none() -> None:
    config = LogConfig().overlay({"compression.gzip.level": "3", "compression.lz4.level": "5", "compression.zstd.level": "-7"})
    levels = {codec: config.compression_level(codec) for codec in CompressionType}
    assert levels == {
        CompressionType.NONE: None,
        CompressionType.GZIP: 3,
        CompressionType.SNAPPY: None,
        CompressionType.LZ4: 5,
        CompressionType.ZSTD: -7,
    }


@given(st.integers(1, 3_600_000))
def test_group_durability_reads_what_it_writes(interval_ms: int) -> None:
    durability = Durability.parse(f"group:{interval_ms}")
    assert (durability.mode, durability.interval_ms) == (DurabilityMode.GROUP, interval_ms)
    assert Durability.parse(str(durability)) == durability


@given(st.text(max_size=12))
def test_any_other_durability_is_refused_with_what_was_found(text: str) -> None:
    try:
        durability = Durability.parse(text)
    except ValueError as exc:
        assert repr(text) in str(exc)  # noqa: PT017 - one of two outcomes
    else:
        assert Durability.parse(str(durability)) == durability


def test_keys_that_are_kept_and_keys_of_older_brokers_have_no_effect() -> None:
    texts = {key.name: key.write(key.default) for key in KEPT_KEYS.values()} | dict.fromkeys(FORMER_KEYS, "2.8-IV1")
    throttled = [("leader.replication.throttled.replicas", text) for text in ("", "*", "0:1", "0:1, 1:2")]
    for name, text in (*texts.items(), *throttled):
        assert LogConfig().overlay({name: text}) == LogConfig(), name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("leader.replication.throttled.replicas", "0"),
        ("follower.replication.throttled.replicas", "0:1,"),
        ("unclean.leader.election.enable", "maybe"),
        ("remote.storage.enable", "true"),
        ("local.retention.ms", "-3"),
    ],
)
def test_values_of_kept_keys_are_checked_unless_lenient(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=name):
        LogConfig().overlay({name: text})
    assert LogConfig().overlay({name: text}, lenient=True) == LogConfig()


def test_lenient_passes_over_unknown_keys_and_still_checks_known_ones() -> None:
    config = LogConfig().overlay({"no.such.key": "1", "segment.bytes": "2000"}, lenient=True)
    assert config == LogConfig(segment_bytes=2000)
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
        LogConfig().overlay({"segment.bytes": "many"}, lenient=True)
