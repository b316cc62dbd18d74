from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from triolog.protocol.errors import CorruptRecordError, ErrorCode, OffsetOutOfRangeError, RecordTooLargeError, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.native.messages import FetchPartitionResponse, FetchResponse, Gaps
from triolog.protocol.records.batch import end_txn_marker
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.types import CompressionType, Isolation, TimeRange, TopicPartition
from triolog.tools.client.config import ConsumerConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import Consumer, open_consumer
from triolog.tools.client.procedures.topics import LATEST
from triolog.tools.client.reading import Fetch, FetchedBatch, Reading

from tests.support.native_server import NativeServer
from tests.tools.client.doors import fill

T1 = TopicPartition("t", 1)


def batch(base_offset: int, count: int = 1, **options: Any) -> bytes:
    values = [(1, None, b"%d" % (base_offset + index), ()) for index in range(count)]
    return build_batch(values, base_offset=base_offset, **options)


def reading(start: int = 0, end: int | None = None, **options: Any) -> Reading:
    reader = Reading(ConsumerConfig(**options))
    reader.assign({T0: start}, {} if end is None else {T0: end})
    return reader


def answer(records: bytes = b"", error: RequestError | None = None, partition: int = 0) -> FetchResponse:
    return FetchResponse((FetchPartitionResponse("t", partition, error, 100, 100, 0, (), records),))


def fetched(reader: Reading, records: bytes) -> list[FetchedBatch]:
    fetch = reader.next_fetch()
    return list(reader.accept(fetch, answer(records)))


def offsets_in(batches: list[FetchedBatch]) -> list[int]:
    return [record.offset for one in batches for record in one.records()]


def test_batches_come_in_order_and_the_next_fetch_follows_them() -> None:
    reader = reading()
    assert offsets_in(fetched(reader, batch(0, 3) + batch(3, 2))) == [0, 1, 2, 3, 4]
    fetch = reader.next_fetch()
    assert fetch.request.partitions[0].offset == 5
    assert reader.high_watermark(T0) == 100


def test_records_from_the_end_on_are_left_out_and_reading_is_finished() -> None:
    reader = reading(end=4)
    (first, second) = fetched(reader, batch(0, 3) + batch(3, 3) + batch(6, 3))
    assert offsets_in([first, second]) == [0, 1, 2, 3]
    assert second.next_offset == 4
    assert reader.is_finished
    assert reader.next_fetch() is None


def test_batch_cut_short_is_ignored_and_fetched_again() -> None:
    reader = reading()
    assert offsets_in(fetched(reader, batch(0, 3) + batch(3, 2)[:-1])) == [0, 1, 2]
    assert offsets_in(fetched(reader, batch(3, 2))) == [3, 4]
    with pytest.raises(RecordTooLargeError, match=r"t-0 at offset 0 hold no whole batch. Raise partition_max_bytes"):
        fetched(reading(), batch(0, 3)[:-1])


def test_gaps_of_compaction_and_control_batches_are_passed() -> None:
    builder = BatchBuilder(base_offset=2)
    builder.append_at(3, 1, None, b"kept")
    compacted = builder.build(last_offset=9)
    marker = end_txn_marker(producer_id=1, producer_epoch=0, commit=True, timestamp=1, coordinator_epoch=0, base_offset=10)
    reader = reading()
    assert offsets_in(fetched(reader, batch(0, 2) + compacted + marker)) == [0, 1, 3]
    fetch = reader.next_fetch()
    assert fetch.request.partitions[0].offset == 11


def test_flipped_bit_is_noticed_after_the_batches_before_it_unless_checks_are_off() -> None:
    damaged = bytearray(transactional(3))
    damaged[-1] ^= 1
    for aborted in ((), ((5, 3),)):  # also when it would be left out
        reader = reading()
        response = FetchPartitionResponse("t", 0, None, 100, 100, 0, aborted, batch(0, 3) + bytes(damaged))
        batches = reader.accept(reader.next_fetch(), FetchResponse((response,)))
        assert offsets_in([next(batches)]) == [0, 1, 2]
        with pytest.raises(CorruptRecordError, match="batch at offset 3 carries CRC"):
            next(batches)
        assert reader.next_fetch().request.partitions[0].offset == 3
    assert len(fetched(reading(3, check_crcs=False), bytes(damaged))) == 1


def test_answer_to_a_fetch_before_a_seek_or_another_assignment_is_dropped() -> None:
    reader = reading()
    old = reader.next_fetch()
    reader.seek(T0, 50)
    assert list(reader.accept(old, answer(batch(0, 3)))) == []
    fetch = reader.next_fetch()
    assert fetch.request.partitions[0].offset == 50
    reader.assign({T0: 0}, {})
    assert list(reader.accept(fetch, answer(batch(50, 3)))) == []
    reader.assign({}, {})
    assert (reader.is_finished, reader.next_fetch()) == (True, None)


