from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import BOOL, INT8, INT16, INT32, STRING, struct, wire

from tests.support.kafka_everything import Leaf


@struct
class Replicas:
    """As in Metadata: numbers and arrays of numbers side by side."""

    index: int = wire(INT16)
    replicas: list[int] = wire([INT32])
    isr: list[int] = wire([INT32])
    is_internal: bool = wire(BOOL)


@struct
class Outer:
    leaf: Leaf = wire(Leaf, tag=1, default=...)
    text: str | None = wire(STRING, nullable="0+", tag=0, default=None)
    inner: Leaf | None = wire(Leaf, nullable="0+", tag=2, default=None)


@struct
class Tagged:
    outer: Outer = wire(Outer, tag=5, default=...)
    number: int = wire(INT8, default=1)


@struct
class Numbers:
    numbers: list[int] = wire([INT8])


def written(value: Any, *, flexible: bool = True) -> bytes:
    (data,) = codec.write(value, 3, flexible=flexible)
    return bytes(data)


def test_numbers_and_arrays_between_them_stand_as_they_are_declared() -> None:
    value = Replicas(index=1, replicas=[2, 3], isr=[], is_internal=True)
    assert written(value) == b"\0\1" + b"\3\0\0\0\2\0\0\0\3" + b"\1" + b"\1" + b"\0"
    assert written(value, flexible=False) == b"\0\1" + b"\0\0\0\2\0\0\0\2\0\0\0\3" + b"\0\0\0\0" + b"\1"


@pytest.mark.parametrize(("count", "varint"), [(126, b"\x7f"), (127, b"\x80\x01"), (16383, b"\x80\x80\x01")])
def test_a_count_takes_as_many_bytes_as_it_needs(count: int, varint: bytes) -> None:
    assert written(Numbers(numbers=[7] * count)) == varint + b"\7" * count + b"\0"
    numbers = b"\0\0\0\5" * count
    expected = b"\0\0" + b"\2\0\0\0\1" + varint + numbers + b"\0" + b"\0"
    assert written(Replicas(index=0, replicas=[1], isr=[5] * count, is_internal=False)) == expected


def test_tagged_fields_at_their_defaults_are_not_written() -> None:
    assert written(Tagged()) == b"\1\0"


def test_tagged_fields_are_written_in_the_order_of_their_tags_inside_of_each_other() -> None:
    value = Tagged(number=9, outer=Outer(leaf=Leaf(number=5), text="ab", inner=Leaf(number=6)))
    leaf, inner = b"\0\0\0\5" + b"\xff" * 8 + b"\0", b"\1\0\0\0\6" + b"\xff" * 8 + b"\0"
    outer = b"\3" + b"\0\3\3ab" + b"\1\x0d" + leaf + b"\2\x0e" + inner
    assert written(value) == b"\x09" + b"\1\5" + bytes([len(outer)]) + outer
    assert codec.read(Tagged, 3, memoryview(written(value)), flexible=True)[0] == value


def test_a_long_tagged_field_has_a_long_size() -> None:
    value = Outer(text="x" * 300)
    assert written(value) == b"\1\0\xae\x02" + b"\xad\x02" + b"x" * 300
    assert codec.read(Outer, 3, memoryview(written(value)), flexible=True)[0] == value
