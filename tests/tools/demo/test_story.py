from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.demo.checks import Check
from triolog.tools.demo.command import MIN_ROWS
from triolog.tools.demo.story import Findings, kill_point


@given(st.integers(MIN_ROWS, 400_000), st.integers())
def test_the_kill_point_is_about_the_middle_and_the_seed_decides(total: int, seed: int) -> None:
    assert 0.44 * total < kill_point(total, seed) < 0.56 * total
    assert kill_point(total, seed) == kill_point(total, seed)


def test_nothing_has_held_before_anything_was_checked() -> None:
    assert not Findings().all_held


def test_one_failed_check_is_enough() -> None:
    right, wrong = Check("a", True, ""), Check("b", False, "")
    assert Findings(checks=[right, right]).all_held
    assert not Findings(checks=[right, wrong, right]).all_held
