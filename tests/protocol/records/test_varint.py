"""Varints: Kafka's boundary values, both directions, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.records import varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
Decode = Callable[[bytes, int], tuple[int, int]]
DECODERS = [varint.decode_varint, varint.decode_varlong, varint.decode_unsigned_varint]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (1048576, "80808001"),
        (134217727, "feffff7f"),
        (134217728, "8080808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint_of_a_boundary_value_is_as_kafka_writes_it(value: int, encoded: str) -> None:
    """Kafka: ByteUtilsTest.testVarintSerde."""
    wire = bytes.fromhex(encoded)
    assert varint.encode_varint(value) == wire
    assert varint.encode_varlong(value) == wire
    assert varint.decode_varint(wire, 0) == (value, len(wire))
    assert varint.decode_varlong(wire, 0) == (value, len(wire))


@pytest.mark.parametrize(
    ("value", "encoded"), [(2**63 - 1, "fe" + "ff" * 8 + "01"), (-(2**63), "ff" * 9 + "01"), (2**31, "8080808010")]
)
def test_varlong_of_a_boundary_value_is_as_kafka_writes_it(value: int, encoded: str) -> None:
    wire = bytes.fromhex(encoded)
    assert varint.encode_varlong(value) == wire
    assert varint.decode_varlong(wire, 0) == (value, len(wire))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (63, "3f"),
        (64, "40"),
        (8191, "ff3f"),
        (8192, "8040"),
        (1048576, "808040"),
        (2**31 - 1, "ffffffff07"),
        (-1, "ffffffff0f"),
        (-(2**31), "8080808008"),
    ],
)
def test_unsigned_varint_of_a_boundary_value_is_as_kafka_writes_it(value: int, encoded: str) -> None:
    """Kafka: ByteUtilsTest.testUnsignedVarintSerde."""
    wire = bytes.fromhex(encoded)
    assert varint.encode_unsigned_varint(value) == wire
    assert varint.decode_unsigned_varint(wire, 0) == (value & 0xFFFFFFFF, len(wire))


@given(INT32, INT64, st.binary(max_size=3), st.binary(max_size=3))
def test_varint_and_varlong_round_trip_between_other_bytes(value: int, long: int, before: bytes, after: bytes) -> None:
    encoded = varint.encode_varint(value)
    stop = len(before) + len(encoded)
    assert varint.decode_varint(before + encoded + after, len(before)) == (value, stop)
    assert varint.decode_varint(memoryview(before + encoded + after), len(before)) == (value, stop)
    encoded = varint.encode_varlong(long)
    assert varint.decode_varlong(encoded, 0) == (long, len(encoded))


@pytest.mark.parametrize("decode", DECODERS)
def test_a_longer_form_than_needed_is_accepted(decode: Decode) -> None:
    assert decode(bytes.fromhex("80808000"), 0) == (0, 4)


def test_bits_above_the_width_are_dropped() -> None:
    assert varint.decode_unsigned_varint(bytes.fromhex("ffffffff7f"), 0) == (2**32 - 1, 5)
    assert varint.decode_varint(bytes.fromhex("feffffff7f"), 0) == (2**31 - 1, 5)
    assert varint.decode_varlong(bytes.fromhex("fe" + "ff" * 8 + "7f"), 0) == (2**63 - 1, 10)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("wire", [b"", b"\x80", b"\xff\xff", b"\x80" * 4])
def test_a_varint_that_the_data_cuts_off_is_invalid(decode: Decode, wire: bytes) -> None:
    with pytest.raises(InvalidRecordError, match=f"only {len(wire)} bytes"):
        decode(wire, 0)


@pytest.mark.parametrize(
    ("decode", "limit"), [(varint.decode_varint, 5), (varint.decode_unsigned_varint, 5), (varint.decode_varlong, 10)]
)
def test_a_varint_whose_last_possible_byte_continues_is_invalid(decode: Decode, limit: int) -> None:
    """Kafka: ByteUtilsTest.testInvalidVarint, testInvalidVarlong."""
    with pytest.raises(InvalidRecordError, match=f"all of its {limit} bytes"):
        decode(b"\x80" * limit + b"\x00", 0)
