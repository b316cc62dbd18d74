"""Runs of records of one size are read column by column; what is said of them is what the walk record by record says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.records.alike import LEAST_RUN, MOST_RUN, SHORT_DELTAS, alike_run
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.records.payload import records_data
from triolog.protocol.records.walk import RecordsWalk, walk_records
from triolog.protocol.types import CompressionType

BASE_MS = 1_700_000_000_000
HEADERS_BEHIND = 8
"""Bytes of a record in which lengths, timestamp and offset delta begin."""


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


def outcome(batch: bytes, *, one_by_one: bool) -> RecordsWalk | type[RequestError]:
    """With `allow_gaps` another function walks, which knows nothing of runs."""
    try:
        return walk_records(batch, parse_header(batch), allow_gaps=one_by_one)
    except RequestError as exc:
        return type(exc)


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


def test_a_run_ends_before_the_record_of_another_size() -> None:
    builder = BatchBuilder()
    for number in range(100):
        builder.append(BASE_MS, None, b"v" * (50 if number < 40 else 51))
    batch = bytes(builder.build())
    run = alike_run(records_data(batch, parse_header(batch), 1 << 20), 0, 0, 100)
    assert run is not None
    assert run.records_count == 39


def test_few_records_are_no_run() -> None:
    batch = batch_of(LEAST_RUN, b"v")
    assert alike_run(records_data(batch, parse_header(batch), 1 << 20), 0, 0, LEAST_RUN) is None


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_a_compressed_batch_is_walked_the_same_way(codec: CompressionType) -> None:
    builder = BatchBuilder(compression_type=codec)
    for number in range(500):
        builder.append(BASE_MS + number, b"key", b"v" * 30)
    batch = bytes(builder.build())
    assert outcome(batch, one_by_one=False) == RecordsWalk(500, BASE_MS + 499, False, BASE_MS)


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
    assert outcome(batch, one_by_one=False) == outcome(batch, one_by_one=True)


@given(
    count=st.integers(30, 200),
    value_bytes=st.sampled_from([0, 1, 40, 70, 130]),
    has_key=st.booleans(),
    damage=st.lists(
        st.tuples(st.integers(0, 199), st.integers(-2, HEADERS_BEHIND), st.integers(0, 255)), min_size=1, max_size=3
    ),
)
def test_a_damaged_record_within_a_run_is_seen(
    count: int, value_bytes: int, has_key: bool, damage: list[tuple[int, int, int]]
) -> None:
    """Bytes where lengths and deltas are, and the last ones of the record before."""
    batch = bytearray(batch_of(count, bytes(value_bytes), b"k" if has_key else None, steps_ms=(0, 100), each=20))
    begin = RECORD_BATCH_OVERHEAD
    size = (len(batch) - begin) // count
    for record, place, byte in damage:
        position = begin + record * size + place
        if begin <= position < len(batch):
            batch[position] = byte
    assert outcome(bytes(batch), one_by_one=False) == outcome(bytes(batch), one_by_one=True)
