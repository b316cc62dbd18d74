from __future__ import annotations

import io
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.readers import read_unsigned_varint as read_with_kio
from kio.serial.writers import write_unsigned_varint as write_with_kio
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.limits import UINT32_MAX
from triolog.protocol.schema import primitives

NUMBERS = st.one_of(
    st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**21, 2**28 - 1, 2**28, UINT32_MAX]), st.integers(0, UINT32_MAX)
)


@given(number=NUMBERS, before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_varints_round_trip_and_are_kios(number: int, before: bytes, after: bytes) -> None:
    encoded = primitives.write_unsigned_varint(number)
    with io.BytesIO() as theirs:
        write_with_kio(theirs, number)
        assert encoded == theirs.getvalue()
    assert read_with_kio(encoded, 0) == (number, len(encoded))
    data = memoryview(before + encoded + after)
    assert primitives.read_unsigned_varint(data, len(before)) == (number, len(before) + len(encoded))


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\0", b"\xff" * 6, b"\xff" * 100], ids=len)
def test_a_varint_of_more_than_five_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="more than 5 bytes"):
        primitives.read_unsigned_varint(memoryview(data), 0)


def test_a_varint_above_32_bits_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="4294967296, above 32 bits"):
        primitives.read_unsigned_varint(memoryview(b"\x80\x80\x80\x80\x10"), 0)


def test_a_varint_that_ends_too_early_is_the_end_of_the_data() -> None:
    with pytest.raises(IndexError):
        primitives.read_unsigned_varint(memoryview(b"\x80\x80"), 0)


def test_layouts_are_those_of_their_counts_and_not_all_are_kept() -> None:
    arrays = primitives.ArrayLayouts("i")
    flexible = primitives.RunLayouts([primitives.Segment("hx", 1, "i"), primitives.Segment("16s", 1, "b")], "x", flexible=True)
    other = primitives.RunLayouts([primitives.Segment("", 0, "i"), primitives.Segment("h", 1, "b")], "", flexible=False)
    for count in range(2 * primitives.KEPT_LAYOUTS):
        numbers, count_varint = list(range(count)), primitives.write_unsigned_varint(count + 1)
        packed = struct.pack(f">{count}i", *numbers)
        assert arrays[count].pack(*numbers) == packed
        made = flexible[count + 1, 2](-2, count + 1, *numbers, bytes(16), 2, 5)
        assert made == b"\xff\xfe\0" + count_varint + packed + bytes(16) + b"\2\5\0"
        made = other[count, 1](count, *numbers, 9, 1, 5)
        assert made == struct.pack(">i", count) + packed + b"\0\x09\0\0\0\1\5"
    assert len(arrays) == len(flexible) == len(other) == primitives.KEPT_LAYOUTS


def test_an_array_that_is_null_has_no_numbers() -> None:
    assert primitives.RunLayouts([primitives.Segment("", 0, "i")], "x", flexible=True)[0,](0) == b"\0\0"
    assert primitives.RunLayouts([primitives.Segment("", 0, "i")], "x", flexible=False)[-1,](-1) == b"\xff\xff\xff\xff\0"


@pytest.mark.parametrize(
    ("refuse", "number", "complaint"),
    [
        (primitives.refuse_length, -1, "x has a length of -1 and may not be null"),
        (primitives.refuse_length, 9, "x claims 9 bytes, 8 are left"),
        (primitives.refuse_length, 7, "x has 7 bytes, a string may"),
        (primitives.refuse_count, -1, "x has a count of -1 and may not"),
        (primitives.refuse_count, 9, "x claims 9 elements, 8 bytes are left"),
        (primitives.refuse_count, 7, "x has 7 elements, a message"),
    ],
)
def test_what_is_refused_says_what_is_wrong_with_it(refuse: Callable[..., object], number: int, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        refuse("x", number, 8)
