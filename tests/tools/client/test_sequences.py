"""The accumulator of a producer, mostly an idempotent one, against a log that counts sequences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from triolog.protocol import errors
from triolog.protocol.records.batch import BatchHeader, check_batch, iter_batches
from triolog.tools.client.errors import ClosedError, ConnectionLostError, DeliveryTimedOutError
from triolog.tools.client.sending.futures import RecordFuture
from triolog.tools.client.sending.partition_queue import Delivery, ProducerIdentity

from tests.support.native_server import FakeLog

from .sending.test_accumulator import Driver as PlainDriver

FIRST = ProducerIdentity(7, 0)
SECOND = ProducerIdentity(8, 0)


class Driver(PlainDriver):
    """An accumulator, its clock, and logs that its deliveries are written to on request."""

    def __init__(self, identity: ProducerIdentity | None = FIRST, **options: Any) -> None:
        super().__init__(**{"enable_idempotence": True, "linger_ms": 0, "batch_bytes": 200, **options})
        self.logs = {0: FakeLog(), 1: FakeLog()}
        if identity is not None:
            self.accumulator.set_producer(identity)

    def batches(self, count: int) -> list[RecordFuture]:
        """Records that fill a batch each."""
        return [self.append(bytes([number]) * 140) for number in range(count)]

    def drain(self) -> list[Delivery]:
        self.accumulator.flush()
        return super().drain()

    def write(self, delivery: Delivery) -> int | errors.RequestError:
        try:
            return self.logs[delivery.queue.partition].append(delivery.records)  # type: ignore[arg-type]
        except errors.RequestError as exc:
            return exc

    def settle(self, delivery: Delivery, outcome: int | errors.RequestError) -> None:
        """Answer with a base offset or an error."""
        self.answer(delivery, **({"error": outcome} if isinstance(outcome, errors.RequestError) else {"base_offset": outcome}))

    def deliver(self) -> None:
        """Write and answer what is to be sent now."""
        for delivery in self.drain():
            self.settle(delivery, self.write(delivery))

    def lose(self, delivery: Delivery) -> None:
        """The connection breaks before the answer."""
        self.accumulator.fail(delivery, ConnectionLostError("gone"))

    def serve(self) -> None:
        for _ in range(50):
            self.now += 2
            self.deliver()
            if self.accumulator.wants_producer:
                self.accumulator.set_producer(SECOND)


def headers_of(delivery: Delivery) -> list[BatchHeader]:
    for header, batch in iter_batches(delivery.records):
        check_batch(batch, header)
    return [header for header, _ in iter_batches(delivery.records)]


def sequences_of(delivery: Delivery) -> list[int]:
    return [header.base_sequence for header in headers_of(delivery)]


def numbers_in(log: FakeLog) -> list[int]:
    return [(record.value or b"")[0] for record in log.records()]


def test_batches_wait_for_a_producer_id_and_then_count_from_zero() -> None:
    driver = Driver(identity=None)
    driver.batches(3)
    assert driver.drain() == []
    assert driver.accumulator.wants_producer
    driver.accumulator.set_producer(FIRST)
    (delivery,) = driver.drain()
    assert sequences_of(delivery) == [0, 1, 2]
    assert {(header.producer_id, header.producer_epoch) for header in headers_of(delivery)} == {FIRST}


def test_each_partition_counts_its_records() -> None:
    driver = Driver(batch_bytes=1000)
    for partition, count in ((0, 3), (1, 2), (0, 1)):
        for _ in range(count):
            driver.append(b"a", partition)
        driver.deliver()
    assert [header.base_sequence for _, _, batch in driver.logs[0].batches for header, _ in iter_batches(batch)] == [0, 3]
    driver.append(b"a", 1)
    (delivery,) = driver.drain()
    assert sequences_of(delivery) == [2]


def test_the_batch_after_one_that_was_refused_takes_over_its_sequence() -> None:
    driver = Driver()
    first = driver.append(b"bad")
    (delivery,) = driver.drain()
    second = driver.append(b"good")
    driver.settle(delivery, errors.InvalidRecordError("no"))
    with pytest.raises(errors.InvalidRecordError):
        first.value()
    (after,) = driver.drain()
    assert (sequences_of(after), headers_of(after)[0].producer_id) == ([0], FIRST.producer_id)
    driver.settle(after, driver.write(after))
    assert second.value().offset == 0


def test_a_refused_batch_between_others_leaves_no_hole() -> None:
    driver = Driver(max_request_bytes=10_000)
    futures = driver.batches(4)
    (together,) = driver.drain()
    assert sequences_of(together) == [0, 1, 2, 3]
    driver.settle(together, errors.InvalidRecordError("one of them"))
    while deliveries := driver.drain():
        (delivery,) = deliveries
        is_bad = delivery.batches[0] is together.batches[1]
        driver.settle(delivery, errors.InvalidRecordError("this one") if is_bad else driver.write(delivery))
    assert numbers_in(driver.logs[0]) == [0, 2, 3]
    assert [future.value().offset for future in (futures[0], *futures[2:])] == [0, 1, 2]


@pytest.mark.parametrize("kept", [None, 2])
def test_a_request_of_which_a_crash_kept_half_or_that_is_too_much_is_completed(kept: int | None) -> None:
    """The log has the first two batches of five: together they are out of order, one by one they are found or written."""
    driver = Driver(max_request_bytes=10_000)
    futures = driver.batches(6)
    (together,) = driver.drain()
    assert len(together.batches) == 5, "no more: the server knows five again"
    if kept is None:
        driver.settle(together, errors.RecordBatchTooLargeError("above segment.bytes"))
    else:
        driver.write(together)
        driver.logs[0].cut(kept)
        driver.lose(together)
    driver.serve()
    assert [future.value().offset for future in futures] == list(range(6))
    assert numbers_in(driver.logs[0]) == list(range(6))


def test_after_an_unknown_outcome_is_given_up_the_partition_starts_again_under_another_producer() -> None:
    driver = Driver(delivery_timeout_ms=3000)
    lost = driver.append(b"\0lost")
    (delivery,) = driver.drain()
    driver.write(delivery)
    driver.lose(delivery)
    driver.append(b"\1after")
    driver.now += 5
    assert driver.drain() == []
    with pytest.raises(DeliveryTimedOutError):
        lost.value()
    other = driver.append(b"\2other", 1)
    assert driver.drain() == []
    assert driver.accumulator.wants_producer
    driver.accumulator.set_producer(SECOND)
    for delivery in driver.drain():
        assert (headers_of(delivery)[0].producer_id, sequences_of(delivery)) == (SECOND.producer_id, [0])
        driver.settle(delivery, driver.write(delivery))
    assert other.value().offset == 0


def test_other_partitions_keep_their_producer_and_their_count() -> None:
    driver = Driver(delivery_timeout_ms=3000)
    driver.append(b"a", 1)
    driver.deliver()
    driver.append(b"lost", 0)
    (delivery,) = driver.drain()
    driver.lose(delivery)
    driver.now += 5
    driver.drain()
    driver.append(b"b", 1)
    (delivery,) = driver.drain()
    assert (headers_of(delivery)[0].producer_id, sequences_of(delivery)) == (FIRST.producer_id, [1])


def test_acknowledged_records_that_are_gone_are_told_and_the_next_are_written() -> None:
    driver = Driver()
    kept = driver.append(b"\0")
    driver.deliver()
    gone = driver.append(b"\1")
    driver.deliver()
    assert (kept.value().offset, gone.value().offset) == (0, 1)
    driver.logs[0].cut(1)
    told = driver.append(b"\2")
    (delivery,) = driver.drain()
    after = driver.append(b"\3")
    driver.settle(delivery, driver.write(delivery))
    with pytest.raises(
        errors.OutOfOrderSequenceError, match=r"t-0: the log does not end with the last record acknowledged .* are lost"
    ):
        told.value()
    driver.serve()
    assert after.value().offset == 1
    assert numbers_in(driver.logs[0]) == [0, 3]


def test_a_fenced_producer_gives_up_everything_and_looks_at_no_answer() -> None:
    driver = Driver()
    futures = [driver.append(b"a", 0), driver.append(b"b", 1)]
    first, second = driver.drain()
    waiting = driver.append(b"c", 0)
    driver.settle(first, errors.InvalidProducerEpochError("epoch 0, the log has 1"))
    driver.settle(second, driver.write(second))
    for future in (*futures, waiting):
        with pytest.raises(errors.InvalidProducerEpochError):
            future.value()
    assert isinstance(driver.accumulator.fatal, errors.InvalidProducerEpochError)
    assert driver.drain() == []
    assert driver.accumulator.next_deadline() is None


def test_a_failed_record_of_a_transaction_drops_what_was_not_sent() -> None:
    driver = Driver(transactional_id="x")
    bad = driver.append(b"bad")
    (delivery,) = driver.drain()
    assert headers_of(delivery)[0].is_transactional
    unsent = driver.append(b"unsent")
    driver.settle(delivery, errors.InvalidRecordError("no"))
    for future in (bad, unsent):
        with pytest.raises(errors.InvalidRecordError):
            future.value()
    assert isinstance(driver.accumulator.failure, errors.InvalidRecordError)
    assert driver.accumulator.unfinished == []
    driver = Driver()
    sent = driver.append(b"sent")
    (delivery,) = driver.drain()
    unsent = driver.append(b"unsent")
    driver.accumulator.drop_unsent(ClosedError("dropped"))
    assert unsent.is_done
    driver.settle(delivery, driver.write(delivery))
    assert sent.value().offset == 0, "what is on its way is left"
    assert driver.accumulator.buffered_bytes == 0


def test_another_epoch_of_a_transactional_producer_starts_every_partition_at_zero() -> None:
    driver = Driver(transactional_id="x")
    for partition in (0, 1):
        driver.append(b"a", partition)
    driver.deliver()
    driver.accumulator.set_producer(ProducerIdentity(7, 1))
    for partition in (0, 1):
        driver.append(b"b", partition)
    for delivery in driver.drain():
        assert [(h.producer_epoch, h.base_sequence) for h in headers_of(delivery)] == [(1, 0)]


class SequenceMachine(RuleBasedStateMachine):
    """A server that loses requests and answers, refuses, and forgets the tail of a log that it has not acknowledged: what a log
    holds is in order and nothing is there twice, and what was acknowledged is where it was said to be. Each record begins
    with its number."""

    is_idempotent = True

    @initialize(linger_ms=st.sampled_from([0, 5]), batch_bytes=st.sampled_from([80, 300]))
    def start(self, linger_ms: int, batch_bytes: int) -> None:
        options = {"enable_idempotence": self.is_idempotent, "linger_ms": linger_ms, "batch_bytes": batch_bytes}
        self.driver = Driver(identity=None, **options, max_request_bytes=700, delivery_timeout_ms=3000)
        self.in_flight: list[Delivery] = []
        self.futures: list[RecordFuture] = []
        self.next_producer_id = 100

    @rule(partition=st.sampled_from([0, 1]), padding=st.integers(0, 120))
    def append(self, partition: int, padding: int) -> None:
        number = len(self.futures)
        self.futures.append(self.driver.append(number.to_bytes(4, "big") + bytes(padding), partition))

    @rule()
    def drain(self) -> None:
        self.in_flight += [delivery for request in self.driver.accumulator.drain() for delivery in request]

    @rule()
    def flush(self) -> None:
        self.driver.accumulator.flush()

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.2, 2.0]))
    def wait(self, seconds: float) -> None:
        self.driver.now += seconds

    @precondition(lambda self: self.driver.accumulator.wants_producer)
    @rule()
    def give_producer(self) -> None:
        self.next_producer_id += 1
        self.driver.accumulator.set_producer(ProducerIdentity(self.next_producer_id, 0))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), outcome=st.sampled_from(["written", "answer lost", "lost", "refused", "half kept"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        delivery = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        log = self.driver.logs[delivery.queue.partition]
        if outcome == "refused":
            self.driver.settle(delivery, errors.InvalidRecordError("no"))
            return
        before = log.high_watermark
        answer = 0 if outcome == "lost" else self.driver.write(delivery)
        if outcome == "half kept" and log.high_watermark > before:
            log.cut(data.draw(st.sampled_from([batch[0] for batch in log.batches if batch[0] >= before])))
        if outcome == "written" or isinstance(answer, errors.RequestError):
            self.driver.settle(delivery, answer)
        else:
            self.driver.lose(delivery)

    @invariant()
    def one_delivery_of_a_partition_is_in_flight(self) -> None:
        partitions = [delivery.queue.partition for delivery in getattr(self, "in_flight", [])]
        assert len(partitions) == len(set(partitions))

    @invariant()
    def acknowledged_records_are_where_their_metadata_says(self) -> None:
        for number, future in enumerate(getattr(self, "futures", [])):
            if future.is_done and not future._outcome.error:
                metadata = future.value()
                assert self.numbers(metadata.partition)[metadata.offset] == number

    @invariant()
    def logs_are_in_order_and_hold_nothing_twice(self) -> None:
        for partition in getattr(self, "driver", Driver()).logs:
            numbers = self.numbers(partition)
            assert (numbers if self.is_idempotent else list(dict.fromkeys(numbers))) == sorted(set(numbers))

    def numbers(self, partition: int) -> list[int]:
        return [int.from_bytes((record.value or b"")[:4], "big") for record in self.driver.logs[partition].records()]

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for delivery in self.in_flight:
            self.driver.lose(delivery)
        self.driver.serve()
        assert all(future.is_done for future in self.futures)
        assert self.driver.accumulator.buffered_bytes == 0
        assert self.driver.accumulator.next_deadline() is None
        self.logs_are_in_order_and_hold_nothing_twice()
        self.acknowledged_records_are_where_their_metadata_says()


class PlainMachine(SequenceMachine):
    """Without idempotence records are in order but for repetitions."""

    is_idempotent = False


TestSequences = SequenceMachine.TestCase
TestPlain = PlainMachine.TestCase
