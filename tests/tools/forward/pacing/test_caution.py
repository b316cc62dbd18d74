from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.forward.memory import Caution

PARTITION = ("topic", 0)


def forwarded(total: int, bad: set[int], most: int) -> tuple[list[int], list[int]]:
    """What is taken and what is found out to be refused, by an upstream that takes stretches whole or not at all."""
    caution, taken, refused, offset = Caution(), [], [], 0
    while offset < total:
        end = min(total, offset + most, offset + caution.limit(PARTITION))
        stretch = [each for each in range(offset, end) if each not in refused]
        if not bad & set(stretch):
            taken += stretch
            offset = end
            caution.accepted(PARTITION, len(stretch))
        elif caution.refused(PARTITION, len(stretch)):
            refused += stretch
    return taken, refused


@given(total=st.integers(1, 3000), bad=st.sets(st.integers(0, 2999), max_size=5), most=st.integers(1, 5000))
def test_exactly_the_bad_ones_are_found_and_all_others_go(total: int, bad: set[int], most: int) -> None:
    bad = {each for each in bad if each < total}
    taken, refused = forwarded(total, bad, most)
    assert sorted(refused) == sorted(bad)
    assert taken == [each for each in range(total) if each not in bad]


def test_it_is_trusted_again_after_a_while() -> None:
    caution = Caution()
    caution.accepted(PARTITION, 100)
    assert not caution.is_careful(PARTITION), "without refusals there is no limit"
    caution.refused(PARTITION, 1)
    for _ in range(12):
        caution.accepted(PARTITION, caution.limit(PARTITION))
    assert not caution.is_careful(PARTITION)
