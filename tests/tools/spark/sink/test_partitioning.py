from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.client.sending import partitioner
from triolog.tools.client.sending.key_hashes import LEAST_GROUP, murmur2_of_keys
from triolog.tools.spark.sink.write_rows import sticky_partition


def keys_array(keys: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(keys, pa.binary())


@given(st.lists(st.none() | st.binary(max_size=40), max_size=200), st.integers(0, 5))
def test_hash_of_every_key_equals_the_clients(keys: list[bytes | None], skipped: int) -> None:
    array = keys_array(keys)[skipped:]
    hashes = murmur2_of_keys(array).tolist()
    assert [(key, hashed) for key, hashed in zip(keys[skipped:], hashes, strict=True) if key is not None] == [
        (key, partitioner.murmur2(key)) for key in keys[skipped:] if key is not None
    ]


def test_groups_large_enough_for_numpy_hash_as_the_client_does() -> None:
    source = random.Random(5)
    for length in range(20):
        keys: list[bytes | None] = [source.randbytes(length) for _ in range(LEAST_GROUP + 3)]
        assert murmur2_of_keys(keys_array(keys)).tolist() == [partitioner.murmur2(key) for key in keys if key is not None]


def test_rows_without_a_key_are_spread_and_stay_where_they_are_when_a_task_is_tried_again() -> None:
    assert sticky_partition("t", "query", 7, 3, 12) == sticky_partition("t", "query", 7, 3, 12)
    found = {sticky_partition("t", "query", version, task, 6) for version in range(8) for task in range(8)}
    assert found == set(range(6))
