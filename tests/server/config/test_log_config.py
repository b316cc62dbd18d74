"""Topic configuration: every key reads what it writes, refuses what it must, and is named when it does. Keys of groups and
memory budgets."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, InvalidConfigError
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MIB
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
from triolog.server.config.broker_config import (
    CONNECTION_BYTES,
    FIXED_BYTES,
    LEAST_MEMORY_BYTES,
    BrokerConfig,
    waiting_logs_bytes,
)
from triolog.server.config.broker_settings import read_settings
from triolog.server.config.resource_keys import GROUP_KEYS, AutoOffsetReset, group_config

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


DEFAULTS = {name: key.default for name, key in GROUP_KEYS.items()}


def configured(*, lenient: bool = False, **overrides: str) -> dict[str, object]:
    named = {name.replace("_", "."): text for name, text in overrides.items()}
    return dict(group_config(DEFAULTS, named, lenient=lenient))


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("earliest", None),
        (" latest ", None),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:pt1h", 3_600_000),
        ("by_duration:PT1.5S", 1_500),
        ("by_duration:PT0S", 0),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
    ],
)
def test_where_reading_begins_can_be_said(text: str, duration_ms: int | None) -> None:
    reset = AutoOffsetReset.parse(text)
    assert (reset.duration_ms, str(reset)) == (duration_ms, text.strip())
    assert reset.strategy == text.strip().partition(":")[0]


@pytest.mark.parametrize(
    "text",
    ["EARLIEST", "none", "", "by_duration", "by_duration:", "By_Duration:PT1H", "PT1H"]
    + [
        f"by_duration:{each}"
        for each in ("-PT1H", "PT-1H", "P1M", "P2W", "P", "PT", "P1DT", "PTS", "PT1.5H", "PT" + "9" * 70 + "S")
    ],
)
def test_what_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"share\.auto\.offset\.reset"):
        configured(share_auto_offset_reset=text)


def test_a_range_holds_unless_the_server_is_lenient() -> None:
    for name, (low, high) in ((key.name, key.strict) for key in GROUP_KEYS.values() if key.strict is not None):
        for value in (low - 1, high + 1):
            with pytest.raises(InvalidConfigError):
                group_config(DEFAULTS, {name: str(value)}, lenient=False)
        for value in {low, high}:
            assert group_config(DEFAULTS, {name: str(value)}, lenient=False)[name] == value
        if "session" not in name and "heartbeat" not in name:
            assert group_config(DEFAULTS, {name: str(high + 1)}, lenient=True)[name] == high + 1


def test_a_lenient_server_lets_tests_wait_for_milliseconds() -> None:
    found = configured(lenient=True, share_session_timeout_ms="20", share_heartbeat_interval_ms="10")
    assert found["share.session.timeout.ms"] == 20
    with pytest.raises(InvalidConfigError, match=r"is not above share\.heartbeat"):
        configured(lenient=True, share_session_timeout_ms="10", share_heartbeat_interval_ms="10")


@pytest.mark.parametrize("text", ["x", "", "-1", "47000.0", "99999999999"])
def test_what_is_no_number_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError):
        configured(share_session_timeout_ms=text)


def test_the_other_kinds_of_values() -> None:
    found = configured(share_isolation_level="read_committed", share_renew_acknowledge_enable=" FALSE ")
    assert (found["share.isolation.level"], found["share.renew.acknowledge.enable"]) == (True, False)
    for wrong in ({"share_isolation_level": "READ_COMMITTED"}, {"share_renew_acknowledge_enable": "x"}, {"bogus": "1"}):
        with pytest.raises(InvalidConfigError):
            configured(lenient=True, **wrong)


DERIVED = (
    *("max_broker_in_flight_bytes", "max_request_bytes", "max_frame_bytes", "max_unpacked_bytes", "max_connections"),
    *("cleaner_dedupe_buffer_bytes", "group_max_metadata_bytes", "max_client_memory_bytes"),
)


def config(**keys: Any) -> BrokerConfig:
    return BrokerConfig(data_dirs=("data",), **keys)


def budgets(**keys: Any) -> dict[str, int]:
    made = config(**keys)
    return {name: getattr(made, name) for name in DERIVED}


def test_without_a_cap_budgets_are_what_they_are_usually() -> None:
    usual = budgets()
    assert usual["max_broker_in_flight_bytes"] == 256 * MIB
    assert usual["max_request_bytes"] == 100 * MIB
    assert usual["cleaner_dedupe_buffer_bytes"] == 128 * MIB
    assert budgets(max_memory_bytes=2**40) == usual


@given(st.integers(LEAST_MEMORY_BYTES, 2**33))
def test_derived_budgets_fit_and_leave_a_sixteenth(cap: int) -> None:
    made = budgets(max_memory_bytes=cap)
    usual = budgets()
    assert all(0 < made[name] <= usual[name] for name in DERIVED)
    largest = max(made["max_request_bytes"], made["max_frame_bytes"])
    taken = 2 * made["max_broker_in_flight_bytes"] + largest + made["max_unpacked_bytes"] + waiting_logs_bytes(cap)
    taken += made["max_connections"] * CONNECTION_BYTES + made["cleaner_dedupe_buffer_bytes"] + made["max_client_memory_bytes"]
    assert made["group_max_metadata_bytes"] <= made["max_client_memory_bytes"], "what members say is part of it"
    assert taken <= (cap - FIXED_BYTES) * 15 // 16


def test_the_smallest_server_takes_usual_requests() -> None:
    made = budgets(max_memory_bytes=LEAST_MEMORY_BYTES)
    assert made["max_request_bytes"] >= 8 * MIB
    assert made["max_broker_in_flight_bytes"] // 4 > MIB, "a connection's share holds a batch of the largest default size"
    assert made["max_connections"] >= 64


def test_budgets_by_hand_stay_or_are_refused_with_all_that_is_taken() -> None:
    made = budgets(max_memory_bytes=512 * MIB, max_connections=500, cleaner_dedupe_buffer_bytes=2 * MIB)
    assert (made["max_connections"], made["cleaner_dedupe_buffer_bytes"]) == (500, 2 * MIB)
    with pytest.raises(InvalidConfigError, match="Raise it, or lower a budget that is set") as raised:
        config(max_memory_bytes=256 * MIB, max_broker_in_flight_bytes=100 * MIB)
    assert f"max_broker_in_flight_bytes, twice: {200 * MIB}" in raised.value.message
    assert f"leaves {256 * MIB - FIXED_BYTES} for budgets" in raised.value.message
    keys = {"max_memory_bytes": 256 * MIB, "cleaner_dedupe_buffer_bytes": 100 * MIB}
    with pytest.raises(InvalidConfigError, match=f"cleaner_dedupe_buffer_bytes: {100 * MIB}"):
        config(**keys)
    config(**keys, cleaner_enable=False)


def test_too_little_is_refused_with_what_is_needed() -> None:
    with pytest.raises(InvalidConfigError, match=f"max_memory_bytes: {MIB} is not in {LEAST_MEMORY_BYTES}"):
        read_settings(None, {"TRIOLOG_MAX_MEMORY_BYTES": str(MIB)}, {})
    with pytest.raises(InvalidConfigError, match="a server needs"):
        config(max_memory_bytes=MIB)
