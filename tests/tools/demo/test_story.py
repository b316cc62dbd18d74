from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.demo.command import MIN_ROWS
from triolog.tools.demo.story import kill_point


@given(st.integers(MIN_ROWS, 400_000), st.integers())
def test_the_kill_point_is_about_the_middle_and_the_seed_decides(total: int, seed: int) -> None:
    assert 0.44 * total < kill_point(total, seed) < 0.56 * total
    assert kill_point(total, seed) == kill_point(total, seed)
