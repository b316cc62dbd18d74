"""What is written from plain tuples is what `codec.write` has for the message, all other fields being at their defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import BYTES, INT8, INT16, INT32, STRING, UUID, struct, wire
from triolog.protocol.schema.given_writer import Given, make_given_writer

from tests.support.kafka_everything import Leaf


@struct
class Row:
    before: int = wire(INT8, default=7)
    name: str | None = wire(STRING, nullable="0+", default=None)
    key: bytes = wire(UUID, "2+", default=bytes(16))
    number: int = wire(INT32, "1+")
    others: list[int] = wire([INT16])
    after: str = wire(STRING, default="ü")


@struct
class Table:
    rows: list[Row] = wire([Row])
    leaves: list[Leaf] | None = wire([Leaf], nullable="0+")
    content: bytes = wire(BYTES, default=b"")
    leaf: Leaf = wire(Leaf, default=...)
    size: int = wire(INT32, default=-1)
    last: Leaf | None = wire(Leaf, nullable="0+", tag=0, default=None)


GIVEN = Given(("size",), {"rows": Given(("number", "name", "others"))})
VERSIONS = range(4)


def written(values: Any, version: int, *, flexible: bool) -> bytes:
    parts: list[Any] = []
    make_given_writer(Table, GIVEN, version, flexible=flexible)(values, parts)
    return b"".join(parts)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1),
            st.none() | st.text(max_size=10) | st.just("x" * 127),
            st.lists(st.integers(-(2**15), 2**15 - 1), max_size=3),
        ),
        max_size=3,
    ),
    st.sampled_from(VERSIONS),
    st.booleans(),
)
def test_the_bytes_are_those_of_the_message(rows: list[Any], version: int, flexible: bool) -> None:
    table = Table(rows=[Row(number=number, name=name, others=others) for number, name, others in rows], leaves=[], size=3)
    expected = codec.write(table, version, flexible=flexible)
    assert written((3, rows), version, flexible=flexible) == b"".join(expected)


def test_values_that_are_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        written((1,), 0, flexible=True)


def test_a_tagged_field_cannot_be_given() -> None:
    with pytest.raises(AssertionError, match=r"Table\.last"):
        make_given_writer(Table, Given(("last",)), 0, flexible=True)
