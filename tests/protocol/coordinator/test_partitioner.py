"""Partition by name, against values that Apache Kafka 4.1.0's own classes gave."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.partitioners import coordinator_partition, java_hash


@pytest.mark.parametrize(
    ("name", "hash_code", "of_fifty"),
    [
        ("", 0, 0),
        ("group", 98629247, 47),
        ("mover", 104087233, 33),
        ("Käse", 2457099, 49),
        ("\N{ROCKET}rocket", -1579737481, 31),
        ("polygenelubricants", -2147483648, 0),
        ("a-rather-long-transactional-id-0123456789", -888652077, 27),
    ],
)
def test_a_name_belongs_to_the_partition_where_kafka_looks(name: str, hash_code: int, of_fifty: int) -> None:
    assert java_hash(name) == hash_code
    assert coordinator_partition(name, 50) == of_fifty


@given(st.text(), st.integers(1, 10_000))
def test_every_name_has_a_partition(name: str, partitions: int) -> None:
    assert 0 <= coordinator_partition(name, partitions) < partitions


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1000, 32_767])
def test_the_hash_of_a_long_name_is_that_of_its_units(size: int) -> None:
    name = "".join(chr(40 + number % 20_000) for number in range(size))
    expected = 0
    for unit in name:
        expected = (31 * expected + ord(unit)) % 2**32
    assert java_hash(name) % 2**32 == expected


def test_the_hash_of_a_long_name_is_no_work_of_python_for_each_character() -> None:
    lines = 0

    def trace(_frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        java_hash("x" * 32_767)
    finally:
        sys.settrace(before)
    assert 0 < lines < 1000
