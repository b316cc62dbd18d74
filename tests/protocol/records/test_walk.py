"""The walk goes on wherever it has stopped, and learns what a walk without a stop learns."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.records.alike import LEAST_RUN, LONG_DELTAS
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.payload import records_data
from triolog.protocol.records.walk import NOTHING_WALKED, RecordsWalk, walk_plain, walk_records
from triolog.protocol.types import NO_TIMESTAMP

from tests.support.record_batches import RecordTuple, damaged, headers

BASE_MS = 1_700_000_000_000


def rows(count: int, *, step_ms: int = 1, value: bytes | None = b"v", key: bytes | None = None) -> list[RecordTuple]:
    return [(BASE_MS + number * step_ms, key, value, ()) for number in range(count)]


def plain_rows() -> st.SearchStrategy[list[RecordTuple]]:
    timestamp = st.integers(BASE_MS, BASE_MS + 4000) | st.integers(0, 2**62)
    content = st.none() | st.binary(max_size=100) | st.integers(60, 20_000).map(bytes)
    return st.lists(st.tuples(timestamp, content, content, headers()), min_size=1, max_size=20)


def stopped(batch: bytes, most_steps: int) -> RecordsWalk | None:
    """What is learned when it goes on after every few steps; None for what it says nothing about."""
    header = parse_header(batch)
    data, count, untimed = records_data(batch, header, 1 << 30), header.records_count, NO_TIMESTAMP - header.base_timestamp
    so_far = NOTHING_WALKED
    while so_far[1] < count:
        *found, steps = walk_plain(data, count, untimed, so_far, most_steps)
        so_far = found[0], found[1], found[2], found[3], bool(found[4])
        if steps <= most_steps and so_far[1] < count:
            return None
    position, _, least, most, has_null_key = so_far
    if position != len(data):
        return None
    return RecordsWalk(count, header.base_timestamp + most, has_null_key, header.base_timestamp + least)


def at_once(batch: bytes) -> RecordsWalk | None:
    try:
        return walk_records(batch, parse_header(batch))
    except RequestError:
        return None


@given(plain_rows(), st.sampled_from([1, 70, 1000]))
def test_a_few_records_are_read_whatever_it_stops_at(records: list[RecordTuple], most_steps: int) -> None:
    batch = build_batch(records)
    assert stopped(batch, most_steps) == at_once(batch) is not None


@pytest.mark.parametrize("value", [None, b"", b"v" * 100, b"v" * 200])
def test_records_of_one_size_are_read_whatever_their_number(value: bytes | None) -> None:
    for count, step_ms in product((1, 2, LEAST_RUN, LEAST_RUN + 1, 63, 64, 65, 128, 129, 1170, LONG_DELTAS + 100), (0, 1, 41)):
        batch = build_batch(rows(count, step_ms=step_ms, value=value))
        for most_steps in (1, 300):
            assert stopped(batch, most_steps) == at_once(batch) is not None, (count, step_ms, most_steps)


def test_a_record_of_many_headers_is_left_to_who_pauses_among_them() -> None:
    batch = build_batch([*rows(3), (BASE_MS, None, b"v", (("header", b"h"),) * 20), *rows(3)])
    header = parse_header(batch)
    data = records_data(batch, header, 1 << 30)
    _, index, *_ = walk_plain(data, header.records_count, NO_TIMESTAMP - header.base_timestamp, NOTHING_WALKED, 1000)
    assert index == 3
    assert at_once(batch) is not None


def test_headers_count_as_steps() -> None:
    batch = build_batch([(BASE_MS, None, b"v", (("header", b"h"),) * 10)] * 30)
    header = parse_header(batch)
    data = records_data(batch, header, 1 << 30)
    _, index, *_, steps = walk_plain(data, 30, NO_TIMESTAMP - header.base_timestamp, NOTHING_WALKED, 150)
    assert 150 < steps < 250
    assert 5 < index < 20


@given(st.data(), st.one_of(plain_rows(), st.builds(rows, st.integers(1, 150), step_ms=st.sampled_from([0, 1]))))
def test_of_damaged_records_the_same_are_accepted_whatever_it_stops_at(data: st.DataObject, records: list[RecordTuple]) -> None:
    batch = build_batch(records)
    batch = batch[:RECORD_BATCH_OVERHEAD] + data.draw(damaged(batch[RECORD_BATCH_OVERHEAD:]))
    found = stopped(batch, 60)
    assert found is None or found == at_once(batch)


@pytest.mark.parametrize("count", [1, LEAST_RUN + 1])
def test_whatever_byte_is_another_the_careful_walk_accepts_the_same(count: int) -> None:
    """With `allow_gaps` another function walks, which accepts more: deltas that are not the next."""
    original = build_batch([(BASE_MS + number, b"key", b"value", (("header", b"h"),)) for number in range(count)])
    size = (len(original) - RECORD_BATCH_OVERHEAD) // count
    for position in range(RECORD_BATCH_OVERHEAD, len(original)):
        if (position - RECORD_BATCH_OVERHEAD) // size not in (0, 1, count // 2, count - 1):
            continue  # those between are like their neighbours
        for byte in range(256):
            batch = original[:position] + bytes([byte]) + original[position + 1 :]
            found = at_once(batch)
            assert found is None or found == walk_records(batch, parse_header(batch), allow_gaps=True), (position, byte)
