from __future__ import annotations

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.forward.memory import BURST_S, Caution, RateCap
from triolog.tools.forward.pacing.retry import Failure, Retry
from triolog.tools.forward.pacing.stretch import FIRST_BYTES, LEAST_BYTES, SLOW_S, Stretch, StretchSize
from triolog.tools.forward.pacing.windows import opens_in_s, parse_window


def pauses(failure: Failure, *, is_awaited: bool = False, count: int = 12) -> list[float]:
    retry = Retry(random.Random(1))
    return [retry.pause_s(failure, is_awaited=is_awaited) for _ in range(count)]


@pytest.mark.parametrize(
    ("failure", "is_awaited", "longest_s"),
    [
        (Failure.PASSING, False, 10),
        (Failure.REFUSED, False, 60),
        (Failure.PASSING, True, 1),
        (Failure.REFUSED, True, 60),  # a login that is refused once a second is soon locked
    ],
)
def test_pauses_double_up_to_what_the_failure_deserves(failure: Failure, is_awaited: bool, longest_s: float) -> None:
    found = pauses(failure, is_awaited=is_awaited)
    assert 0.4 <= found[0] <= 0.6
    assert all(longest_s * 0.8 <= pause_s <= longest_s * 1.2 for pause_s in found[8:])
    assert len(set(found)) == len(found)  # links that failed together do not come back together


def test_what_worked_forgets_failures_of_every_kind_and_one_reason_is_said_less_and_less_often() -> None:
    retry = Retry(random.Random(1))
    for failure in Failure:
        for _ in range(8):
            retry.pause_s(failure, is_awaited=False)
    assert retry.pause_s(Failure.PASSING, is_awaited=True) <= 1.2, "nor does one who comes to wait find a long pause"
    retry.reset()
    assert max(retry.pause_s(failure, is_awaited=False) for failure in Failure) <= 0.6
    said = [number for number in range(1, 20) if retry.is_news("nobody is there")]
    assert said == [1, 2, 4, 8, 16]
    assert retry.is_news("no right")
    assert retry.is_news("nobody is there")
    retry.reset()
    assert retry.is_news("nobody is there")


MOST = 16 * 1024 * 1024


def test_stretches_grow_up_to_their_limit_while_the_link_is_fast() -> None:
    size = StretchSize(MOST)
    size.went(1000, 0.1)
    assert size.bytes == FIRST_BYTES, "one that was not full says nothing"
    for _ in range(10):
        size.went(size.bytes, 0.1)
    assert size.bytes == MOST


def test_on_a_slow_link_they_shrink_until_one_takes_no_longer_than_is_well() -> None:
    size, rate = StretchSize(MOST), 50_000
    for _ in range(20):
        size.went(size.bytes, size.bytes / rate)
    assert LEAST_BYTES <= size.bytes <= 2 * SLOW_S * rate
    size = StretchSize(MOST)
    size.failed()
    assert size.bytes == FIRST_BYTES // 2
    for _ in range(20):
        size.failed()
    assert size.bytes == LEAST_BYTES, "one that failed is smaller the next time but never nothing"


def test_a_stretch_is_full_by_bytes_by_records_or_by_age() -> None:
    stretch = Stretch(begun_s=10.0, max_bytes=1000, max_records=5, max_delay_s=0.5)
    assert not stretch.is_full(10.4)
    assert stretch.is_full(10.5)
    stretch.bytes = 1000
    assert stretch.is_full(10.0)
    stretch.bytes, stretch.records = 0, 5
    assert stretch.is_full(10.0)


RATES = st.integers(1_000, 50_000_000)
SIZES = st.lists(st.integers(1, 20_000), min_size=50, max_size=400)


def sent_by(cap: RateCap, sizes: list[int], now_s: float = 0.0) -> float:
    """When the last of these records has gone, each as early as it may."""
    for size in sizes:
        now_s += cap.wait_s(now_s)
        cap.sent(size, now_s)
    return now_s


@given(rate=RATES, sizes=SIZES)
def test_no_more_goes_than_the_rate_and_one_burst(rate: int, sizes: list[int]) -> None:
    took_s = sent_by(RateCap(rate), sizes)
    assert sum(sizes[:-1]) <= rate * (took_s + BURST_S) + max(sizes) + 1


@given(rate=RATES, sizes=SIZES)
def test_a_link_that_always_has_something_uses_its_rate(rate: int, sizes: list[int]) -> None:
    took_s = sent_by(RateCap(rate), sizes)
    assert took_s <= sum(sizes) / rate + 1e-6


