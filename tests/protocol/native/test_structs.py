from __future__ import annotations

import attrs
import pytest
from triolog.protocol.native import kinds, structs


@structs.struct
class Marked(structs.Partition):
    marked: bool = structs.wire(kinds.BOOL, default=False)


@structs.struct
class MarkedResponse(structs.ResponseMessage):
    api = "marked"
    partitions: tuple[Marked, ...] = structs.wire([Marked])


def test_a_struct_is_written_whole_when_its_base_was_written_before() -> None:
    assert structs.Partition("t", 0).to_body() == {"topic": "t", "partition": 0}
    assert Marked("t", 0, True).to_body() == {"topic": "t", "partition": 0, "marked": True}


def test_a_value_that_was_read_is_as_frozen_and_as_equal_as_one_that_was_made() -> None:
    made = MarkedResponse((Marked("t", 0, True),))
    read = MarkedResponse.from_body(made.to_body())
    assert (read, hash(read), repr(read)) == (made, hash(made), repr(made))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        read.partitions[0].marked = False  # type: ignore[misc]
