"""What is given up and what the others count on from there; against a log that counts too: test_sequences."""

from __future__ import annotations

from typing import Any

from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.types import NO_SEQUENCE
from triolog.tools.client.backoff import Backoff
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import ConnectionLostError
from triolog.tools.client.sending.accumulator import ProducerStanding
from triolog.tools.client.sending.partition_queue import Batch, PartitionQueue, ProducerIdentity

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
