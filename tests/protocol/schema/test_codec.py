from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.limits import INT16_MAX, UINT32_MAX
from triolog.protocol.schema import codec, primitives
from triolog.protocol.schema.fields import Versions, all_fields, fields_of
from triolog.protocol.schema.primitives import COPIED_BYTES

from tests.support.in_steps import finished
from tests.support.kafka_everything import FIRST_FLEXIBLE, LAST_VERSION, Everything, Inner, Leaf, Small
from tests.support.kafka_values import random_value

VERSIONS = range(LAST_VERSION + 1)
SEEDS = st.integers(0, 2**32 - 1)


def written(value: Any, version: int) -> bytes:
    return b"".join(codec.write(value, version, flexible=version >= FIRST_FLEXIBLE))


def read(cls: type, version: int, data: bytes) -> Any:
    return codec.read(cls, version, memoryview(data), flexible=version >= FIRST_FLEXIBLE)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cls", [Everything, Small, Inner, Leaf])
@given(seed=SEEDS)
def test_what_is_written_is_read_back_and_writing_in_steps_writes_the_same(cls: type, version: int, seed: int) -> None:
    value = random_value(cls, version, Random(seed))
    flexible = version >= FIRST_FLEXIBLE
    buffers = codec.write(value, version, flexible=flexible)
    data = b"".join(buffers)
    assert read(cls, version, data) == (value, len(data))
    assert finished(codec.write_steps(value, version, flexible=flexible)) == buffers


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cls", [Everything, Small, Inner, Leaf])
@given(seed=SEEDS, cut=st.floats(0, 1))
def test_reading_in_steps_finds_and_refuses_the_same(cls: type, version: int, seed: int, cut: float) -> None:
    data = written(random_value(cls, version, Random(seed)), version)
    flexible = version >= FIRST_FLEXIBLE
    assert finished(codec.read_steps(cls, version, memoryview(data), flexible=flexible)) == read(cls, version, data)
    part = data[: int(len(data) * cut)]
    said = []
    for reader in (codec.read, lambda *args, **options: finished(codec.read_steps(*args, **options))):
        try:
            said.append(reader(cls, version, memoryview(part), flexible=flexible))
        except RemoteProtocolError as exc:
            said.append(str(exc))
    assert said[0] == said[1]


@given(seed=SEEDS, before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_a_structure_is_read_from_between_other_bytes(seed: int, before: bytes, after: bytes) -> None:
    for cls in (Everything, Small):
        value = random_value(cls, 3, Random(seed))
        data = written(value, 3)
        between = memoryview(before + data + after)
        assert codec.read(cls, 3, between, len(before), flexible=True) == (value, len(before) + len(data))


def test_the_bytes_of_both_encodings_are_kafkas() -> None:
    value = Small(text="ab", null_text=None, blob=b"\xff", numbers=[1, -1], leaves=[Leaf(number=5)], tagged="t")
    assert codec.write(value, 0, flexible=False) == [
        b"\0\2ab" + b"\xff\xff" + b"\0\0\0\1\xff" + b"\0\0\0\2\0\0\0\1\xff\xff\xff\xff" + b"\0\0\0\1\0\0\0\5" + b"\0\1t"
    ]
    assert codec.write(value, 2, flexible=True) == [
        b"\3ab" + b"\0" + b"\2\xff" + b"\3\0\0\0\1\xff\xff\xff\xff" + b"\2\0\0\0\5\0" + b"\1\0\2\2t"
    ]


def test_large_records_are_handed_through_in_both_directions_and_small_ones_copied() -> None:
    large, small = memoryview(bytes(COPIED_BYTES)), bytes(COPIED_BYTES - 1)
    head, records, tail = codec.write(Everything(records=large), 3, flexible=True)
    assert records is large
    assert len(head) + len(tail) == len(written(Everything(records=b""), 3)) + 2  # a varint of three bytes in place of one
    assert len(codec.write(Everything(records=small), 3, flexible=True)) == 1
    data = head + bytes(records) + tail
    found, _ = read(Everything, 3, data)
    assert isinstance(found.records, memoryview)
    assert found.records.obj is data


def test_records_in_a_tagged_field_are_copied_since_their_size_comes_before() -> None:
    value = Everything(tagged_records=bytes(2 * COPIED_BYTES))
    buffers = codec.write(value, 3, flexible=True)
    assert len(buffers) == 1
    assert read(Everything, 3, bytes(buffers[0]))[0] == value


def test_strings_and_bytes_that_were_read_do_not_hold_the_frame() -> None:
    found, _ = read(Everything, 3, written(Everything(blob=b"blob", null_blob=b"", uuid=bytes(range(16))), 3))
    assert type(found.blob) is type(found.null_blob) is type(found.uuid) is bytes


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300, 20_000])
@pytest.mark.parametrize("version", VERSIONS)
def test_arrays_of_any_length_round_trip(count: int, version: int) -> None:
    numbers = list(range(count))
    value = Everything(
        numbers=numbers,
        null_numbers=numbers,
        shorts=[number % 100 for number in numbers],
        texts=["t"] * count,
        inner=Inner(name="n", leaves=[Leaf(number=number) for number in numbers], names=[], leaf=Leaf()),
        null_text="",
        null_blob=b"",
    )
    data = written(value, version)
    assert read(Everything, version, data) == (value, len(data))