def test_offset_out_of_range_waits_for_a_seek() -> None:
    reader = reading(start=7)
    fetch = reader.next_fetch()
    error = OffsetOutOfRangeError("gone")
    assert list(reader.accept(fetch, answer(error=error))) == []
    assert reader.lost == {T0: error}
    assert reader.next_fetch() is None
    assert not reader.is_finished
    reader.seek(T0, 9)
    assert reader.lost == {}
    assert offsets_in(fetched(reader, batch(9, 1))) == [9]
    fetch = reader.next_fetch()
    with pytest.raises(RequestError, match="offline"):
        list(reader.accept(fetch, answer(error=RequestError("offline", ErrorCode.KAFKA_STORAGE_ERROR))))


def test_partitions_take_turns_at_being_first() -> None:
    reader = Reading(ConsumerConfig())
    reader.assign({T0: 0, T1: 0}, {})
    firsts = set()
    for _ in range(2):
        fetch = reader.next_fetch()
        assert isinstance(fetch, Fetch)
        firsts.add(fetch.request.partitions[0].partition)
    assert firsts == {0, 1}


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=10),
    compression_type=st.sampled_from(CompressionType),
    start=st.integers(0, 60),
    length=st.none() | st.integers(0, 60),
    max_bytes=st.integers(1, 700),
)
def test_any_range_is_read_exactly_whatever_the_answers_hold(
    counts: list[int], compression_type: CompressionType, start: int, length: int | None, max_bytes: int
) -> None:
    bounds = [sum(counts[:index]) for index in range(len(counts) + 1)]
    batches = [batch(bound, count, compression_type=compression_type) for bound, count in zip(bounds, counts, strict=False)]
    total = bounds[-1]
    start = min(start, total)
    end = total if length is None else min(total, start + length)
    reader = reading(start=start, end=end)
    seen: list[int] = []
    while (fetch := reader.next_fetch()) is not None:
        offset = fetch.request.partitions[0].offset
        left = [data for data, bound in zip(batches, bounds[1:], strict=True) if bound > offset]
        served = b"".join(left)[: max(max_bytes, len(left[0]))]
        seen += offsets_in(list(reader.accept(fetch, answer(served))))
    assert seen == list(range(start, end))
    assert reader.is_finished


def page(reader: Reading, records: bytes, next_offset: int, *, range_ended: bool) -> list[FetchedBatch]:
    fetch = reader.next_fetch()
    entry = FetchPartitionResponse("t", 0, None, 100, 100, 0, (), records, next_offset, range_ended)
    return list(reader.accept(fetch, FetchResponse((entry,))))


def timed(base_offset: int, *timestamps: int) -> bytes:
    return build_batch([(timestamp, None, b"", ()) for timestamp in timestamps], base_offset=base_offset)


def test_of_a_range_its_records_come_and_it_ends_where_the_server_says_so() -> None:
    reader = Reading(ConsumerConfig())
    reader.assign({T0: 0}, {}, TimeRange(10, 20))
    asked = reader.next_fetch()
    (question,) = asked.request.partitions
    assert (question.offset, question.start_timestamp, question.end_timestamp) == (0, 10, 20)
    assert offsets_in(page(reader, timed(3, 9, 10, 25, 19) + timed(10, 20), 30, range_ended=False)) == [4, 6]
    assert (reader.position(T0), reader.is_finished) == (30, False)
    assert offsets_in(page(reader, b"", 40, range_ended=False)) == []
    assert offsets_in(page(reader, timed(50, 12), 60, range_ended=True)) == [50]
    assert (reader.position(T0), reader.is_finished, reader.next_fetch()) == (60, True, None)
    reader.seek(T0, 5)
    assert not reader.is_finished
    assert offsets_in(page(reader, timed(3, 10, 11, 12, 13), 60, range_ended=True)) == [5, 6]


def test_a_range_without_an_end_is_asked_for_without_one() -> None:
    reader = Reading(ConsumerConfig())
    reader.assign({T0: 0}, {T0: 6}, TimeRange(start=10))
    asked = reader.next_fetch()
    assert asked.request.partitions[0].end_timestamp is None
    assert offsets_in(page(reader, timed(3, 10, 11, 9, 12), 7, range_ended=False)) == [3, 4]
    assert reader.is_finished, "at its end offset"


def transactional(offset: int, producer_id: int = 5) -> bytes:
    ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    return batch(offset, is_transactional=True, **ids)


def answered(reader: Reading, records: bytes = b"", **fields: Any) -> list[int]:
    fetch = reader.next_fetch()
    entry = FetchPartitionResponse("t", 0, None, 100, 100, 0, records=records, **fields)
    return offsets_in(list(reader.accept(fetch, FetchResponse((entry,)))))


