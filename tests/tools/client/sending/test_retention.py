from __future__ import annotations

from triolog.protocol.native.messages import ConfigEntry
from triolog.tools.client.sending.retention import RetentionWatch

NOW_MS = 1_700_000_000_000
WEEK_MS = 604_800_000


def watch(**values: str) -> RetentionWatch:
    config = {key.replace("_", "."): ConfigEntry(value, "topic") for key, value in values.items()}
    return RetentionWatch("t", config, NOW_MS)


def test_a_record_is_too_old_below_now_minus_the_retention() -> None:
    week = watch(retention_ms=str(WEEK_MS))
    assert week.is_too_old(NOW_MS - WEEK_MS - 1)
    assert not week.is_too_old(NOW_MS - WEEK_MS)
    assert week.is_too_old(0)
    assert watch(retention_ms="1", cleanup_policy="compact,delete").is_too_old(0)
    assert not watch(retention_ms="0").is_too_old(None), "it gets the time of its append"


def test_topics_that_delete_nothing_by_record_time_find_nothing_too_old() -> None:
    for values in (
        {"retention_ms": "-1"},
        {"retention_ms": "1", "cleanup_policy": "compact"},
        {"retention_ms": "1", "message_timestamp_type": "LogAppendTime"},
        {},
    ):
        assert not watch(**values).is_too_old(0), values


def test_the_warning_names_both_numbers_and_both_ways_out() -> None:
    warning = watch(retention_ms=str(WEEK_MS)).warning("2013-07-04")
    for part in ("2013-07-04", "topic t", "retention.ms=604800000, 7 days", "retention.ms=-1", "LogAppendTime"):
        assert part in warning
