from __future__ import annotations

import pytest
from triolog.protocol.types import NO_OFFSET, TopicPartition
from triolog.tools.spark.source import bounds
from triolog.tools.spark.source.bounds import AtOffsets, AtTime, AtTimes, Bound, BoundError, Earliest, Latest, PartitionRange

NAME = TopicPartition("t", 0)
RANGE = PartitionRange(10, 90, 1000)


@pytest.mark.parametrize(
    ("bound", "found", "start", "end"),
    [
        (Earliest(), None, 10, 10),
        (Latest(), None, 90, 90),
        (AtOffsets({NAME: 42}, "o"), None, 42, 42),
        (AtOffsets({NAME: -2}, "o"), None, 10, 10),
        (AtOffsets({NAME: -1}, "o"), None, 90, 90),
        (AtTime(5, "o"), 33, 33, 33),
        (AtTimes({NAME: 5}, "o"), 33, 33, 33),
    ],
)
def test_a_bound_is_an_offset(bound: Bound, found: int | None, start: int, end: int) -> None:
    assert (bounds.question(bound, NAME) is not None) is (found is not None)
    assert bounds.start_offset(bound, NAME, RANGE, found, "error") == start
    assert bounds.end_offset(bound, NAME, RANGE, found) == end


def test_what_has_no_offset_is_an_error_that_names_the_option() -> None:
    with pytest.raises(BoundError, match=r"option o: no record of t-0 is at or after 5 ms; .* offset 90"):
        bounds.start_offset(AtTime(5, "o"), NAME, RANGE, NO_OFFSET, "error")
    assert bounds.start_offset(AtTime(5, "o"), NAME, RANGE, NO_OFFSET, "latest") == 90
    assert bounds.end_offset(AtTimes({NAME: 5}, "o"), NAME, RANGE, NO_OFFSET) == 90
    partitions = {TopicPartition("t", number): None for number in range(9)}
    with pytest.raises(BoundError, match="option o leaves out t-1, t-2, t-3, t-4, t-5 and 3 more"):
        bounds.check_partitions(AtOffsets({NAME: 5}, "o"), partitions)


@pytest.mark.parametrize(
    ("bound", "moves"),
    [
        (Earliest(), True),
        (Latest(), True),
        (AtTime(5, "o"), True),
        (AtOffsets({NAME: 5}, "o"), False),
        (AtOffsets({NAME: -1}, "o"), True),
    ],
)
def test_only_offsets_stay_where_they_are(bound: Bound, moves: bool) -> None:
    assert bounds.is_moving(bound) is moves
