"""Keys of groups: what Apache Kafka 4.3.1 takes and refuses."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.resource_keys import GROUP_KEYS, AutoOffsetReset, group_config

DEFAULTS = {name: key.default for name, key in GROUP_KEYS.items()}


def config(*, lenient: bool = False, **overrides: str) -> dict[str, object]:
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
        config(share_auto_offset_reset=text)


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
    found = config(lenient=True, share_session_timeout_ms="20", share_heartbeat_interval_ms="10")
    assert found["share.session.timeout.ms"] == 20
    with pytest.raises(InvalidConfigError, match=r"is not above share\.heartbeat"):
        config(lenient=True, share_session_timeout_ms="10", share_heartbeat_interval_ms="10")


@pytest.mark.parametrize("text", ["x", "", "-1", "47000.0", "99999999999"])
def test_what_is_no_number_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError):
        config(share_session_timeout_ms=text)


def test_the_other_kinds_of_values() -> None:
    found = config(share_isolation_level="read_committed", share_renew_acknowledge_enable=" FALSE ")
    assert (found["share.isolation.level"], found["share.renew.acknowledge.enable"]) == (True, False)
    for wrong in ({"share_isolation_level": "READ_COMMITTED"}, {"share_renew_acknowledge_enable": "x"}, {"bogus": "1"}):
        with pytest.raises(InvalidConfigError):
            config(lenient=True, **wrong)