@pytest.mark.parametrize(("name", "number"), [("int8", 128), ("int16", -(2**15) - 1), ("int32", 2**31), ("uint16", -1)])
def test_a_number_outside_its_range_is_not_written(name: str, number: int) -> None:
    with pytest.raises(struct.error):
        written(Everything(**{name: number}), 0)


@pytest.mark.parametrize(
    "wrong", [{"text": None}, {"numbers": None}, {"blob": None}, {"inner": None}, {"uuids": None}], ids=str
)
def test_null_where_it_is_not_allowed_is_not_written(wrong: dict[str, None]) -> None:
    with pytest.raises((TypeError, AttributeError)):
        written(Everything(**wrong), 3)  # type: ignore[arg-type]


def test_null_that_only_later_versions_know_is_not_written_in_earlier_ones() -> None:
    value = Everything(null_text=None)
    assert read(Everything, 1, written(value, 1))[0] == value
    with pytest.raises(AttributeError):
        written(value, 0)


def test_an_error_names_the_structure_the_version_and_the_field() -> None:
    with pytest.raises(RemoteProtocolError, match="Small v3 ends too early: it has 3 bytes"):
        read(Small, 3, b"\3ab")
    with pytest.raises(RemoteProtocolError, match="Small v0: a string is not UTF-8"):
        read(Small, 0, b"\0\1\xff")
    with pytest.raises(RemoteProtocolError, match=r"Small v3: leaves claims 126 elements, 1 bytes are left"):
        read(Small, 3, b"\1\0\1\1\x7f\0")


@pytest.mark.parametrize(
    ("text", "first", "last"), [("0+", 0, INT16_MAX), ("3+", 3, INT16_MAX), ("2-5", 2, 5), ("4", 4, 4), ("none", 0, -1)]
)
def test_versions_are_written_as_in_kafkas_schemas(text: str, first: int, last: int) -> None:
    assert Versions.parse(text) == (first, last)


@pytest.mark.parametrize("text", ["", "+", "a", "1-", "-1", "1-2+", "1+-2", "1,2"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Versions.parse(text)


def test_versions_contain_their_ends_and_nothing_else_alone_or_together() -> None:
    assert [version for version in range(8) if version in Versions.parse("2-5")] == [2, 3, 4, 5]
    assert 0 not in Versions.parse("none")
    assert "2" not in Versions.parse("2-5")
    assert Versions.parse("0-12").both(Versions.parse("8+")) == Versions(8, 12)
    assert not Versions.parse("0-7").both(Versions.parse("7")).are_none
    assert Versions.parse("0-7").both(Versions.parse("8+")).are_none
    assert Versions.parse("0+").both(Versions.parse("none")).are_none


def test_a_version_has_its_fields_in_the_order_of_the_declaration() -> None:
    assert [field.name for field in fields_of(Leaf, 2)] == ["number"]
    assert [field.name for field in fields_of(Leaf, 3)] == ["number", "late"]
    names = [field.name for field in all_fields(Everything)]
    assert [field.name for field in fields_of(Everything, 0)] == [name for name in names if name in _names(Everything, 0)]
    assert "early" in _names(Everything, 1)
    assert "early" not in _names(Everything, 2)


def _names(cls: type, version: int) -> set[str]:
    return {field.name for field in fields_of(cls, version)}


def test_fields_have_defaults_of_their_own() -> None:
    value = Everything()
    assert (value.flag, value.int64, value.float64, value.text, value.blob) == (False, 0, 0.0, "", b"")
    assert (value.uuid, value.records, value.numbers, value.early) == (bytes(16), None, [], 7)
    assert value.inner == Inner(name="", leaves=[], names=None, leaf=None, tagged_leaf=Leaf(number=-1, late=-1))
    first, second = Everything(), Everything()
    first.numbers.append(1)
    first.inner.leaves.append(Leaf())
    assert second == Everything()


NUMBERS = st.one_of(
    st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**21, 2**28 - 1, 2**28, UINT32_MAX]), st.integers(0, UINT32_MAX)
)


@given(number=NUMBERS, before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_varints_round_trip_and_are_those_of_protobuf(number: int, before: bytes, after: bytes) -> None:
    encoded = primitives.write_unsigned_varint(number)
    assert encoded == _VarintBytes(number)
    data = memoryview(before + encoded + after)
    assert primitives.read_unsigned_varint(data, len(before)) == (number, len(before) + len(encoded))


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\0", b"\xff" * 6, b"\xff" * 100], ids=len)
def test_a_varint_of_more_than_five_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="more than 5 bytes"):
        primitives.read_unsigned_varint(memoryview(data), 0)


def test_a_varint_above_32_bits_or_cut_off_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="4294967296, above 32 bits"):
        primitives.read_unsigned_varint(memoryview(b"\x80\x80\x80\x80\x10"), 0)
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
        (primitives.refuse_count, 7, r"x has 7 elements\. All arrays of a message may have"),
    ],
)
def test_what_is_refused_says_what_is_wrong_with_it(refuse: Callable[..., object], number: int, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        refuse("x", number, 8)
