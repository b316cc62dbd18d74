"""Hostile bytes: what is refused, and that it costs memory only for bytes that are there.

`kafka/messages/test_hostile.py` cuts and damages every message."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import product
from typing import Any

import pytest
from triolog.protocol import errors, limits, types
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import BYTES, INT8, INT64, RECORDS, STRING, wire
from triolog.protocol.schema.fields import struct as structure
from triolog.protocol.schema.primitives import MAX_ELEMENTS, write_unsigned_varint

from tests.support.kafka_everything import Everything, Leaf


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
    records: types.Bytes | None = wire(RECORDS)


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


def read(cls: type, data: bytes, *, flexible: bool, version: int = 0) -> Any:
    return codec.read(cls, version, memoryview(data), flexible=flexible)[0]


def refused(cls: type, data: bytes, *, flexible: bool) -> str:
    """What is said about the data. Nothing may be allocated for what it claims, nor time be taken."""
    with pytest.raises(errors.RemoteProtocolError):
        read(cls, data, flexible=flexible)  # the reader is made now
    tracemalloc.start()
    try:
        with pytest.raises(errors.RemoteProtocolError) as caught:
            read(cls, data, flexible=flexible)
        assert tracemalloc.get_traced_memory()[1] < 20_000 + 10 * len(data)
    finally:
        tracemalloc.stop()
    return str(caught.value)


@pytest.mark.parametrize(
    ("layout", "classes", "lengths"),
    [
        (">h", (Text, NullText), (-(2**15), -2, 1, 2**15 - 1)),
        (">i", (Blob, Records), (-(2**31), -2, 1, 2**31 - 1)),
        ("", (Text, NullText, Blob, Records), (1, 2**15 - 1, 2**31 - 1)),
    ],
    ids=["strings", "bytes", "compact"],
)
def test_negative_and_excessive_lengths_are_refused(layout: str, classes: tuple[type, ...], lengths: tuple[int, ...]) -> None:
    for cls, length in product(classes, lengths):
        data = struct.pack(layout, length) if layout else write_unsigned_varint(length + 1)
        said = f"{length}" if layout else f"claims {length} bytes, 0 are left"
        assert said in refused(cls, data, flexible=not layout), (cls, length)


@pytest.mark.parametrize("cls", [Numbers, Leaves])
def test_counts_that_are_negative_or_above_what_is_there_are_refused(cls: type) -> None:
    for count in (-(2**31), -2, -1, 9, 2**31 - 1):
        assert f"{count}" in refused(cls, struct.pack(">i", count) + bytes(8), flexible=False)
    for count in (8, 9, 2**15 - 1, 2**31 - 1, 2**32 - 2):
        refused(cls, write_unsigned_varint(count + 1) + bytes(8), flexible=True)


@pytest.mark.parametrize("cls", [Text, Blob, Numbers, Leaves])
def test_null_is_refused_where_it_is_not_allowed(cls: type) -> None:
    assert "may not be null" in refused(cls, b"\0\0", flexible=True)
    assert "may not be null" in refused(cls, b"\xff" * 4, flexible=False)


def test_null_that_a_later_version_allows_is_refused_before() -> None:
    data = b"".join(codec.write(Everything(null_text=None), 1, flexible=False))
    assert read(Everything, data, flexible=False, version=1).null_text is None
    with pytest.raises(errors.RemoteProtocolError, match="null_text has a length of -1"):
        read(Everything, data, flexible=False, version=0)


def test_elements_of_a_message_have_a_limit_together() -> None:
    arrays = b"".join(write_unsigned_varint(count + 1) + bytes(5 * count) + b"\0" for count in (MAX_ELEMENTS - 12, 10))
    assert len(read(Nested, b"\3" + arrays + b"\0", flexible=True).leaves) == 2
    arrays = b"".join(write_unsigned_varint(count + 1) + bytes(5 * count) + b"\0" for count in (MAX_ELEMENTS - 12, 11))
    assert "leaves.leaves has 11 elements. All arrays of a message may have 100000" in _complaint(
        Nested, b"\3" + arrays + b"\0"
    )


def _complaint(cls: type, data: bytes) -> str:
    with pytest.raises(errors.RemoteProtocolError) as caught:
        read(cls, data, flexible=True)
    return str(caught.value)


def test_tagged_fields_count_as_elements_so_that_a_frame_full_of_them_costs_no_seconds() -> None:
    tags = 5_000_000
    assert f"has {tags} elements" in refused(Nothing, write_unsigned_varint(tags) + bytes(2 * tags), flexible=True)
    fitting = write_unsigned_varint(MAX_ELEMENTS) + b"\5\0" * MAX_ELEMENTS
    assert read(Nothing, fitting, flexible=True) == Nothing()
    above = write_unsigned_varint(MAX_ELEMENTS + 1) + b"\5\0" * (MAX_ELEMENTS + 1)
    assert "of a message may have" in _complaint(Nothing, above)


def test_a_compact_string_may_be_as_long_as_any_other_and_no_longer() -> None:
    """Kafka refuses it too: an answer in a version with lengths of 16 bits could not repeat it."""
    longest = write_unsigned_varint(limits.MAX_STRING_CHARS + 1) + b"x" * limits.MAX_STRING_CHARS + b"\0"
    assert read(Text, longest, flexible=True).text == "x" * limits.MAX_STRING_CHARS
    longer = write_unsigned_varint(limits.MAX_STRING_CHARS + 2) + b"x" * (limits.MAX_STRING_CHARS + 1) + b"\0"
    assert "has 32768 bytes, a string may have 32767" in _complaint(Text, longer)
    assert len(read(Blob, longer, flexible=True).blob) == limits.MAX_STRING_CHARS + 1


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"], ids=repr)
def test_a_string_that_is_not_utf_8_is_refused(text: bytes) -> None:
    assert "not UTF-8" in refused(Text, struct.pack(">h", len(text)) + text, flexible=False)
    assert "not UTF-8" in refused(Text, write_unsigned_varint(len(text) + 1) + text + b"\0", flexible=True)
    beside_records = b"".join(codec.write(Everything(text="x" * len(text)), 3, flexible=True)).replace(b"x" * len(text), text)
    with pytest.raises(errors.RemoteProtocolError, match="Everything v3: a string is not UTF-8"):
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
