"""What the short walk learns of a few records is what the long one learns; what it does not read it leaves to that one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.records.alike import LEAST_RUN
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.payload import records_data
from triolog.protocol.records.walk import RecordsWalk, walk_records
from triolog.protocol.records.walk_few import MOST_STEPS, walk_few

from tests.support.record_batches import RecordTuple, damaged, headers

BASE_MS = 1_700_000_000_000


def rows(count: int, *, step_ms: int = 1, value: bytes | None = b"v", key: bytes | None = None) -> list[RecordTuple]:
    return [(BASE_MS + number * step_ms, key, value, ()) for number in range(count)]


def plain_rows() -> st.SearchStrategy[list[RecordTuple]]:
    timestamp = st.integers(BASE_MS, BASE_MS + 4000) | st.integers(0, 2**62)
    content = st.none() | st.binary(max_size=100) | st.integers(60, 20_000).map(bytes)
    return st.lists(st.tuples(timestamp, content, content, headers()), min_size=1, max_size=20)


def short(batch: bytes) -> RecordsWalk | None:
    header = parse_header(batch)
    found = walk_few(records_data(batch, header, 1 << 30), header.records_count)
    if found is None:
        return None
    least, most, has_null_key = found
    return RecordsWalk(header.records_count, header.base_timestamp + most, has_null_key, header.base_timestamp + least)


def long(batch: bytes) -> RecordsWalk | None:
    try:
        return walk_records(batch, parse_header(batch))
    except RequestError:
        return None


@given(plain_rows())
def test_a_few_records_are_read(records: list[RecordTuple]) -> None:
    batch = build_batch(records)
    assert short(batch) == long(batch) is not None


@pytest.mark.parametrize("count", [1, 2, LEAST_RUN, LEAST_RUN + 1, 63, 64, 65, 128, 129, MOST_STEPS])
@pytest.mark.parametrize("step_ms", [0, 1, 41])
@pytest.mark.parametrize("value", [None, b"", b"v" * 100])
def test_records_of_one_size_are_read_whatever_their_number(count: int, step_ms: int, value: bytes | None) -> None:
    batch = build_batch(rows(count, step_ms=step_ms, value=value))
    assert short(batch) == long(batch) is not None


@pytest.mark.parametrize(
    "records",
    [
        [(BASE_MS, None, b"v", (("header", b"h"),) * 20)],
        [(BASE_MS, None, b"v", (("header", b"h"),) * 10)] * 30,
    ],
    ids=["of one record", "in all"],
)
def test_many_headers_are_left_to_the_long_walk(records: list[RecordTuple]) -> None:
    batch = build_batch(records)
    assert short(batch) is None
    assert long(batch) is not None


@given(st.data(), st.one_of(plain_rows(), st.builds(rows, st.integers(1, 150), step_ms=st.sampled_from([0, 1]))))
def test_of_damaged_records_nothing_is_accepted_that_the_long_walk_refuses(
    data: st.DataObject, records: list[RecordTuple]
) -> None:
    batch = build_batch(records)
    batch = batch[:RECORD_BATCH_OVERHEAD] + data.draw(damaged(batch[RECORD_BATCH_OVERHEAD:]))
    found = short(batch)
    assert found is None or found == long(batch)


@pytest.mark.parametrize("count", [1, LEAST_RUN + 1])
def test_whatever_byte_is_another_nothing_is_accepted_that_the_long_walk_refuses(count: int) -> None:
    original = build_batch([(BASE_MS + number, b"key", b"value", (("header", b"h"),)) for number in range(count)])
    for position in range(RECORD_BATCH_OVERHEAD, len(original)):
        for byte in range(256):
            batch = original[:position] + bytes([byte]) + original[position + 1 :]
            found = short(batch)
            assert found is None or found == long(batch), (position, byte)
