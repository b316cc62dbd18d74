from __future__ import annotations

import random

import pytest
from triolog.tools.client.backoff import JITTER, Backoff


class Middle(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_pauses_double_up_to_the_limit_and_a_reset_begins_again() -> None:
    backoff = Backoff(100, 1000, Middle())
    assert [round(backoff.pause_s(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for _ in range(100):
        assert backoff.pause_s() == 1.0
    assert backoff.failures == 106
    backoff.reset()
    assert backoff.pause_s() == pytest.approx(0.1)


def test_jitter_stays_within_its_part_and_differs() -> None:
    pauses = {Backoff(100, 1000, random.Random(seed)).pause_s() for seed in range(50)}
    assert len(pauses) > 40
    assert 0.1 * (1 - JITTER) <= min(pauses) <= max(pauses) <= 0.1 * (1 + JITTER)
