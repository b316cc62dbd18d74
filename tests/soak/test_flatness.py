"""The verdict on a server's growth can go either way, and does so for the right series."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

import pytest

from .flatness import EVERY_QUANTITY, LIMITS, MIB, Flatness, judge
from .sampling import Sample

HOUR_S: Final = 3600
EVERY_S: Final = 5
Series = Callable[[float, random.Random], float]
"""Of the age in seconds."""


def series(quantity: str, value: Series, *, life: int = 0, seconds: int = HOUR_S) -> list[Sample]:
    rng = random.Random(quantity)
    flat = {"pss": 90 * MIB, "private": 80 * MIB, "descriptors": 60, "threads": 8, "tasks": 40}
    rest = {"rss": 0, "children": 0, "segments": 0, "disk_bytes": 0, "records": 0, "cpu_s": 0.0}
    return [
        Sample(at_s=age, life=life, age_s=age, **{**rest, **flat, quantity: int(value(age, rng))})
        for age in range(0, seconds, EVERY_S)
    ]


def grows_in(found: Flatness) -> set[str]:
    return {each.quantity for each in found.judgements if not each.is_flat}


def noisy(base: float, noise: float, growth: float = 0.0) -> Series:
    """`growth`: in an hour."""
    return lambda age, rng: base + rng.uniform(-noise, noise) + growth * age / HOUR_S


@pytest.mark.parametrize("quantity", EVERY_QUANTITY)
def test_what_stays_is_flat_and_what_grows_by_twice_its_limit_is_not(quantity: str) -> None:
    base, limit = 100 * LIMITS[quantity], LIMITS[quantity]
    assert judge(series(quantity, noisy(base, limit))).is_flat
    assert grows_in(judge(series(quantity, noisy(base, limit, 2 * limit)))) == {quantity}


def test_what_grows_before_it_is_warm_is_flat() -> None:
    assert judge(series("pss", lambda age, rng: MIB * (40 + 50 * min(1.0, age / 1200)))).is_flat


def test_a_saw_and_a_wave_are_flat_and_stairs_are_not() -> None:
    assert judge(series("pss", lambda age, rng: MIB * (90 + age % 120 / 10))).is_flat
    assert judge(series("pss", lambda age, rng: MIB * (90 + 10 * math.sin(age / 60)))).is_flat
    assert grows_in(judge(series("pss", lambda age, rng: MIB * (90 + age // 300)))) == {"pss"}, "12 MiB an hour"


def test_one_jump_and_a_few_peaks_are_flat() -> None:
    assert judge(series("descriptors", lambda age, rng: 60 + 40 * (age > 3300))).is_flat
    assert judge(series("pss", lambda age, rng: MIB * (90 + 3 * (age > 2400)))).is_flat
    assert judge(series("descriptors", lambda age, rng: 60 + 200 * (rng.random() < 0.05))).is_flat


def test_what_becomes_less_is_flat() -> None:
    assert judge(series("pss", noisy(90 * MIB, MIB, -20 * MIB))).is_flat


def test_each_life_is_judged_by_itself() -> None:
    level = [sample for life in range(3) for sample in series("pss", noisy((90 + 20 * life) * MIB, MIB), life=life)]
    assert judge(level).is_flat, "a later life may begin higher: its directory has more in it"
    leaking = series("pss", noisy(90 * MIB, MIB, 50 * MIB), life=3)
    assert {each.life for each in judge([*level, *leaking]).judgements if not each.is_flat} == {3}


def test_lives_that_are_too_short_say_nothing_and_nothing_is_not_flat() -> None:
    short = series("pss", noisy(90 * MIB, MIB), seconds=2900)
    assert judge(short).judgements == ()
    assert not judge(short).is_flat
    assert not judge([]).is_flat
    assert "no life is long enough" in str(judge([]))
