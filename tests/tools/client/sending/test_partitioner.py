from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.client.sending.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_kafka_gives(key: bytes, signed: int) -> None:
    """The vectors of Kafka's UtilsTest.testMurmur2."""
    assert murmur2(key) == signed % 2**32


@given(key=st.binary(max_size=40), partitions=st.integers(1, 1000))
def test_partition_is_the_hash_without_its_sign_bit(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (murmur2(key) & 0x7FFF_FFFF) % partitions
    assert murmur2(key) == murmur2(bytearray(key)) == murmur2(memoryview(key))


def test_records_without_a_key_stay_for_a_batch_and_then_move() -> None:
    sticky = StickyPartitioner(5, 1000, random.Random(1))
    chosen = [sticky.partition_for(100) for _ in range(1000)]
    runs = [chosen[start : start + 10] for start in range(0, 1000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(run[0] != following[0] for run, following in pairwise(runs))
    assert set(chosen) == set(range(5))
    alone = StickyPartitioner(1, 10)
    assert {alone.partition_for(100) for _ in range(10)} == {0}
