from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.forward.memory import BURST_S, RateCap

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
