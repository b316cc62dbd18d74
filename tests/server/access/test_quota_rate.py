"""Rates over the sliding window of quotas, against a model that keeps everything that was ever used."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.server.access.quotas import LEAST_WINDOW_S, SAMPLE_COUNT, SAMPLE_S, QuotaRate

Uses = list[tuple[float, float]]
"""(seconds since the use before, amount)."""
gaps = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 10.0, 11.0, 100.0]), st.integers(0, 200).map(lambda n: n / 8))
uses = st.lists(st.tuples(gaps, st.integers(0, 1000).map(float)), max_size=60)


def model(used: Uses, now_s: float) -> tuple[float, float]:
    """(rate, window) from the whole history: it is cut into samples, of which the last ones count that are not too old."""
    samples: list[list[tuple[float, float]]] = []
    at = 0.0
    for gap, amount in used:
        at += gap
        if samples and at < samples[-1][0][0] + SAMPLE_S:
            samples[-1].append((at, amount))
        else:
            samples.append([(at, amount)])
    counted = [sample for sample in samples[-SAMPLE_COUNT:] if sample[-1][0] > now_s - SAMPLE_COUNT * SAMPLE_S]
    elapsed = now_s - counted[0][0][0] if counted else 0.0
    missing = max(0, SAMPLE_COUNT - 1 - math.floor(elapsed / SAMPLE_S)) * SAMPLE_S
    window = elapsed + missing
    return sum(amount for sample in counted for _, amount in sample) / window, window


@given(uses, gaps)
def test_the_rate_is_that_of_the_model(used: Uses, behind: float) -> None:
    rate, now = QuotaRate(), 0.0
    for count, (gap, amount) in enumerate(used):
        now += gap
        rate.add(amount, now)
        assert (rate.per_second(now), rate.window_s(now)) == model(used[: count + 1], now)
    now += behind
    assert (rate.per_second(now), rate.window_s(now)) == model(used, now)


@example([1848, 727, 329, 796, 1848, 1808, 697], 72)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80), st.integers(1, 1000))
def test_who_is_quiet_for_as_long_as_he_is_told_stays_near_the_bound(amounts: list[int], bound: int) -> None:
    """All of a burst that fits into the least window is free. A pause that is longer than the window begins a new one, as in
    Kafka: bursts that need such pauses come to at most 21/11 of the bound, and others to the bound."""
    rate, now, longest = QuotaRate(), 0.0, 0.0
    for amount in amounts:
        rate.add(amount, now)
        longest = max(longest, pause := rate.over_s(bound, now))
        now += pause
    share = 1.0 if longest < SAMPLE_S else (SAMPLE_COUNT * SAMPLE_S + LEAST_WINDOW_S) / (SAMPLE_COUNT * SAMPLE_S)
    assert sum(amounts) <= bound * (now * share + LEAST_WINDOW_S) + max(amounts)


@pytest.mark.parametrize(("amount", "seconds"), [(1000.0, 0.0), (1001.0, 0.01), (3000.0, 20.0)])
def test_a_burst_is_measured_by_what_it_is_over_ten_seconds(amount: float, seconds: float) -> None:
    rate = QuotaRate()
    rate.add(amount, 5.0)
    assert rate.over_s(100.0, 5.0) == pytest.approx(seconds)


def test_what_is_taken_back_was_not_used() -> None:
    rate = QuotaRate()
    rate.add(70.0, 0.0)
    rate.add(-70.0, 0.0)
    assert rate.per_second(0.5) == 0.0


def test_nothing_is_in_the_window_eleven_seconds_after_the_last_use() -> None:
    rate = QuotaRate()
    assert rate.is_unused(0.0)
    rate.add(1.0, 0.0)
    rate.add(1.0, 0.9)
    assert not rate.is_unused(11.8)
    assert rate.is_unused(11.9)
