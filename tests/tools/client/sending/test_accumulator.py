from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol import errors
from triolog.protocol.errors import RecordBatchTooLargeError, RecordTooLargeError
from triolog.protocol.limits import INT32_MAX, MAX_TOPIC_NAME_CHARS, MAX_TRANSACTIONAL_ID_CHARS
from triolog.protocol.native.frames import pack_frame
from triolog.protocol.native.messages import VERSION, ConfigEntry, ProducePartitionResponse, ProduceRequest
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import NO_SEQUENCE, CompressionType
from triolog.tools.client.backoff import Backoff
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import ClosedError, ConnectionLostError, DeliveryTimedOutError
from triolog.tools.client.sending.accumulator import Accumulator, ProducerStanding
from triolog.tools.client.sending.delivery_verdict import Fate, Verdict, judge, timed_out
from triolog.tools.client.sending.futures import RecordFuture
from triolog.tools.client.sending.partition_queue import Batch, Delivery, PartitionQueue, ProducerIdentity
from triolog.tools.client.sending.partitioner import StickyPartitioner, murmur2, partition_for_key
from triolog.tools.client.sending.request_limits import RequestLimits, record_size
from triolog.tools.client.sending.retention import RetentionWatch


class Driver:
    """An accumulator with its clock, and what was appended to it."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.accumulator = Accumulator(ProducerConfig(**{"enable_idempotence": False, **options}), lambda: self.now)

    def append(self, value: bytes, partition: int = 0, timestamp: int = 7) -> RecordFuture:
        queue = self.accumulator.queue("t", partition)
        size = record_size(None, value, ())
        batch, index = self.accumulator.append(queue, size, timestamp, None, value, ())
        return RecordFuture(batch, index, timestamp)

    def drain(self) -> list[Delivery]:
        return [delivery for request in self.accumulator.drain() for delivery in request]

    def answer(self, delivery: Delivery, base_offset: int = 0, **fields: Any) -> None:
        queue = delivery.queue
        response = ProducePartitionResponse(queue.topic, queue.partition, base_offset=base_offset, **fields)
        self.accumulator.settle(delivery, response)


def values_in(delivery: Delivery) -> list[bytes | None]:
    return [record.value for _, batch in iter_batches(delivery.records) for record in iter_records(batch)]


def test_batch_goes_out_when_its_first_record_has_lingered_or_it_is_full() -> None:
    driver = Driver(linger_ms=10)
    driver.append(b"a")
    assert driver.drain() == []
    assert driver.accumulator.next_deadline() == pytest.approx(1000.010)
    driver.now += 0.006
    driver.append(b"b")
    driver.now += 0.006
    (delivery,) = driver.drain()
    assert values_in(delivery) == [b"a", b"b"]
    full = Driver(linger_ms=1000, batch_bytes=500)
    for _ in range(5):
        full.append(bytes(100))
    (delivery,) = full.drain()
    assert len(delivery.records) <= 500
    assert len(values_in(delivery)) == 3


def test_record_above_the_batch_size_travels_alone_and_a_refused_one_leaves_no_batch() -> None:
    driver = Driver(batch_bytes=100)
    with pytest.raises(ValueError, match="timestamp"):
        driver.append(b"refused", timestamp=-5)
    assert driver.accumulator.buffered_bytes == 0
    driver.append(b"small")
    driver.append(bytes(1000))
    driver.append(b"after")
    driver.accumulator.flush()
    (delivery,) = driver.drain()
    assert [header.records_count for header, _ in iter_batches(delivery.records)] == [1, 1, 1]


def test_batch_of_a_partition_that_waits_for_an_answer_goes_on_growing() -> None:
    driver = Driver(linger_ms=10)
    driver.append(b"a")
    driver.now += 1
    (first,) = driver.drain()
    for value in (b"b", b"c", b"d"):
        driver.append(value)
        driver.now += 1
        assert driver.drain() == []
    expiry = driver.accumulator.next_deadline()
    assert expiry > driver.now + 10, "lingering is no reason to look again before the answer comes"
    driver.answer(first)
    (second,) = driver.drain()
    assert [values_in(second), len(second.batches)] == [[b"b", b"c", b"d"], 1]


def test_partitions_share_a_request_up_to_its_size() -> None:
    driver = Driver(linger_ms=0, batch_bytes=200, max_request_bytes=500)
    for partition in range(5):
        driver.append(bytes(150), partition)
        driver.append(bytes(150), partition)
    requests = list(driver.accumulator.drain())
    assert [[(each.queue.partition, len(each.batches)) for each in request] for request in requests] == [
        [(partition, 2)] for partition in range(5)
    ]


def test_offsets_count_through_the_batches_of_a_delivery() -> None:
    driver = Driver(linger_ms=0, batch_bytes=300)
    futures = [driver.append(bytes(100)) for _ in range(5)]
    driver.now += 1
    (delivery,) = driver.drain()
    assert len(delivery.batches) > 1
    driver.answer(delivery, base_offset=40, log_append_time=99)
    assert [future.value() for future in futures] == [("t", 0, offset, 99) for offset in range(40, 45)]
    assert driver.accumulator.buffered_bytes == 0


def test_retry_sends_the_same_bytes_and_holds_back_what_came_after() -> None:
    driver = Driver(linger_ms=0, retry_backoff_ms=100)
    driver.append(b"first")
    (delivery,) = driver.drain()
    sent = delivery.records
    driver.append(b"second")
    driver.accumulator.fail(delivery, ConnectionLostError("gone"))
    assert driver.drain() == []
    deadline = driver.accumulator.next_deadline()
    driver.now = max(deadline, driver.now + 0.2)
    (again,) = driver.drain()
    assert again is delivery
    assert again.records is sent
    driver.answer(again)
    (after,) = driver.drain()
    assert values_in(after) == [b"second"]


def test_batches_that_are_too_much_together_are_sent_in_smaller_company() -> None:
    driver = Driver(linger_ms=0, batch_bytes=200, max_request_bytes=10_000)
    futures = [driver.append(bytes([number]) * 120) for number in range(8)]
    (first,) = driver.drain()
    assert len(first.batches) == 8
    driver.answer(first, error=RecordBatchTooLargeError("8 batches are above segment.bytes"))
    offset = 0
    while deliveries := driver.drain():
        (delivery,) = deliveries
        assert len(delivery.records) <= len(first.records) // 2
        driver.answer(delivery, base_offset=offset)
        offset += len(delivery.batches)
    assert [future.value().offset for future in futures] == list(range(8))
    assert len([driver.append(bytes([number]) * 120) for number in range(8)]) == 8
    (next_one,) = driver.drain()
    assert len(next_one.records) <= len(first.records) // 2, "what was too much once is not tried again"


def test_batch_behind_a_stuck_one_expires_too() -> None:
    driver = Driver(linger_ms=0, delivery_timeout_ms=1000)
    stuck = driver.append(b"stuck")
    (delivery,) = driver.drain()
    waiting = driver.append(b"waiting")
    assert driver.accumulator.next_deadline() is not None
    driver.now += 2
    assert driver.drain() == []
    assert waiting.is_done
    assert not stuck.is_done, "what is in flight is decided by its answer"
    assert driver.accumulator.next_deadline() is None
    driver.answer(delivery)
    assert stuck.value().offset == 0


@pytest.mark.parametrize("is_told", [True, False])
def test_what_expires_with_the_oldest_of_a_delivery_says_how_many_batches_that_are(is_told: bool) -> None:
    driver = Driver(linger_ms=0, delivery_timeout_ms=1000, batch_bytes=200, retry_backoff_ms=0)
    oldest = driver.append(bytes(150), partition=1)
    driver.now += 0.5
    youngest = [driver.append(bytes(150), partition=1) for _ in range(2)][-1]
    driver.accumulator.flush()
    (delivery,) = driver.drain()
    if not is_told:  # it waits for another attempt when its time is over
        driver.accumulator.fail(delivery, ConnectionLostError("gone"))
    driver.now += 0.6
    if is_told:
        driver.accumulator.fail(delivery, ConnectionLostError("gone"))
    driver.drain()
    for future in (oldest, youngest):
        with pytest.raises(DeliveryTimedOutError, match="3 batches for t-1 fail: the oldest of them was not ack"):
            future.value()


def test_a_delivery_that_is_settled_while_it_waits_is_not_tried_again() -> None:
    driver = Driver(linger_ms=0, retry_backoff_ms=100)
    driver.append(b"a")
    (delivery,) = driver.drain()
    driver.accumulator.fail(delivery, ConnectionLostError("gone"))
    driver.accumulator.abandon(ClosedError("over"))
    driver.now += 1
    assert driver.drain() == []
    assert driver.accumulator.next_deadline() is None


def test_buffer_counts_what_is_unsettled_and_always_takes_one_record() -> None:
    driver = Driver(linger_ms=0, buffer_bytes=200)
    assert driver.accumulator.has_room(10_000)
    driver.append(bytes(100))
    assert not driver.accumulator.has_room(100)
    (delivery,) = driver.drain()
    assert not driver.accumulator.has_room(100)
    driver.answer(delivery)
    assert driver.accumulator.has_room(100)
    assert (delivery.batches[0].encoded, delivery.batches[0].builder) == (b"", None), "a finished batch keeps no bytes"


CONFIG = ProducerConfig(delivery_timeout_ms=1000)
LIMITS = RequestLimits(max_request_bytes=10_000, max_frame_bytes=10_000)


def delivery_of(count: int, value: bytes = b"v") -> Delivery:
    batches = []
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(7, None, value)
        batches.append(Batch("t", 3, builder, 0.0))
    return Delivery(PartitionQueue("t", 3, Backoff(1, 1), 10_000), tuple(batches))


def verdict(error: errors.TriologError, count: int = 1, *, is_late: bool = False, config: ProducerConfig = CONFIG) -> Verdict:
    return judge(delivery_of(count), error, config, LIMITS, is_late=is_late)


@pytest.mark.parametrize(
    ("error", "alone", "in_company", "is_undecided"),
    [
        (ConnectionLostError("gone"), Fate.RETRY, Fate.RETRY, True),
        (errors.UnknownTopicOrPartitionError("not yet"), Fate.RETRY, Fate.RETRY, False),
        (errors.LocalProtocolError("above the frame"), Fate.RETRY, Fate.RETRY, False),
        (errors.InvalidRecordError("no"), Fate.GIVE_UP, Fate.ONE_BY_ONE, False),
        (errors.OutOfOrderSequenceError("5 after 3"), Fate.GIVE_UP, Fate.ONE_BY_ONE, False),
        (errors.RecordBatchTooLargeError("above segment.bytes"), Fate.GIVE_UP, Fate.IN_HALVES, False),
        (errors.RemoteProtocolError("nonsense"), Fate.GIVE_UP, Fate.GIVE_UP, True),
        (errors.InvalidProducerEpochError("epoch 0, the log has 1"), Fate.END_PRODUCER, Fate.END_PRODUCER, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, errors.TriologError) else "",
)
def test_an_error_has_its_fate(error: errors.TriologError, alone: Fate, in_company: Fate, is_undecided: bool) -> None:
    """Records may be there unless the server has refused them or never got them."""
    assert (verdict(error).fate, verdict(error, 3).fate, verdict(error).is_undecided) == (alone, in_company, is_undecided)
    if error.__class__ is errors.InvalidProducerEpochError:
        assert verdict(error, config=ProducerConfig(enable_idempotence=False)).fate is Fate.GIVE_UP
    if error.__class__ is errors.InvalidRecordError:
        assert verdict(error, is_late=True) == Verdict(Fate.GIVE_UP, error, False), "told as it is also when it is late"


def test_what_could_pass_is_given_up_when_it_is_late_and_keeps_its_cause() -> None:
    error = ConnectionLostError("gone")
    late = verdict(error, 2, is_late=True)
    assert late.fate is Fate.GIVE_UP
    assert late.is_undecided
    assert isinstance(late.error, DeliveryTimedOutError)
    assert late.error.__cause__ is error
    assert "2 batches for t-3 fail" in late.error.message
    assert "delivery_timeout_ms=1000; the last attempt failed with " in late.error.message
    never_tried = timed_out(delivery_of(1).batches, 1000, None)
    assert never_tried.__cause__ is None
    assert never_tried.message == "a batch for t-3 was not acknowledged within delivery_timeout_ms=1000"


@pytest.mark.parametrize(("count", "fate"), [(1, Fate.GIVE_UP), (2, Fate.ONE_BY_ONE)])
def test_what_no_frame_of_the_server_holds_is_too_large_and_not_tried_as_it_is(count: int, fate: Fate) -> None:
    delivery = delivery_of(count, bytes(8_000))
    error = errors.LocalProtocolError("above the frame")
    found = judge(delivery, error, CONFIG, LIMITS, is_late=False)
    assert (found.fate, found.is_undecided) == (fate, False)
    assert isinstance(found.error, errors.RecordTooLargeError)
    assert found.error.__cause__ is error
    assert f"t-3: {len(delivery.records)} bytes in " in found.error.message


def test_a_lost_count_is_explained_where_one_batch_alone_is_refused() -> None:
    error = errors.OutOfOrderSequenceError("5 after 3")
    assert verdict(error, 2).error is error
    explained = verdict(error).error
    assert isinstance(explained, errors.OutOfOrderSequenceError)
    assert explained.__cause__ is error
    assert "t-3: the log does not end with the last record acknowledged" in explained.message


FIRST = ProducerIdentity(7, 0)
SECOND = ProducerIdentity(8, 0)


def standing(identity: ProducerIdentity | None = FIRST, **options: Any) -> ProducerStanding:
    made = ProducerStanding(ProducerConfig(**options))
    if identity is not None:
        made.assume(identity, ())
    return made


def queue_of(count: int, records: int = 1) -> PartitionQueue:
    """A partition whose sealed batches go out one at a time."""
    queue = PartitionQueue("t", 0, Backoff(1, 1), 1)
    for _ in range(count):
        builder = BatchBuilder()
        for _ in range(records):
            builder.append(7, None, b"v")
        queue.open = Batch("t", 0, builder, 0.0)
        queue.seal()
    return queue


def take(producer: ProducerStanding, queue: PartitionQueue) -> Batch:
    taken = producer.take(queue)
    (batch,) = taken
    return batch


def test_what_was_never_numbered_leaves_no_gap_and_what_may_be_written_is_given_up_with_its_identity() -> None:
    producer, queue = standing(), queue_of(2)
    take(producer, queue)
    assert producer.close_gap(queue, [queue.sealed.pop()], ConnectionLostError("gone")) == []
    assert (producer.identity, queue.identity, queue.next_sequence) == (FIRST, FIRST, 1)
    producer, queue = standing(), queue_of(3)
    first, second = take(producer, queue), take(producer, queue)
    first.is_undecided = second.is_undecided = True
    queue.sealed.appendleft(second)  # it was put back behind the first, to be sent alone
    assert producer.close_gap(queue, [first], ConnectionLostError("gone")) == [second]
    assert second.base_sequence == NO_SEQUENCE
    newer, queue = standing(), queue_of(2)
    lost = take(newer, queue)
    lost.is_undecided = True
    newer.assume(SECOND, [queue])
    newer.close_gap(queue, [lost], ConnectionLostError("gone"))
    assert newer.identity == SECOND, "one that is newer than the partition's is kept"
    assert take(newer, queue).base_sequence == 0


def sized_delivery(size_bytes: int, partition: int = INT32_MAX) -> Delivery:
    queue = PartitionQueue("t" * MAX_TOPIC_NAME_CHARS, partition, Backoff(1, 1), 1)
    delivery = Delivery(queue, ())
    delivery.records = bytes(size_bytes)
    return delivery


def frame_bytes(request: list[Delivery]) -> int:
    transactional_id = "\N{GRINNING FACE}" * MAX_TRANSACTIONAL_ID_CHARS
    message = ProduceRequest(tuple(delivery.to_message() for delivery in request), -1, INT32_MAX, transactional_id)
    return sum(map(len, pack_frame((2**32 - 1, message.api, VERSION), message.to_body())))


@pytest.mark.parametrize("max_frame_bytes", [3_000, 20_000, 1_000_000])
def test_the_longest_names_fit_the_frame_too(max_frame_bytes: int) -> None:
    limits = RequestLimits(max_request_bytes=10**9, max_frame_bytes=max_frame_bytes)
    deliveries = [
        sized_delivery(size, size) for size in (limits.max_records_bytes, 100, 200, 300, limits.max_records_bytes - 1)
    ]
    requests = list(limits.split(deliveries * 20))
    assert [delivery for request in requests for delivery in request] == deliveries * 20
    assert all(frame_bytes(request) <= max_frame_bytes + 4 for request in requests)


def test_a_delivery_above_the_limits_is_alone_and_a_record_is_judged_where_its_size_is_known() -> None:
    limits = RequestLimits(max_request_bytes=500, max_frame_bytes=5_000)
    deliveries = [sized_delivery(size) for size in (100, 9_000, 100, 600)]
    assert [len(request) for request in limits.split(deliveries)] == [1, 1, 1, 1]
    assert [limits.is_sendable(delivery) for delivery in deliveries] == [True, False, True, True]
    queue = sized_delivery(0, 3).queue
    limits.check_record(queue, 9_000, CompressionType.GZIP)
    with pytest.raises(RecordTooLargeError, match=r"9000 bytes for t+-3\. The server takes frames of at most"):
        limits.check_record(queue, 9_000, CompressionType.NONE)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_kafka_gives(key: bytes, signed: int) -> None:
    """The vectors of Kafka's UtilsTest.testMurmur2."""
    assert murmur2(key) == signed % 2**32


