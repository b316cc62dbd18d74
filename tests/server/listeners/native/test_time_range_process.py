"""Ranges of times over the native protocol: pages, formats, partitions that fail alone. The naive answer is a full scan."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, InvalidRequestError
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import CommittedFilter, iter_records
from triolog.protocol.types import CompressionType, Isolation, Record, TimeRange

from tests.support.counts import counts
from tests.support.logs import START_MS, batch
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient

NUMBERS = itertools.count()
MANY = counts(60, commit=6)
LONG_MS = 600_000


def range_of(
    client: WireClient, topic: str, start: int | None, end: int | None, offset: int = -1, max_bytes: int = MIB, **options: Any
) -> messages.FetchPartitionResponse:
    """One page; times are counted from START_MS."""
    times = {
        "start_timestamp": None if start is None else START_MS + start,
        "end_timestamp": None if end is None else START_MS + end,
    }
    question = messages.FetchPartition(topic, 0, offset, max_bytes, **times)
    (entry,) = client.call(messages.FetchRequest((question,), **options)).partitions
    if entry.error is not None:
        raise entry.error
    return entry  # type: ignore[no-any-return]


def records_of(entry: messages.FetchPartitionResponse, times: TimeRange, offset: int) -> list[Record]:
    """What the page has of the range, as docs/native-protocol.md has clients read it."""
    if isinstance(entry.records, tuple):
        return list(entry.records)
    start = entry.log_start_offset if offset < 0 else offset
    committed = CommittedFilter(entry.aborted)
    return [
        record
        for header, data in iter_batches(entry.records)
        if not committed.leaves_out(header, data)
        for record in iter_records(data, header)
        if record.offset >= start and times.holds(record.timestamp)
    ]


def read_range(client: WireClient, topic: str, start: int, end: int, max_bytes: int = MIB, **options: Any) -> list[Record]:
    found: list[Record] = []
    offset = -1
    while True:
        entry = range_of(client, topic, start, end, offset, max_bytes, **options)
        found += records_of(entry, TimeRange(START_MS + start, START_MS + end), offset)
        if entry.range_ended:
            return found
        assert entry.range_ended is False
        assert entry.next_offset > offset
        offset = entry.next_offset


def scan(client: WireClient, topic: str, isolation: Isolation) -> list[Record]:
    found: list[Record] = []
    offset, end = 0, 1
    while offset < end:
        entry = client.fetch(topic, 0, offset, isolation=isolation, format=messages.Format.RECORDS)
        found += entry.records  # type: ignore[arg-type]
        offset, end = entry.next_offset, entry.last_stable_offset
    return found


def test_a_range_is_one_request_without_an_offset(client: WireClient, topic: str) -> None:
    for timestamp in range(10):
        client.produce(topic, 0, batch(START_MS + timestamp))
    for shape in messages.Format:
        entry = range_of(client, topic, 3, 6, format=shape)
        assert (entry.next_offset, entry.range_ended) == (10, True)
        assert [record.offset for record in records_of(entry, TimeRange(START_MS + 3, START_MS + 6), -1)] == [3, 4, 5]
    assert client.fetch(topic, 0, 0).range_ended is None


def test_a_range_is_not_waited_for(client: WireClient, topic: str) -> None:
    client.produce(topic, 0, batch(START_MS))
    entry = range_of(client, topic, 5, 9, max_wait_ms=LONG_MS, min_bytes=MIB)
    assert (entry.records, entry.next_offset, entry.range_ended) == (b"", 1, True)
    client.produce(topic, 0, batch(START_MS + 7))
    later = range_of(client, topic, 5, 9, entry.next_offset, format=messages.Format.RECORDS)
    assert [record.offset for record in later.records] == [1]  # type: ignore[union-attr]


def test_a_range_that_ends_before_it_starts_fails_alone(client: WireClient, topic: str) -> None:
    client.produce(topic, 0, batch(START_MS))
    wrong = messages.FetchPartition(topic, 0, -1, start_timestamp=8, end_timestamp=7)
    right = messages.FetchPartition(topic, 0, -1, start_timestamp=START_MS)
    refused, given_ = client.call(messages.FetchRequest((wrong, right))).partitions
    assert refused.error.code is ErrorCode.INVALID_REQUEST
    assert refused.error.message == f"{topic}-0: end_timestamp 7 lies before start_timestamp 8"
    assert (given_.error, given_.range_ended) == (None, True)


def test_only_a_range_may_lack_its_offset(client: WireClient, topic: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"fetch.partitions\[0\].offset is missing"):
        client.fetch(topic, 0, -1)


def test_the_walk_of_a_range_is_explained(client: WireClient, topic: str) -> None:
    for timestamp in range(10):
        client.produce(topic, 0, batch(START_MS + timestamp))
    asked = messages.ExplainPartition(topic, 0, start_timestamp=START_MS + 3, end_timestamp=START_MS + 6)
    wrong = messages.ExplainPartition(topic, 0, start_timestamp=3, end_timestamp=2)
    explained, refused = client.call(messages.ExplainRequest((asked, wrong))).partitions
    assert explained.walk["asked"] == {"start_timestamp": START_MS + 3, "end_timestamp": START_MS + 6}
    assert explained.walk["answer"]["offset"] == 3
    assert refused.error.code is ErrorCode.INVALID_REQUEST
    half = messages.ExplainPartition(topic, 0, offset=1, end_timestamp=2)
    (refused,) = client.call(messages.ExplainRequest((half,))).partitions
    assert "end_timestamp without start_timestamp" in refused.error.message


@settings(max_examples=MANY)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.sampled_from(CompressionType)),
        min_size=1,
        max_size=12,
    ),
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), min_size=1, max_size=3),
    max_bytes=st.sampled_from([1, 200, MIB]),
    transactions=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=3),
)
def test_a_range_is_the_filter_of_a_full_scan(
    server: ServerProcess,
    batches: list[tuple[list[int], CompressionType]],
    ranges: list[list[int]],
    max_bytes: int,
    transactions: list[tuple[int, bool]],
) -> None:
    with WireClient.connect(server.address) as client:
        topic = f"ranges-{next(NUMBERS)}"
        client.create_topic(topic, config={"segment.bytes": "1048576", "segment.ms": "600000", "index.interval.bytes": "100"})
        for timestamps, codec in batches:
            records = [(START_MS + timestamp, None, b"value", ()) for timestamp in timestamps]
            client.produce(topic, 0, build_batch(records, compression_type=codec))
        for timestamp, is_committed in transactions:
            in_transaction(client, topic, START_MS + timestamp, is_committed=is_committed)
        for isolation in Isolation:
            everything = scan(client, topic, isolation)
            for start, end in ranges:
                expected = [each for each in everything if START_MS + start <= each.timestamp < START_MS + end]
                for shape in messages.Format:
                    assert read_range(client, topic, start, end, max_bytes, isolation=isolation, format=shape) == expected


def in_transaction(client: WireClient, topic: str, timestamp: int, *, is_committed: bool) -> None:
    producer = client.call(messages.InitProducerRequest(topic))
    identity = producer.producer_id, producer.producer_epoch
    data = build_batch(
        [(timestamp, None, b"in a transaction", ())],
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=0,
        is_transactional=True,
    )
    entry = messages.ProducePartition(topic, 0, data)
    client.call(messages.ProduceRequest((entry,), transactional_id=topic))
    client.call(messages.EndTransactionRequest(messages.TransactionProducer(topic, *identity), is_committed))
