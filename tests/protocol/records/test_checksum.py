"""CRC-32C by the compiled package and in Python: the published check values, that both agree, and that it can be continued."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records import checksum, pure_checksum

Checksum = Callable[..., int]
both = pytest.mark.parametrize("crc32c", [checksum.crc32c, pure_checksum.crc32c], ids=["compiled", "pure"])


@both
@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_published_check_values_hold(crc32c: Checksum, data: bytes, expected: int) -> None:
    assert crc32c(data) == crc32c(memoryview(data)) == crc32c(bytearray(data)) == expected


@both
@given(first=st.binary(), second=st.binary())
def test_a_checksum_continued_equals_the_checksum_of_both_parts(crc32c: Checksum, first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


def test_this_machine_has_the_compiled_package() -> None:
    assert checksum.crc32c is not pure_checksum.crc32c


PIECE = pure_checksum.PIECE_BYTES


@pytest.mark.parametrize("sizes", [range(700), range(PIECE - 40, PIECE + 40), range(PIECE * 2, PIECE * 2 + 260, 13)])
def test_both_agree_on_every_length_at_which_something_changes(sizes: range) -> None:
    """The table alone, folds of each size, a piece and its rest."""
    data = random.Random(sizes.start).randbytes(sizes.stop)
    for size in sizes:
        view, crc = memoryview(data)[-size or len(data) :], size * 0x9E3779B9 & 0xFFFFFFFF
        assert pure_checksum.crc32c(view, crc) == checksum.crc32c(view, crc), size


@pytest.mark.parametrize("byte", [b"\0", b"\xff", b"\x80", b"\x01"])
def test_both_agree_on_long_runs_of_a_byte(byte: bytes) -> None:
    data = byte * (PIECE + 1000)
    assert pure_checksum.crc32c(data) == checksum.crc32c(data)
