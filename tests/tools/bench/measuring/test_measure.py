from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.bench.measuring.report import Line, Verdict, absent, at_least, at_most, percentile, ratio


@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(values: list[int], share: float) -> None:
    needed = math.ceil(round(len(values) * share, 6))
    smallest = min(value for value in values if sum(other <= value for other in values) >= needed)
    assert percentile(values, share) == smallest


def test_a_target_looks_at_the_median_and_is_not_met_by_what_was_not_measured() -> None:
    samples = [1.0, 100.0, 2.0]
    assert Line("a", "ms", samples, at_most(2, "ms")).verdict is Verdict.MET
    assert Line("a", "ms", samples, at_most(1.9, "ms")).verdict is Verdict.MISSED
    assert Line("a", "k/s", samples, at_least(2, "k/s")).verdict is Verdict.MET
    assert Line("a", "k/s", samples, at_least(2.1, "k/s")).verdict is Verdict.MISSED
    assert Line("a", "ms", samples).verdict is Verdict.NO_TARGET
    assert absent("a", "nats-server not installed", at_most(math.inf, "ms")).verdict is Verdict.NOT_MEASURED
    assert list(ratio("a", [2.0, 30.0], [1.0, 10.0]).samples) == [2.0, 3.0]
    with pytest.raises(ValueError, match="shorter"):
        ratio("a", [1.0, 2.0], [1.0])
