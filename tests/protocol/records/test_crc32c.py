"""CRC-32C: the published check values, and that it can be continued."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_check_values_hold(data: bytes, checksum: int) -> None:
    assert crc32c(data) == crc32c(memoryview(data)) == crc32c(bytearray(data)) == checksum


@given(st.binary(), st.binary())
def test_a_checksum_continued_equals_the_checksum_of_both_parts(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)
