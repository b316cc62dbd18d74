"""The verdict on a server's growth can go either way, and does so for the right series; samples become a picture."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.soak.report import EVERY_QUANTITY, LIMITS, MIB, judge
from tests.soak.sampling import draw, rates

from .sampling import Sample, disk_bytes, memory_of, values_of

HOUR_S: Final = 3600
EVERY_S: Final = 5
Series = Callable[[float, random.Random], float]
"""Of the age in seconds."""


def series(quantity: str, value: Series, *, life: int = 0, seconds: int = HOUR_S) -> list[Sample]:
    rng = random.Random(quantity)
    flat = {"pss": 90 * MIB, "private": 80 * MIB, "descriptors": 60, "threads": 8, "tasks": 40}
    rest = {"rss": 0, "children": 0, "segments": 0, "disk_bytes": 0, "cpu_s": 0.0}
    return [
        Sample(
            at_s=age + life * HOUR_S, life=life, age_s=age, records=10 * age, **{**rest, **flat, quantity: int(value(age, rng))}
        )
        for age in range(0, seconds, EVERY_S)
    ]


def noisy(base: float, noise: float, growth: float = 0.0) -> Series:
    """`growth`: in an hour."""
    return lambda age, rng: base + rng.uniform(-noise, noise) + growth * age / HOUR_S


LEVELS: Final = [sample for life in range(3) for sample in series("pss", noisy((90 + 20 * life) * MIB, MIB), life=life)]


@pytest.mark.parametrize(
    ("growing", "samples"),
    [
        *((set(), series(each, noisy(100 * limit, limit))) for each, limit in LIMITS.items()),
        *(({(each, 0)}, series(each, noisy(100 * limit, limit, 2 * limit))) for each, limit in LIMITS.items()),
        # before it is warm, a saw, a wave, one jump, a few peaks, less and less
        (set(), series("pss", lambda age, rng: MIB * (40 + 50 * min(1.0, age / 1200)))),
        (set(), series("pss", lambda age, rng: MIB * (90 + age % 120 / 10))),
        (set(), series("pss", lambda age, rng: MIB * (90 + 10 * math.sin(age / 60)))),
        (set(), series("descriptors", lambda age, rng: 60 + 40 * (age > 3300))),
        (set(), series("pss", lambda age, rng: MIB * (90 + 3 * (age > 2400)))),
        (set(), series("descriptors", lambda age, rng: 60 + 200 * (rng.random() < 0.05))),
        (set(), series("pss", noisy(90 * MIB, MIB, -20 * MIB))),
        # stairs of 12 MiB an hour
        ({("pss", 0)}, series("pss", lambda age, rng: MIB * (90 + age // 300))),
        # a later life may begin higher: its directory has more in it
        (set(), LEVELS),
        ({("pss", 3)}, [*LEVELS, *series("pss", noisy(90 * MIB, MIB, 50 * MIB), life=3)]),
    ],
)
def test_what_grows_in_a_life_is_found_and_nothing_else(growing: set[tuple[str, int]], samples: list[Sample]) -> None:
    found = judge(samples)
    assert {each.quantity for each in found.judgements} == set(EVERY_QUANTITY)
    assert {(each.quantity, each.life) for each in found.judgements if not each.is_flat} == growing
    assert found.is_flat is not bool(growing)


def test_lives_that_are_too_short_say_nothing_and_nothing_is_not_flat() -> None:
    short = judge(series("pss", noisy(90 * MIB, MIB), seconds=2900))
    assert short.judgements == ()
    assert not short.is_flat
    assert "no life is long enough" in str(judge([]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """matplotlib opens its fonts when it first draws text, and keeps them open."""
    path = tmp_path_factory.mktemp("pictures")
    draw(LEVELS, "a title", path / "soak.svg")
    return path


def test_the_picture_has_all_curves_and_is_the_same_again(folder: Path) -> None:
    text = (folder / "soak.svg").read_text()
    for label in ("a title", "memory, MiB", "private", "descriptors", "tasks", "segments", "on disk, MiB", "records a second"):
        assert label in text
    draw(LEVELS, "a title", folder / "again.svg")
    assert (folder / "again.svg").read_text() == text
    assert {rate for _, rate in rates(LEVELS)} == {10.0}, "of one life each"


def test_figures_of_a_process_are_read(tmp_path: Path) -> None:
    text = '# HELP a b\na_total 3.0\nb{topic="t t",partition="1"} 1e+06\n'
    assert dict(values_of(text)) == {"a_total": 3.0, 'b{topic="t t",partition="1"}': 1e6}
    memory = memory_of(os.getpid())
    assert 0 < memory["Private_Dirty"] <= memory["Pss"] <= memory["Rss"]
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 100_000 <= disk_bytes(tmp_path) < 200_000