def test_requests_say_isolation_and_gaps() -> None:
    for options, isolation, gaps in (
        ({"isolation": Isolation.READ_COMMITTED, "skip_gaps": True}, Isolation.READ_COMMITTED, Gaps.SKIP),
        ({}, Isolation.READ_UNCOMMITTED, None),
        ({"skip_gaps": False}, Isolation.READ_UNCOMMITTED, Gaps.REFUSE),
    ):
        fetch = reading(**options).next_fetch()
        assert (fetch.request.isolation, fetch.request.gaps) == (isolation, gaps)


def test_batches_of_aborted_transactions_are_left_out_and_passed() -> None:
    reader = reading(isolation="read_committed")
    marker = end_txn_marker(producer_id=5, producer_epoch=0, commit=False, timestamp=0, coordinator_epoch=0, base_offset=2)
    data = transactional(0) + batch(1) + marker + transactional(3)
    assert answered(reader, data, aborted=((5, 0),)) == [1, 3]
    assert reader.position(T0) == 4
    assert answered(reader, transactional(4), aborted=((5, 4),)) == []
    assert answered(reader, transactional(5)) == [5], "each answer has its own list"


def test_an_answer_without_batches_may_say_where_to_go_on() -> None:
    reader = reading(start=10, end=20)
    answered(reader, next_offset=-1)
    assert (reader.position(T0), reader.is_finished) == (10, False)
    answered(reader, next_offset=20)
    assert (reader.position(T0), reader.is_finished) == (20, True)


def test_a_gap_in_front_of_a_batch_is_passed_over() -> None:
    reader = reading(start=3, skip_gaps=True)
    assert answered(reader, batch(9)) == [9]
    assert reader.position(T0) == 10


T0 = TopicPartition("t", 0)


@asynccontextmanager
async def consuming(server: NativeServer, **options: Any) -> AsyncIterator[Consumer]:
    async with connect(open_stream=server.open_stream) as client, open_consumer(client, **options) as consumer:
        yield consumer


async def offsets_of(consumer: Consumer) -> list[int]:
    return [record.offset async for _, record in consumer.records()]


async def test_reading_ahead_is_bounded(server: NativeServer, clock: MockClock) -> None:
    fill(server, 1000, size=1)
    batch_bytes = len(server.logs["t"][0].batches[0][2])
    async with consuming(server, prefetch_bytes=10 * batch_bytes, partition_max_bytes=4 * batch_bytes) as consumer:
        await consumer.assign(T0)
        await wait_all_tasks_blocked()
        fetches = sum(isinstance(request, m.FetchRequest) for request in server.requests)
        assert fetches == 3
        await consumer.stop_at(T0, LATEST)
        assert await offsets_of(consumer) == list(range(1000))


async def test_cancelled_taking_loses_nothing(server: NativeServer, clock: MockClock) -> None:
    async with consuming(server) as consumer:
        await consumer.assign(T0)
        for _ in range(5):
            with trio.move_on_after(0.3):
                await consumer.next_batch()
        fill(server, 3)
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.next_batch()
        batch = await consumer.next_batch()
        assert [record.offset for record in batch.records()] == [0, 1, 2]


async def test_reading_ahead_is_bounded_while_a_partition_fails(server: NativeServer, clock: MockClock) -> None:
    fill(server, 1000, size=1)
    batch_bytes = len(server.logs["t"][0].batches[0][2])
    async with consuming(server, prefetch_bytes=10 * batch_bytes, partition_max_bytes=4 * batch_bytes) as consumer:
        await consumer.assign("t")
        server.logs["t"].pop()
        await trio.sleep(600)
        assert repr(consumer) == "<Consumer of 2 partitions, 11 batches fetched>"


class InterruptedReading(Reading):
    """Ctrl-C is pressed when a batch is counted as read and is not handed on yet."""

    def accept(self, fetch: Fetch, response: m.FetchResponse) -> Iterator[FetchedBatch]:
        for batch in super().accept(fetch, response):
            signal.raise_signal(signal.SIGINT)
            yield batch


def test_ctrl_c_during_a_fetch_leaves_no_position_behind_a_batch_that_nobody_got() -> None:
    """trio.run takes signals only where no test's clock is."""
    taken = at = -1

    async def interrupted() -> None:
        nonlocal taken, at
        async with trio.open_nursery() as nursery:
            server = NativeServer(nursery, t=1)
            fill(server, 3)
            async with consuming(server) as consumer:
                consumer._reading = InterruptedReading(ConsumerConfig())
                await consumer.assign(T0)
                taken = 0
                try:
                    while (batch := await consumer.next_batch()) is not None:
                        taken = batch.next_offset
                finally:
                    at = consumer.position(T0)

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(interrupted)
    assert raised.group_contains(KeyboardInterrupt)
    assert taken == at
