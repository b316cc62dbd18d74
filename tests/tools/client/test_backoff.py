from __future__ import annotations

import random

import pytest
from triolog.tools.client.backoff import JITTER, Backoff


class Middle(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(100, 1000, Middle())
    assert [round(backoff.pause_s(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_reset_begins_again() -> None:
    backoff = Backoff(100, 1000, Middle())
    backoff.pause_s()
    backoff.pause_s()
    assert backoff.failures == 2
    backoff.reset()
    assert backoff.pause_s() == pytest.approx(0.1)


def test_jitter_stays_within_its_part_and_differs() -> None:
    pauses = {Backoff(100, 1000, random.Random(seed)).pause_s() for seed in range(50)}
    assert len(pauses) > 40
    assert 0.1 * (1 - JITTER) <= min(pauses) <= max(pauses) <= 0.1 * (1 + JITTER)


def test_many_failures_do_not_overflow() -> None:
    backoff = Backoff(1, 1000)
    for _ in range(100):
        assert backoff.pause_s() <= 1.2