@given(key=st.binary(max_size=40), partitions=st.integers(1, 1000))
def test_partition_is_the_hash_without_its_sign_bit(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (murmur2(key) & 0x7FFF_FFFF) % partitions
    assert murmur2(key) == murmur2(bytearray(key)) == murmur2(memoryview(key))


def test_records_without_a_key_stay_for_a_batch_and_then_move() -> None:
    sticky = StickyPartitioner(5, 1000, random.Random(1))
    chosen = [sticky.partition_for(100) for _ in range(1000)]
    runs = [chosen[start : start + 10] for start in range(0, 1000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(run[0] != following[0] for run, following in pairwise(runs))
    assert set(chosen) == set(range(5))
    alone = StickyPartitioner(1, 10)
    assert {alone.partition_for(100) for _ in range(10)} == {0}


NOW_MS = 1_700_000_000_000
WEEK_MS = 604_800_000


def watch(**values: str) -> RetentionWatch:
    config = {key.replace("_", "."): ConfigEntry(value, "topic") for key, value in values.items()}
    return RetentionWatch("t", config, NOW_MS)


def test_a_record_is_too_old_below_now_minus_the_retention() -> None:
    week = watch(retention_ms=str(WEEK_MS))
    assert week.is_too_old(NOW_MS - WEEK_MS - 1)
    assert not week.is_too_old(NOW_MS - WEEK_MS)
    assert week.is_too_old(0)
    assert watch(retention_ms="1", cleanup_policy="compact,delete").is_too_old(0)
    assert not watch(retention_ms="0").is_too_old(None), "it gets the time of its append"


def test_topics_that_delete_nothing_by_record_time_find_nothing_too_old() -> None:
    for values in (
        {"retention_ms": "-1"},
        {"retention_ms": "1", "cleanup_policy": "compact"},
        {"retention_ms": "1", "message_timestamp_type": "LogAppendTime"},
        {},
    ):
        assert not watch(**values).is_too_old(0), values


def test_the_warning_names_both_numbers_and_both_ways_out() -> None:
    warning = watch(retention_ms=str(WEEK_MS)).warning("2013-07-04")
    for part in ("2013-07-04", "topic t", "retention.ms=604800000, 7 days", "retention.ms=-1", "LogAppendTime"):
        assert part in warning
