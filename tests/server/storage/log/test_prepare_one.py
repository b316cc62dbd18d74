"""The short way through one small batch accepts nothing that the long way refuses, and makes the same of what it accepts."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RequestError
from triolog.protocol.limits import INT32_MAX, KIB
from triolog.protocol.records.batch import LOG_APPEND_TIME_FLAG, parse_header, with_producer
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.steps import UNLIMITED, BatchLimits
from triolog.protocol.types import Bytes, CompressionType, TimestampType
from triolog.server.config import LogConfig, RecordValidation
from triolog.server.storage.log.prepare import MOST_RECORDS, PreparedAppend, prepare_append, prepare_one, steps_of

from tests.support.large_batches import tiny_records
from tests.support.logs import START_MS, TOPIC_PARTITION, batch
from tests.support.record_batches import damaged, headers, patched, record_lists

HOUR_MS: Final = 3_600_000
WITH_PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
TRANSACTIONAL_FLAG: Final = 0x10
LINES_PER_STEP: Final = 40


def odd_sizes(count: int) -> bytes:
    """Of no two neighbours the same."""
    return build_batch([(START_MS, None, bytes(number % 9), ()) for number in range(count)])


def long(records: Bytes, config: LogConfig, limits: BatchLimits = UNLIMITED) -> PreparedAppend | None:
    try:
        return prepare_append(records, TOPIC_PARTITION, config, now_ms=START_MS, limits=limits)
    except RequestError:
        return None


def check(records: Bytes, config: LogConfig, limits: BatchLimits = UNLIMITED) -> bool:
    """Whether the short way accepts; then the long one has to, with the same result."""
    found = prepare_one(records, config, START_MS, limits)
    assert found is None or found == long(records, config, limits)
    return found is not None


def plain_batches() -> st.SearchStrategy[bytes]:
    """What producers send most of the time, in all codecs."""
    timestamp = st.integers(START_MS - 3000, START_MS)
    content = st.none() | st.binary(max_size=100) | st.integers(60, 300).map(bytes)
    records = st.lists(st.tuples(timestamp, content, content, headers()), min_size=1, max_size=15)
    producer = st.sampled_from([{}, WITH_PRODUCER, {**WITH_PRODUCER, "is_transactional": True}])
    codec = st.sampled_from([CompressionType.NONE, *CompressionType])
    return st.builds(lambda rows, how, codec: bytes(build_batch(rows, compression_type=codec, **how)), records, producer, codec)


def batches() -> st.SearchStrategy[bytes]:
    """Odd timestamps and large records too."""
    made = st.builds(
        lambda rows, codec: bytes(build_batch(rows, compression_type=codec)),
        record_lists(min_size=1, max_size=5),
        st.sampled_from(CompressionType),
    )
    return plain_batches() | made


def configs() -> st.SearchStrategy[LogConfig]:
    span = st.sampled_from([0, 1000, HOUR_MS, 2**63 - 1])
    return st.builds(
        LogConfig,
        compression_type=st.none() | st.sampled_from(CompressionType),
        message_timestamp_type=st.sampled_from(TimestampType),
        message_timestamp_before_max_ms=span,
        message_timestamp_after_max_ms=span,
        max_message_bytes=st.sampled_from([70, 200, KIB, 1_048_588]),
        record_validation=st.sampled_from(RecordValidation),
        cleanup_policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
    )


FEW: Final = st.sampled_from([1, 3, 100_000])
LIMITS: Final = st.just(UNLIMITED) | st.builds(BatchLimits, records=FEW, headers_per_record=FEW, batches=FEW)


@given(plain_batches(), st.sampled_from([bytes, bytearray, memoryview]))
def test_a_plain_batch_is_accepted_whatever_holds_it(records: bytes, holder: Any) -> None:
    assert check(holder(records), LogConfig())


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(compression_type=CompressionType.NONE),
        LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME),
        LogConfig(record_validation=RecordValidation.HEADER),
        LogConfig(cleanup_policy=("compact",)),
    ],
    ids=["default", "uncompressed", "append time", "header", "compacted"],
)
@pytest.mark.parametrize("count", [1, 100, MOST_RECORDS, MOST_RECORDS + 1, 1200])
def test_a_plain_batch_is_accepted_under_the_configurations_that_change_nothing_of_it(config: LogConfig, count: int) -> None:
    assert check(batch(*range(START_MS - count, START_MS), key=b"key"), config)


@pytest.mark.parametrize(
    "records",
    [
        batch(value=bytes(120 * KIB)),
        batch(*[START_MS] * 120, value=bytes(KIB)),
        batch(*[START_MS] * 1200, value=bytes(50), compression_type=CompressionType.LZ4),
        odd_sizes(MOST_RECORDS),
    ],
    ids=["a large record", "a full batch", "packed", "of all sizes"],
)
def test_a_batch_as_large_as_producers_make_them_is_accepted(records: bytes) -> None:
    assert check(records, LogConfig())


@pytest.mark.parametrize(
    "records",
    [
        batch(*[START_MS] * 1200, value=bytes(50)),
        odd_sizes(MOST_RECORDS),
        odd_sizes(3000),
        tiny_records(8000),
        tiny_records(1000, headers=15),
        build_batch([(START_MS, None, bytes(5 if number % 80 < 20 else number % 7), ()) for number in range(3000)]),
    ],
    ids=["alike", "few", "of all sizes", "tiny", "with headers", "some alike"],
)
def test_it_takes_no_more_lines_than_it_says_that_it_may(records: bytes) -> None:
    """A step is a record or a header that is read by itself, of less than LINES_PER_STEP lines."""
    lines = 0

    def trace(*_: object) -> Any:
        nonlocal lines
        lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        prepare_one(records, LogConfig(), START_MS, UNLIMITED)
    finally:
        sys.settrace(before)
    assert 0 < lines < LINES_PER_STEP * steps_of(records)


@pytest.mark.parametrize(
    ("records", "config"),
    [
        (b"", {}),
        (batch()[:60], {}),
        (batch()[:-1], {}),
        (batch() + b"\0", {}),
        (batch() + batch(), {}),
        (batch(value=bytes(129 * KIB)), {}),
        (odd_sizes(MOST_RECORDS + 1), {}),
        (batch(*[START_MS] * MOST_RECORDS, key=b"key") + batch()[:61], {}),
        (batch(-1), {}),
        (batch(compression_type=CompressionType.GZIP, value=bytes(200 * KIB)), {}),
        (batch(compression_type=CompressionType.GZIP), {"compression_type": CompressionType.NONE}),
        (batch(compression_type=CompressionType.GZIP), {"compression_type": CompressionType.LZ4}),
        (patched(batch(), attributes=CompressionType.LZ4), {}),
        (patched(batch(), attributes=5), {}),
        (patched(batch(), base_offset=1), {}),
        (patched(batch(), max_timestamp=START_MS + 1), {}),
        (patched(batch(), records_count=2, last_offset_delta=1), {}),
        (patched(batch(), records_count=2), {}),
        (patched(batch(), attributes=LOG_APPEND_TIME_FLAG), {}),
        (patched(batch(), attributes=0x40), {}),
        (patched(batch(), attributes=0x80), {}),
        (patched(batch(), attributes=TRANSACTIONAL_FLAG), {}),
        (with_producer(batch(), 7, 0, -1), {}),
        (batch(), {"max_message_bytes": len(batch()) - 1}),
        (batch(), {"compression_type": CompressionType.ZSTD}),
        (batch(), {"cleanup_policy": ("compact",)}),
        (batch(START_MS - 1001), {"message_timestamp_before_max_ms": 1000}),
        (batch(START_MS + 1001), {"message_timestamp_after_max_ms": 1000}),
    ],
)
def test_what_is_odd_is_left_to_the_long_way(records: Bytes, config: dict[str, Any]) -> None:
    assert not check(records, attrs.evolve(LogConfig(), **config))


def test_limits_hold() -> None:
    records = batch(*[START_MS] * 10)
    assert [check(records, LogConfig(), BatchLimits(records=most)) for most in (10, 9)] == [True, False]


@given(batches(), configs(), LIMITS)
def test_what_is_accepted_is_what_the_long_way_makes_of_it(records: bytes, config: LogConfig, limits: BatchLimits) -> None:
    check(records, config, limits)


@given(st.data(), batches(), configs(), st.booleans())
def test_damage_is_never_accepted_where_the_long_way_refuses_it(
    data: st.DataObject, records: bytes, config: LogConfig, repaired: bool
) -> None:
    broken = data.draw(damaged(records))
    check(patched(broken) if repaired and len(broken) > 61 else broken, config)


@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize(
    "records",
    [
        batch(value=b"v" * 70),
        build_batch([(START_MS, b"key", None, (("header", b"h"),)), (START_MS - 1, None, b"", ())], **WITH_PRODUCER),
        *(batch(START_MS, START_MS, value=b"v" * 30, compression_type=codec) for codec in CompressionType if codec),
    ],
    ids=["one record", "two records of a producer", "gzip", "snappy", "lz4", "zstd"],
)
def test_every_bit_counts(records: bytes, repaired: bool) -> None:
    """Behind the stamp no bit changes unseen where the CRC is left as it was."""
    for position, bit in product(range(len(records)), range(8)):
        broken = bytearray(records)
        broken[position] ^= 1 << bit
        accepted = check(patched(bytes(broken)) if repaired else broken, LogConfig())
        assert repaired or accepted is (12 <= position < 16), (position, bit)


def test_every_byte_of_a_header_with_a_true_crc() -> None:
    records = with_producer(batch(START_MS, START_MS), 7, 0, INT32_MAX)
    assert parse_header(records).records_count == 2
    for position in range(61):
        accepted = 0
        for byte in range(256):
            broken = bytearray(records)
            broken[position] = byte
            accepted += check(patched(bytes(broken)), LogConfig())
        assert accepted >= 1, position
