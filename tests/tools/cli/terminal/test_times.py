from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.limits import INT64_MAX
from triolog.tools.cli.terminal import times

NEW_YORK = ZoneInfo("America/New_York")
NOW_MS = 1_700_000_000_000
MIDNIGHT_MS = 1_372_910_400_000  # 2013-07-04T00:00 in New York


@pytest.fixture
def local_is_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def test_a_duration_is_that_long_ago() -> None:
    durations = {"10m": 600_000, "90s": 90_000, "250ms": 250, "2h30m": 9_000_000, "1.5d": 129_600_000, "1w": 604_800_000}
    for text, ago_ms in {**durations, "now": 0, " NOW ": 0}.items():
        assert times.parse_time(text, UTC, now_ms=NOW_MS) == NOW_MS - ago_ms, text


def test_all_ways_to_write_a_time_are_the_same_time() -> None:
    local = ("2013-07-04T00:00", "2013-07-04", "2013-07-04 00:00:00.000")
    others = ("2013-07-04T04:00Z", "2013-07-04T06:00:00+02:00", "1372910400000", "@1372910400", "@1372910400.000")
    for text in local + others:
        assert times.parse_time(text, NEW_YORK, now_ms=NOW_MS) == MIDNIGHT_MS, text
    assert times.parse_time("2013-07-04T04:00:00.123456Z") == MIDNIGHT_MS + 123
    assert times.parse_time("@1372910400.2505") == MIDNIGHT_MS + 250


@pytest.mark.usefixtures("local_is_new_york")
def test_without_a_zone_the_time_is_local() -> None:
    assert times.parse_time("2013-07-04T00:00") == MIDNIGHT_MS
    assert times.parse_time("2013-01-04T00:00") == times.parse_iso("2013-01-04T00:00", NEW_YORK)
    assert times.format_time(MIDNIGHT_MS) == "2013-07-04T00:00:00.000-04:00"


@pytest.mark.usefixtures("local_is_new_york")
@pytest.mark.parametrize("zone", [NEW_YORK, times.LOCAL], ids=["named", "local"])
def test_a_local_time_that_comes_twice_is_the_first_one_and_a_skipped_one_lies_behind_the_skip(zone: ZoneInfo | None) -> None:
    first, second = times.parse_iso("2013-11-03T01:30-04:00"), times.parse_iso("2013-11-03T01:30-05:00")
    assert second - first == 3_600_000
    assert times.parse_iso("2013-11-03T01:30", zone) == first
    assert times.format_time(first, zone) == "2013-11-03T01:30:00.000-04:00"
    assert times.format_time(second, zone) == "2013-11-03T01:30:00.000-05:00"
    assert times.parse_iso("2013-03-10T02:30", zone) == times.parse_iso("2013-03-10T03:30-04:00")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yesterday", "use 10m"),
        ("", "invalid time"),
        ("10 m", "invalid time"),
        ("-5m", "invalid time"),
        ("2013-02-30", "invalid time"),
        ("20130704", "may be a date or milliseconds. Use 2013-07-04"),
        ("1969-12-31T23:59Z", "is before 1970"),
        ("3000w", "is before 1970"),
        (str(2**63), "above the largest timestamp"),
        ("0001-01-01T00:00+05:00", "1970|cannot be represented"),
    ],
)
def test_what_is_no_time_is_refused_with_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        times.parse_time(text, UTC, now_ms=NOW_MS)


def test_zones_have_names() -> None:
    assert times.parse_zone(None) is times.parse_zone("local") is times.parse_zone("LOCAL") is times.LOCAL
    assert times.parse_zone("utc") is UTC
    assert times.parse_zone("America/New_York") is NEW_YORK
    for unknown in ("Mars/Olympus", "../etc/passwd", ""):
        with pytest.raises(ValueError, match="there is no time zone"):
            times.parse_zone(unknown)


@pytest.mark.parametrize(
    ("value", "unit_ms", "expected"),
    [
        (1372910400000, 1, MIDNIGHT_MS),
        ("1372910400000", 1, MIDNIGHT_MS),
        ("1372910400", 1000, MIDNIGHT_MS),
        (1372910400.25, 1000, MIDNIGHT_MS + 250),
        ("1372910400.25", 1000, MIDNIGHT_MS + 250),
        (Decimal("1372910400.001"), 1000, MIDNIGHT_MS + 1),
        ("1.3729104e9", 1000, MIDNIGHT_MS),
        ("2013-07-04T00:00", 1, MIDNIGHT_MS),
        ("2013-07-04 04:00Z", 1000, MIDNIGHT_MS),
    ],
)
def test_timestamps_of_rows(value: str | float, unit_ms: int, expected: int) -> None:
    assert times.parse_timestamp(value, NEW_YORK, unit_ms=unit_ms) == expected


@pytest.mark.parametrize("value", [True, "NaN", "Infinity", float("inf"), float("nan"), "-1", -1, "noon", "1e30", "NA"])
def test_what_is_no_timestamp_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"not a timestamp|invalid time|before 1970|above the largest"):
        times.parse_timestamp(value, UTC)


@given(st.integers(0, 253_402_300_799_999), st.sampled_from([UTC, NEW_YORK, ZoneInfo("Asia/Kolkata")]))
def test_what_is_shown_is_read_back(timestamp_ms: int, zone: ZoneInfo) -> None:
    if timestamp_ms > 253_402_214_400_000:  # the last day of the calendar may end in another zone
        timestamp_ms -= 86_400_000
    assert times.parse_time(times.format_time(timestamp_ms, zone)) == timestamp_ms


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert 0 <= times.parse_time(text, NEW_YORK, now_ms=NOW_MS) <= INT64_MAX


def test_no_timestamp_and_the_end_of_the_calendar_are_shown() -> None:
    assert times.format_time(-1, UTC) == "-"
    assert times.format_time(INT64_MAX, UTC) == str(INT64_MAX)
    assert times.format_time(0, UTC) == "1970-01-01T00:00:00.000Z"
    assert datetime.fromisoformat(times.format_time(NOW_MS, NEW_YORK)).timestamp() == NOW_MS / 1000


def test_a_duration_has_two_digits_in_the_largest_unit() -> None:
    texts = {0: "0 s", 0.25: "250 ms", 1.5: "1.5 s", 59: "59 s", 90: "1.5 minutes", 7200: "2.0 hours"}
    texts |= {86_400 * 30: "30 days", 86_400 * 730: "2.0 years"}
    assert {seconds: times.duration_text(seconds) for seconds in texts} == texts
