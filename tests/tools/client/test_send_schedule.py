from __future__ import annotations

from triolog.protocol.records.builder import BatchBuilder
from triolog.tools.client.backoff import Backoff
from triolog.tools.client.partition_queue import Batch, Delivery, PartitionQueue
from triolog.tools.client.send_schedule import SendSchedule


def opened(schedule: SendSchedule, now: float, partition: int = 0) -> PartitionQueue:
    """A queue with an open batch of one record."""
    queue = PartitionQueue("t", partition, Backoff(1, 1), 1000)
    builder = BatchBuilder()
    builder.append(7, None, b"v")
    queue.open = Batch("t", partition, builder, now)
    schedule.start_linger(queue, queue.open)
    return queue


def seal(schedule: SendSchedule, queue: PartitionQueue) -> None:
    queue.seal()
    schedule.stop_linger(queue)
    schedule.update(queue)


def test_nothing_is_due_when_there_is_nothing() -> None:
    schedule = SendSchedule(1.0)
    assert (schedule.next_deadline(), schedule.ready, schedule.lingered(10**9), schedule.due_retries(10**9)) == (
        None,
        [],
        [],
        [],
    )


def test_open_batches_linger_from_their_creation_on() -> None:
    schedule = SendSchedule(1.0)
    first, second = opened(schedule, 10.0), opened(schedule, 10.5, 1)
    assert schedule.next_deadline() == 11.0
    assert schedule.lingered(10.9) == []
    assert schedule.lingered(11.0) == [first]
    assert schedule.lingered(11.5) == [first, second]
    assert schedule.lingering == [first, second]


def test_a_batch_whose_partition_waits_for_an_answer_is_not_due() -> None:
    schedule = SendSchedule(1.0)
    waiting, other = opened(schedule, 10.0), opened(schedule, 10.5, 1)
    waiting.delivery = Delivery(waiting, ())
    assert schedule.lingered(12.0) == [other]
    assert schedule.next_deadline() == 11.5


def test_a_partition_is_ready_while_it_has_sealed_batches_and_nothing_in_flight() -> None:
    schedule = SendSchedule(0.0)
    first, second = opened(schedule, 1.0), opened(schedule, 1.0, 1)
    seal(schedule, second)
    seal(schedule, first)
    assert schedule.ready == [second, first]
    second.delivery = Delivery(second, second.take())
    schedule.update(second)
    assert (schedule.ready, schedule.ready_count) == ([first], 1)
    second.delivery = None
    schedule.update(second)
    assert schedule.ready == [first], "it has nothing left to send"
    schedule.clear()
    assert schedule.ready == []


def test_a_failed_delivery_is_due_at_its_time_once() -> None:
    schedule = SendSchedule(1.0)
    queue = opened(schedule, 5.0)
    seal(schedule, queue)
    delivery = queue.delivery = Delivery(queue, queue.take())
    schedule.retry(queue, 8.0)
    assert schedule.is_retrying(queue)
    assert schedule.next_deadline() == 8.0
    assert schedule.due_retries(7.9) == []
    assert schedule.due_retries(8.0) == [delivery]
    assert not schedule.is_retrying(queue)
    assert schedule.due_retries(8.0) == []


def test_a_delivery_that_is_settled_while_it_waits_is_not_tried_again() -> None:
    schedule = SendSchedule(1.0)
    queue = opened(schedule, 5.0)
    seal(schedule, queue)
    queue.delivery = Delivery(queue, queue.take())
    schedule.retry(queue, 8.0)
    schedule.stop_retry(queue)
    assert schedule.due_retries(9.0) == []
    assert schedule.next_deadline() is None
