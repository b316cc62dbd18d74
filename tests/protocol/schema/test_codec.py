from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.schema import codec
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
