from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.pictures.space_picture import Box, treemap

WHOLE = Box(20, 50, 840, 250)


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=60).map(lambda sizes: sorted(sizes, reverse=True)))
def test_areas_are_shares_of_the_whole_and_stay_inside(sizes: list[int]) -> None:
    boxes = treemap(sizes, WHOLE)
    assert len(boxes) == len(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        share = size / sum(sizes) if sum(sizes) else 0
        assert box.width * box.height == pytest.approx(share * WHOLE.width * WHOLE.height, abs=0.01)
        assert WHOLE.x - 0.01 <= box.x <= box.x + box.width <= WHOLE.x + WHOLE.width + 0.01
        assert WHOLE.y - 0.01 <= box.y <= box.y + box.height <= WHOLE.y + WHOLE.height + 0.01


def test_boxes_are_about_square_and_do_not_lie_on_each_other() -> None:
    boxes = treemap([50, 30, 10, 5, 3, 1, 1], WHOLE)
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert across < 0.01 or down < 0.01
    assert all(0.5 < box.width / box.height < 2 for box in treemap([7] * 12, WHOLE))
    assert treemap([0, 0], WHOLE) == [Box(20, 50, 0, 0)] * 2
    assert treemap([5], Box(0, 0, 0, 10)) == [Box(0, 0, 0, 0)]
    assert Box(0, 0, 1, 9).inset(2) == Box(0.5, 0.5, 0, 8)
