"""Records found in a batch without building them: the same as those that are built."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.record import iter_records
from triolog.server.storage.cleaner.record_spans import record_spans

RECORD = st.tuples(
    st.integers(1, 1 << 20),
    st.integers(-1, 1 << 50),
    st.one_of(st.none(), st.binary(max_size=300)),
    st.one_of(st.none(), st.binary(max_size=300)),
    st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2),
)


@given(st.lists(RECORD, min_size=1, max_size=6), st.one_of(st.none(), st.integers(0, 1 << 50)))
def test_spans_are_the_records(
    entries: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], horizon: int | None
) -> None:
    builder = BatchBuilder(base_offset=7, delete_horizon_ms=horizon)
    offset = 6
    for gap, timestamp, key, value, headers in entries:
        offset += gap
        builder.append_at(offset, timestamp, key, value, headers)
    batch = builder.build(last_offset=offset + 3)
    header = parse_header(batch)
    data = batch[RECORD_BATCH_OVERHEAD:]
    spans = record_spans(data, header)
    assert [
        (7 + span.offset_delta, header.base_timestamp + span.timestamp_delta, span.key, span.has_value) for span in spans
    ] == [(record.offset, record.timestamp, record.key, record.value is not None) for record in iter_records(batch, header)]
    assert b"".join(data[span.start : span.stop] for span in spans) == data
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]


@given(st.data())
def test_garbage_is_an_invalid_record_and_nothing_else(drawn: st.DataObject) -> None:
    batch = build_batch([(number, b"key", b"value" * 3, ()) for number in range(4)])
    header = parse_header(batch)
    data = bytearray(batch[RECORD_BATCH_OVERHEAD:])
    for position in drawn.draw(st.lists(st.integers(0, len(data) - 1), max_size=4)):
        data[position] = drawn.draw(st.integers(0, 255))
    end = drawn.draw(st.integers(0, len(data)))
    try:
        spans = record_spans(bytes(data[:end]), header)
    except InvalidRecordError:
        return
    assert len(spans) == header.records_count


def test_a_batch_that_counts_more_than_it_has_is_refused() -> None:
    batch = build_batch([(1, b"k", b"v", ())])
    header = parse_header(batch)._replace(records_count=2, last_offset_delta=1)
    with pytest.raises(InvalidRecordError):
        record_spans(batch[RECORD_BATCH_OVERHEAD:], header)
    with pytest.raises(InvalidRecordError):
        record_spans(batch[RECORD_BATCH_OVERHEAD:] * 2, header)
