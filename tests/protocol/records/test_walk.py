"""The walk goes on wherever it has stopped, and learns what a walk without a stop learns. Runs of records of one size are read
column by column; what is said of them is what the walk record by record says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.unpacking import records_data
from triolog.protocol.records.walk import (
    LEAST_RUN,
    LONG_DELTAS,
    MOST_RUN,
    NOTHING_WALKED,
    SHORT_DELTAS,
    RecordsWalk,
    alike_run,
    walk_plain,
    walk_records,
)
from triolog.protocol.types import NO_TIMESTAMP, CompressionType

from tests.support.record_batches import RecordTuple, damaged, headers

BASE_MS = 1_700_000_000_000
HEADERS_BEHIND = 8
"""Bytes of a record in which lengths, timestamp and offset delta begin."""


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


def at_once(batch: bytes, *, allow_gaps: bool = False) -> RecordsWalk | type[RequestError]:
    """With `allow_gaps` another function walks, which knows nothing of runs and accepts deltas that are not the next."""
    try:
        return walk_records(batch, parse_header(batch), allow_gaps=allow_gaps)
    except RequestError as exc:
        return type(exc)


@given(plain_rows(), st.sampled_from([1, 70, 1000]))
def test_a_few_records_are_read_whatever_it_stops_at(records: list[RecordTuple], most_steps: int) -> None:
    batch = build_batch(records)
    assert stopped(batch, most_steps) == at_once(batch)


@pytest.mark.parametrize("value", [None, b"", b"v" * 100, b"v" * 200])
def test_records_of_one_size_are_read_whatever_their_number(value: bytes | None) -> None:
    for count, step_ms in product((1, 2, LEAST_RUN, LEAST_RUN + 1, 63, 64, 65, 128, 129, 1170, LONG_DELTAS + 100), (0, 1, 41)):
        batch = build_batch(rows(count, step_ms=step_ms, value=value))
        for most_steps in (1, 300):
            assert stopped(batch, most_steps) == at_once(batch), (count, step_ms, most_steps)


def test_a_record_of_many_headers_is_left_to_who_pauses_among_them() -> None:
    batch = build_batch([*rows(3), (BASE_MS, None, b"v", (("header", b"h"),) * 20), *rows(3)])
    header = parse_header(batch)
    data = records_data(batch, header, 1 << 30)
    _, index, *_ = walk_plain(data, header.records_count, NO_TIMESTAMP - header.base_timestamp, NOTHING_WALKED, 1000)
    assert index == 3
    assert isinstance(at_once(batch), RecordsWalk)


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


@pytest.mark.merge
@pytest.mark.parametrize("count", [1, LEAST_RUN + 1])
def test_whatever_byte_is_another_the_careful_walk_accepts_the_same(count: int) -> None:
    original = build_batch([(BASE_MS + number, b"key", b"value", (("header", b"h"),)) for number in range(count)])
    size = (len(original) - RECORD_BATCH_OVERHEAD) // count
    for position in range(RECORD_BATCH_OVERHEAD, len(original)):
        if (position - RECORD_BATCH_OVERHEAD) // size not in (0, 1, count // 2, count - 1):
            continue  # those between are like their neighbours
        for byte in range(256):
            batch = original[:position] + bytes([byte]) + original[position + 1 :]
            found = at_once(batch)
            assert not isinstance(found, RecordsWalk) or found == at_once(batch, allow_gaps=True), (position, byte)


def batch_of(
    count: int, value: bytes | None, key: bytes | None = None, *, steps_ms: Sequence[int] = (0,), each: int = 1
) -> bytes:
    """Records of one shape; the timestamp grows by the next step, in turn, behind every `each` records."""
    builder = BatchBuilder()
    timestamp = BASE_MS
    for number in range(count):
        builder.append(timestamp, key, value)
        if number % each == each - 1:
            timestamp += steps_ms[number // each % len(steps_ms)]
    return bytes(builder.build())


def runs_of(batch: bytes, count: int) -> list[int]:
    """The first record's run, and that of the first with a longer delta."""
    header = parse_header(batch)
    data = records_data(batch, header, 1 << 30)
    first = alike_run(data, 0, 0, count)
    assert first is not None
    start = first.size_bytes * (first.records_count + 1)
    second = alike_run(data, start, first.records_count + 1, count) if first.records_count + 1 < count else None
    return [first.records_count] + ([second.records_count] if second else [])


def test_alike_records_are_read_in_runs_that_end_where_deltas_grow() -> None:
    assert runs_of(batch_of(2000, b"v" * 100), 2000) == [SHORT_DELTAS - 1, MOST_RUN - 1]
    assert runs_of(batch_of(200, b"v" * 1000, b"key"), 200) == [SHORT_DELTAS - 1, 200 - SHORT_DELTAS - 1]
    batch = batch_of(LEAST_RUN, b"v")
    assert alike_run(records_data(batch, parse_header(batch), 1 << 20), 0, 0, LEAST_RUN) is None


def test_a_run_ends_before_the_record_of_another_size() -> None:
    builder = BatchBuilder()
    for number in range(100):
        builder.append(BASE_MS, None, b"v" * (50 if number < 40 else 51))
    batch = bytes(builder.build())
    run = alike_run(records_data(batch, parse_header(batch), 1 << 20), 0, 0, 100)
    assert run is not None
    assert run.records_count == 39


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_a_compressed_batch_is_walked_the_same_way(codec: CompressionType) -> None:
    builder = BatchBuilder(compression_type=codec)
    for number in range(500):
        builder.append(BASE_MS + number, b"key", b"v" * 30)
    batch = bytes(builder.build())
    assert at_once(batch) == RecordsWalk(500, BASE_MS + 499, False, BASE_MS)


@given(
    count=st.integers(30, 400),
    value=st.none() | st.integers(0, 200).map(bytes),
    key=st.none() | st.integers(0, 90).map(bytes),
    steps_ms=st.lists(st.sampled_from([0, 1, -1, 40, -70, 9000]), min_size=1, max_size=5),
    each=st.integers(1, 100),
)
@example(count=70, value=b"", key=b"", steps_ms=[64], each=30)
def test_whatever_the_timestamps_do(count: int, value: bytes | None, key: bytes | None, steps_ms: list[int], each: int) -> None:
    batch = batch_of(count, value, key, steps_ms=steps_ms, each=each)
    assert at_once(batch) == at_once(batch, allow_gaps=True)


@given(
    count=st.integers(30, 200),
    value_bytes=st.sampled_from([0, 1, 40, 70, 130]),
    has_key=st.booleans(),
    damage=st.lists(
        st.tuples(st.integers(0, 199), st.integers(-2, HEADERS_BEHIND), st.integers(0, 255)), min_size=1, max_size=3
    ),
)
def test_damage_within_a_run_is_seen(count: int, value_bytes: int, has_key: bool, damage: list[tuple[int, int, int]]) -> None:
    """Bytes where lengths and deltas are, and the last ones of the record before."""
    batch = bytearray(batch_of(count, bytes(value_bytes), b"k" if has_key else None, steps_ms=(0, 100), each=20))
    begin = RECORD_BATCH_OVERHEAD
    size = (len(batch) - begin) // count
    for record, place, byte in damage:
        position = begin + record * size + place
        if begin <= position < len(batch):
            batch[position] = byte
    assert at_once(bytes(batch)) == at_once(bytes(batch), allow_gaps=True)
