from __future__ import annotations

import pytest
from triolog.tools.pictures.canvas import FILLS, PAPER, style

LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3."""


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("words", "below"),
    [
        *((words, below) for words in ("ink", "quiet") for below in ("paper", "panel", "zoom")),
        *(("found", "paper"), ("asked", "paper"), ("on-log", "log"), ("on-log", "other")),
    ],
)
def test_words_can_be_read(words: str, below: str, side: int) -> None:
    assert contrast(FILLS[words][side], FILLS[below][side]) >= LEAST_CONTRAST


def test_there_are_rules_for_light_and_for_dark() -> None:
    light, _, dark = style().partition("@media (prefers-color-scheme:dark)")
    assert f".tp .paper{{fill:{PAPER[0]}}}" in light
    assert f".tp .paper{{fill:{PAPER[1]}}}" in dark
