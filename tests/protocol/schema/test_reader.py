"""Hostile bytes: whatever is read ends in a value or in RemoteProtocolError, and costs memory only for bytes that are there."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.limits import MAX_STRING_CHARS
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import BYTES, INT8, INT64, RECORDS, STRING, wire
from triolog.protocol.schema.fields import struct as structure
from triolog.protocol.schema.primitives import MAX_ELEMENTS, write_unsigned_varint
from triolog.protocol.types import Bytes

from tests.support.counts import counts
from tests.support.kafka_everything import FIRST_FLEXIBLE, LAST_VERSION, Everything, Leaf, Small
from tests.support.kafka_values import random_value

VERSIONS = range(LAST_VERSION + 1)


@structure
class Text:
    text: str = wire(STRING)


@structure
class NullText:
    text: str | None = wire(STRING, nullable="0+")


@structure
class Blob:
    blob: bytes = wire(BYTES)


@structure
class Records:
    records: Bytes | None = wire(RECORDS)


@structure
class Numbers:
    numbers: list[int] = wire([INT64])


@structure
class Leaves:
    leaves: list[Leaf] = wire([Leaf])


@structure
class Nothing:
    """No fields."""


@structure
class Nested:
    leaves: list[Leaves] = wire([Leaves])


@structure
class Tagged:
    text: str = wire(STRING, tag=0, default=...)
    leaf: Leaf = wire(Leaf, tag=1, default=...)
    number: int = wire(INT8, tag=3, default=...)


LONG: Final = (2**15 - 1, 2**31 - 1)


def read(cls: type, data: bytes, *, flexible: bool, version: int = 0) -> Any:
    return codec.read(cls, version, memoryview(data), flexible=flexible)[0]


def refused(cls: type, data: bytes, *, flexible: bool) -> str:
    """What is said about the data. Nothing may be allocated for what it claims, nor time be taken."""
    with pytest.raises(RemoteProtocolError):
        read(cls, data, flexible=flexible)  # the reader is made now
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError) as caught:
            read(cls, data, flexible=flexible)
        assert tracemalloc.get_traced_memory()[1] < 20_000 + 10 * len(data)
    finally:
        tracemalloc.stop()
    return str(caught.value)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cls", [Everything, Small])
@settings(max_examples=counts(60))  # each has up to 2,000 cuts
@given(seed=st.integers(0, 2**32 - 1))
def test_every_cut_is_refused(cls: type, version: int, seed: int) -> None:
    flexible = version >= FIRST_FLEXIBLE
    data = b"".join(codec.write(random_value(cls, version, Random(seed)), version, flexible=flexible))
    for stop in range(min(len(data), 2000)):
        with pytest.raises(RemoteProtocolError):
            read(cls, data[:stop], flexible=flexible, version=version)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.binary(max_size=200))
def test_garbage_is_a_value_or_refused(version: int, data: bytes) -> None:
    for cls in (Everything, Small, Tagged):
        try:
            codec.read(cls, version, memoryview(data), flexible=version >= FIRST_FLEXIBLE)
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("version", VERSIONS)
@given(seed=st.integers(0, 2**32 - 1), data=st.data())
def test_changed_bytes_are_a_value_or_refused(version: int, seed: int, data: st.DataObject) -> None:
    flexible = version >= FIRST_FLEXIBLE
    good = bytearray(b"".join(codec.write(random_value(Everything, version, Random(seed)), version, flexible=flexible)))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        codec.read(Everything, version, memoryview(good), flexible=flexible)
    except RemoteProtocolError:
        return


@pytest.mark.parametrize("length", [-(2**15), -2, 1, 2**15 - 1])
@pytest.mark.parametrize("cls", [Text, NullText])
def test_lengths_of_strings_that_are_negative_or_above_what_is_there_are_refused(cls: type, length: int) -> None:
    assert f"{length}" in refused(cls, struct.pack(">h", length), flexible=False)


@pytest.mark.parametrize("length", [-(2**31), -2, 1, 2**31 - 1])
@pytest.mark.parametrize("cls", [Blob, Records])
def test_lengths_of_bytes_that_are_negative_or_above_what_is_there_are_refused(cls: type, length: int) -> None:
    assert f"{length}" in refused(cls, struct.pack(">i", length), flexible=False)


@pytest.mark.parametrize("length", [1, *LONG])
@pytest.mark.parametrize("cls", [Text, NullText, Blob, Records])
def test_compact_lengths_above_what_is_there_are_refused(cls: type, length: int) -> None:
    assert f"claims {length} bytes, 0 are left" in refused(cls, write_unsigned_varint(length + 1), flexible=True)


@pytest.mark.parametrize("count", [-(2**31), -2, -1, 9, 2**31 - 1])
@pytest.mark.parametrize("cls", [Numbers, Leaves])
def test_counts_that_are_negative_or_above_what_is_there_are_refused(cls: type, count: int) -> None:
    assert f"{count}" in refused(cls, struct.pack(">i", count) + bytes(8), flexible=False)


@pytest.mark.parametrize("count", [8, 9, *LONG, 2**32 - 2])
@pytest.mark.parametrize("cls", [Numbers, Leaves])
def test_compact_counts_above_what_is_there_are_refused(cls: type, count: int) -> None:
    refused(cls, write_unsigned_varint(count + 1) + bytes(8), flexible=True)


@pytest.mark.parametrize("cls", [Text, Blob, Numbers, Leaves])
def test_null_is_refused_where_it_is_not_allowed(cls: type) -> None:
    assert "may not be null" in refused(cls, b"\0\0", flexible=True)
    assert "may not be null" in refused(cls, b"\xff" * 4, flexible=False)


def test_null_that_a_later_version_allows_is_refused_before() -> None:
    data = b"".join(codec.write(Everything(null_text=None), 1, flexible=False))
    assert read(Everything, data, flexible=False, version=1).null_text is None
    with pytest.raises(RemoteProtocolError, match="null_text has a length of -1"):
        read(Everything, data, flexible=False, version=0)


def test_elements_of_a_message_have_a_limit_together() -> None:
    arrays = b"".join(write_unsigned_varint(count + 1) + bytes(5 * count) + b"\0" for count in (MAX_ELEMENTS - 12, 10))
    assert len(read(Nested, b"\3" + arrays + b"\0", flexible=True).leaves) == 2
    arrays = b"".join(write_unsigned_varint(count + 1) + bytes(5 * count) + b"\0" for count in (MAX_ELEMENTS - 12, 11))
    assert "leaves.leaves has 11 elements, a message may have 100000" in _complaint(Nested, b"\3" + arrays + b"\0")


def _complaint(cls: type, data: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        read(cls, data, flexible=True)
    return str(caught.value)


def test_tagged_fields_count_as_elements_so_that_a_frame_full_of_them_costs_no_seconds() -> None:
    tags = 5_000_000
    assert f"has {tags} elements" in refused(Nothing, write_unsigned_varint(tags) + bytes(2 * tags), flexible=True)
    fitting = write_unsigned_varint(MAX_ELEMENTS) + b"\5\0" * MAX_ELEMENTS
    assert read(Nothing, fitting, flexible=True) == Nothing()
    above = write_unsigned_varint(MAX_ELEMENTS + 1) + b"\5\0" * (MAX_ELEMENTS + 1)
    assert "a message may have" in _complaint(Nothing, above)


def test_a_compact_string_may_be_as_long_as_any_other_and_no_longer() -> None:
    """Kafka refuses it too: an answer in a version with lengths of 16 bits could not repeat it."""
    longest = write_unsigned_varint(MAX_STRING_CHARS + 1) + b"x" * MAX_STRING_CHARS + b"\0"
    assert read(Text, longest, flexible=True).text == "x" * MAX_STRING_CHARS
    longer = write_unsigned_varint(MAX_STRING_CHARS + 2) + b"x" * (MAX_STRING_CHARS + 1) + b"\0"
    assert "has 32768 bytes, a string may have 32767" in _complaint(Text, longer)
    blob = write_unsigned_varint(MAX_STRING_CHARS + 2) + b"x" * (MAX_STRING_CHARS + 1) + b"\0"
    assert len(read(Blob, blob, flexible=True).blob) == MAX_STRING_CHARS + 1


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"], ids=repr)
def test_a_string_that_is_not_utf_8_is_refused(text: bytes) -> None:
    assert "not UTF-8" in refused(Text, struct.pack(">h", len(text)) + text, flexible=False)
    assert "not UTF-8" in refused(Text, write_unsigned_varint(len(text) + 1) + text + b"\0", flexible=True)
    beside_records = b"".join(codec.write(Everything(text="x" * len(text)), 3, flexible=True)).replace(b"x" * len(text), text)
    with pytest.raises(RemoteProtocolError, match="Everything v3: a string is not UTF-8"):
        read(Everything, beside_records, flexible=True, version=3)


@pytest.mark.parametrize("varint", [b"\x80" * 5 + b"\0", b"\xff" * 9], ids=len)
def test_varints_that_are_too_long_are_refused_wherever_they_stand(varint: bytes) -> None:
    for cls in (Text, Blob, Records, Numbers, Leaves, Nothing):
        assert "more than 5 bytes" in refused(cls, varint, flexible=True)
    assert "more than 5 bytes" in refused(Nothing, b"\1" + varint, flexible=True)
    assert "more than 5 bytes" in refused(Nothing, b"\1\1" + varint, flexible=True)


def test_a_varint_in_more_bytes_than_it_needs_is_read() -> None:
    assert read(Text, b"\x83\x80\x00ab\0", flexible=True) == Text(text="ab")


def test_unknown_tagged_fields_are_passed_over_between_known_ones() -> None:
    tags = b"\5" + b"\0\4\4abc" + b"\1\5\0\0\0\7\0" + b"\2\3xyz" + b"\3\1\5" + b"\xff\xff\xff\xff\x0f\1\0"
    assert read(Tagged, tags, flexible=True) == Tagged(text="abc", leaf=Leaf(number=7), number=5)


@pytest.mark.parametrize(
    "tag",
    [b"\0\5\4abc", b"\0\3\4abc", b"\1\4\0\0\0\7\0", b"\1\6\0\0\0\7\0\0", b"\3\2\5\5", b"\3\0\5"],
    ids=["longer", "shorter", "structure shorter", "structure longer", "number longer", "number empty"],
)
def test_a_tagged_field_whose_size_is_not_that_of_its_content_is_refused(tag: bytes) -> None:
    assert "its size says" in refused(Tagged, b"\1" + tag + bytes(20), flexible=True)


@pytest.mark.parametrize("tag", [b"\0\4\4ab", b"\7\4\4ab", b"\7\xff\xff\xff\xff\x0f"], ids=["known", "unknown", "huge"])
def test_a_tagged_field_above_what_is_there_is_refused(tag: bytes) -> None:
    assert "the tagged fields of the message claims" in refused(Tagged, b"\1" + tag, flexible=True)


def test_tagged_fields_that_are_announced_and_missing_are_refused() -> None:
    assert "ends too early" in refused(Tagged, b"\2\7\1x" + b"\7", flexible=True)
    assert "claims 3 elements, 2 bytes are left" in refused(Tagged, b"\3\7\0", flexible=True)