def test_an_idle_link_saves_up_no_more_than_one_burst() -> None:
    cap = RateCap(1000)
    cap.sent(1000, 0.0)
    assert cap.wait_s(1000.0) == 0
    cap.sent(1000, 1000.0)
    assert cap.wait_s(1000.0) == pytest.approx(1.0)


PARTITION = ("topic", 0)


def forwarded(total: int, bad: set[int], most: int) -> tuple[list[int], list[int]]:
    """What is taken and what is found out to be refused, by an upstream that takes stretches whole or not at all."""
    caution, taken, refused, offset = Caution(), [], [], 0
    while offset < total:
        end = min(total, offset + most, offset + caution.limit(PARTITION))
        stretch = [each for each in range(offset, end) if each not in refused]
        if not bad & set(stretch):
            taken += stretch
            offset = end
            caution.accepted(PARTITION, len(stretch))
        elif caution.refused(PARTITION, len(stretch)):
            refused += stretch
    return taken, refused


@given(total=st.integers(1, 3000), bad=st.sets(st.integers(0, 2999), max_size=5), most=st.integers(1, 5000))
def test_exactly_the_bad_ones_are_found_and_all_others_go(total: int, bad: set[int], most: int) -> None:
    bad = {each for each in bad if each < total}
    taken, refused = forwarded(total, bad, most)
    assert sorted(refused) == sorted(bad)
    assert taken == [each for each in range(total) if each not in bad]


def test_it_is_trusted_again_after_a_while() -> None:
    caution = Caution()
    caution.accepted(PARTITION, 100)
    assert not caution.is_careful(PARTITION), "without refusals there is no limit"
    caution.refused(PARTITION, 1)
    for _ in range(12):
        caution.accepted(PARTITION, caution.limit(PARTITION))
    assert not caution.is_careful(PARTITION)


BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "now", "hours"),
    [
        ("22:00-06:00", "2026-11-25T21:00", 1),
        ("22:00-06:00", "2026-11-25T22:00", 0),
        ("22:00-06:00", "2026-11-26T05:59", 0),
        ("22:00-06:00", "2026-11-26T06:00", 16),
        ("sat,sun", "2026-11-27T23:00", 1),  # a Friday
        ("sat,sun", "2026-11-29T23:00", 0),
        ("sat,sun", "2026-11-30T00:00", 5 * 24),
        ("mon-fri 22:00-06:00", "2026-11-28T05:00", 0),  # Saturday, in Friday's
        ("mon-fri 22:00-06:00", "2026-11-28T22:00", 48),
        ("sat-mon 10:00-11:00", "2026-11-30T09:00", 1),
        ("00:00-24:00", "2026-11-25T12:00", 0),
    ],
)
def test_a_link_waits_for_its_window(window: str, now: str, hours: float) -> None:
    assert opens_in_s([parse_window(window)], at(now), UTC) == hours * 3600


def test_the_first_of_several_windows_counts_and_without_any_it_may_always_send() -> None:
    windows = [parse_window("06:00-07:00"), parse_window("03:00-04:00")]
    assert opens_in_s(windows, at("2026-11-25T01:00"), UTC) == 2 * 3600
    assert opens_in_s([], at("2026-11-25T12:00"), UTC) == 0
    before = at("2026-03-28T23:00", BERLIN)  # the night has one hour less
    assert opens_in_s(windows[:1], before, BERLIN) == 6 * 3600


@given(minutes=st.integers(0, 14 * 24 * 60))
def test_a_window_that_is_waited_for_is_open_then(minutes: int) -> None:
    windows = [parse_window("tue,thu 23:00-02:30"), parse_window("sun 04:00-05:00")]
    now_s = at("2026-03-16T00:00", BERLIN) + minutes * 60  # two weeks with a change of the clocks
    wait_s = opens_in_s(windows, now_s, BERLIN)
    assert opens_in_s(windows, now_s + wait_s, BERLIN) == 0
    assert wait_s == 0 or opens_in_s(windows, now_s + wait_s - 1, BERLIN) == 1


def test_what_is_no_window_is_refused() -> None:
    for text in ("", "25:00-26:00", "22:00", "22:00-22:00", "monday 01:00-02:00", "mon tue", "01:60-02:00", "24:00-24:00"):
        with pytest.raises(ValueError, match=r"no window|no span|no day"):
            parse_window(text)
