from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import RecordBatchTooLargeError
from triolog.protocol.native.messages import ProducePartitionResponse
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import ClosedError, ConnectionLostError, DeliveryTimedOutError
from triolog.tools.client.sending.accumulator import Accumulator
from triolog.tools.client.sending.futures import RecordFuture
from triolog.tools.client.sending.partition_queue import Delivery
from triolog.tools.client.sending.request_limits import record_size


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
        with pytest.raises(DeliveryTimedOutError, match="3 batches for t-1 are given up: the oldest of them was not ack"):
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
