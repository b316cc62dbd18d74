"""The map from key to last offset: right, and of one size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap

keys = st.binary(max_size=12)


@given(st.lists(st.tuples(keys, st.integers(0, 2**62)), max_size=200), st.lists(keys, max_size=20))
def test_a_key_has_the_offset_that_it_was_given_last(puts: list[tuple[bytes, int]], others: list[bytes]) -> None:
    offsets = OffsetMap(ENTRY_BYTES * 300)
    offsets.put_all(puts)
    expected = dict(puts)
    assert offsets.entries == len(expected)
    for key in [*expected, *others]:
        assert offsets.get(key) == expected.get(key, -1)


@pytest.mark.parametrize("slots", [3, 4, 7, 100, 1009])
def test_a_full_map_finds_what_it_has_and_misses_what_it_has_not(slots: int) -> None:
    """Kafka: OffsetMapTest.testBasicValidation, at the limit."""
    offsets = OffsetMap(slots * ENTRY_BYTES, load_factor=1.0)
    for number in range(offsets.max_entries - 1):
        assert offsets.has_room(1)
        offsets.put_all([(str(number).encode(), number)])
    assert [offsets.get(str(number).encode()) for number in range(offsets.max_entries - 1)] == [*range(offsets.max_entries - 1)]
    assert offsets.get(b"absent") == -1
    assert not offsets.has_room(2)


def test_memory_is_what_was_allowed_rounded_down_to_a_prime_number_of_entries() -> None:
    assert OffsetMap(24 * 100).max_entries == int(97 * 0.9)


@pytest.mark.parametrize("memory_bytes", [0, 24, 71])
def test_memory_for_no_entry_is_refused(memory_bytes: int) -> None:
    with pytest.raises(ValueError, match="holds no entry"):
        OffsetMap(memory_bytes)


def test_putting_a_key_again_takes_no_room() -> None:
    offsets = OffsetMap(3 * ENTRY_BYTES)
    for offset in range(100):
        offsets.put_all([(b"key", offset)])
    assert (offsets.entries, offsets.get(b"key")) == (1, 99)
