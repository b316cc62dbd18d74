"""Records waiting to be sent: batches per partition, what is due when, what is in flight, what is tried again.

No sockets; the clock is the caller's, any monotonic one in seconds. Order is kept because a partition has at most
one delivery in flight and a failed one stays at its head; nothing of that partition is sent before it is settled. An
idempotent producer's batches are numbered when they are first sent (`partition_queue`), which needs a producer id:
`wants_producer` says when the owner is to ask the server for one and hand it to `set_producer`.

    append -> open batch -> (full, lingered, flushed) sealed batches -> Delivery -> settled
                                                          ^                |
                                                          +-- retry -------+
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...protocol import limits
from ...protocol.errors import (
    ErrorCode,
    LocalProtocolError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestError,
    TriologError,
)
from ...protocol.native.messages import ProducePartitionResponse
from ...protocol.records.builder import BatchBuilder, Headers
from ...protocol.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP, Bytes
from .backoff import Backoff
from .config import ProducerConfig
from .errors import DeliveryTimedOutError
from .partition_queue import Batch, Delivery, PartitionQueue, ProducerIdentity
from .request_limits import RequestLimits

RECORD_OVERHEAD_BYTES: Final = 32
"""Counted per record beside key and value. Its other fields take at most 29 bytes in the batch, usually 8."""

FENCED_CODES: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Answers that end an idempotent producer: its epoch or its id is somebody else's now."""
UNDECIDED_CODES: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which the records may have been written all the same."""
LOST_SEQUENCE_CODES: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Answers that say that server and client have counted differently."""


class Accumulator:
    """All records of one producer that are not settled. Owner: the producer, in one thread."""

    def __init__(self, config: ProducerConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._linger_s = config.linger_ms / 1000
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._limits = RequestLimits(max_request_bytes=config.max_request_bytes, max_frame_bytes=limits.MAX_FRAME_BYTES)
        self._batch_bytes = config.batch_bytes
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._ready: dict[PartitionQueue, None] = {}  # in the order in which they became so
        self._lingering: dict[Batch, None] = {}  # the open ones, by creation
        self._retrying: dict[PartitionQueue, None] = {}
        """Queues that wait before they send again, in the order they began to."""
        self._unfinished: dict[Batch, None] = {}  # by creation
        self._identity: ProducerIdentity | None = None
        self.buffered_bytes = 0
        self.failure: TriologError | None = None
        """The first error that a batch was given up for; a transaction's owner clears it when one begins."""
        self.has_sent = False
        """Whether a batch was ever handed out to be sent; cleared as `failure` is."""
        self.fatal: TriologError | None = None
        """What ended the producer: nothing can be sent any more."""

    def __repr__(self) -> str:
        return f"<Accumulator {len(self._unfinished)} batches, {self.buffered_bytes} bytes, {len(self._ready)} ready>"

    @property
    def unfinished(self) -> list[Batch]:
        """Batches that are neither acknowledged nor given up, oldest first."""
        return list(self._unfinished)

    @property
    def wants_producer(self) -> bool:
        """Whether batches wait for a producer id."""
        return self._config.is_idempotent and self._identity is None and bool(self._ready)

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer that new sequences start under; None when there is none yet, or no longer."""
        return self._identity

    def set_producer(self, identity: ProducerIdentity) -> None:
        """Number batches as this producer's. Partitions whose sequence is sound keep theirs, except in a transactional
        producer, whose former epoch is fenced: it takes this between transactions, when nothing is in flight."""
        self._identity = identity
        if self._config.transactional_id is not None:
            assert not self._unfinished, f"another epoch although {len(self._unfinished)} batches are not settled"
            for queue in self._queues.values():
                queue.start_sequence(None)

    def limit_frames(self, max_frame_bytes: int) -> None:
        """What the server takes as one frame; to be said before records come, and again when a connection says otherwise."""
        if max_frame_bytes == self._limits.max_frame_bytes:
            return
        self._limits = RequestLimits(max_request_bytes=self._config.max_request_bytes, max_frame_bytes=max_frame_bytes)
        self._batch_bytes = min(self._config.batch_bytes, self._limits.max_records_bytes)
        for queue in self._queues.values():
            queue.max_request_bytes = min(queue.max_request_bytes, self._limits.max_records_bytes)

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition, the same one each time."""
        key = (topic, partition)
        queue = self._queues.get(key)
        if queue is None:
            backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
            max_bytes = min(self._config.max_request_bytes, self._limits.max_records_bytes)
            queue = self._queues[key] = PartitionQueue(topic, partition, backoff, max_bytes)
        return queue

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size fits the buffer now. One record always fits an empty buffer."""
        return not self.buffered_bytes or self.buffered_bytes + size_bytes <= self._config.buffer_bytes

    def append(
        self,
        queue: PartitionQueue,
        size_bytes: int,
        timestamp: int,
        key: Bytes | None,
        value: Bytes | None,
        headers: Headers,
    ) -> tuple[Batch, int]:
        """Add a record; returns its batch and its place there. `size_bytes` is its `record_size`. RecordTooLargeError for one
        that the server could not be sent."""
        self._limits.check_record(queue, size_bytes, self._config.compression_type)
        batch = queue.open
        builder = None if batch is None else batch.builder
        if batch is None or builder is None or builder.estimated_size_bytes + size_bytes > self._batch_bytes:
            if batch is not None:
                self._seal(queue, batch)
            batch, builder = self._open(queue)
        try:
            index = builder.append(timestamp, key, value, headers)
        except Exception:  # not a record: the caller hears of it, the batch goes on without it
            if not builder.records_count:
                self._forget(queue, batch)
            raise
        batch.buffered_bytes += size_bytes
        self.buffered_bytes += size_bytes
        return batch, index

    def flush(self) -> None:
        """Make everything that waits for company due now."""
        while self._lingering:
            self._seal_lingering(next(iter(self._lingering)))

    def drain(self) -> Iterator[list[Delivery]]:
        """What to send now, as the partitions of one request at a time. What is returned is in flight."""
        now = self._clock()
        self._expire(now)
        for batch in self._lingered(now):
            self._seal_lingering(batch)
        deliveries = self._due_retries(now)
        for queue in list(self._ready):
            delivery = self._deliver(queue)
            if delivery is not None:
                del self._ready[queue]
                deliveries.append(delivery)
                self.has_sent = True
        yield from self._limits.split(deliveries)

    def next_deadline(self) -> float | None:
        """When `drain` is worth calling again although nothing was appended or settled; None: never."""
        deadlines = [queue.retry_at for queue in self._retrying if queue.retry_at is not None]
        for batch in self._lingering:
            if not self._has_delivery(batch):
                deadlines.append(batch.created_at + self._linger_s)
                break
        for batch in self._unfinished:
            if not self._is_in_flight(batch):
                deadlines.append(batch.created_at + self._delivery_timeout_s)
                break
        return min(deadlines, default=None)

    def settle(self, delivery: Delivery, response: ProducePartitionResponse) -> None:
        """The server has answered for this partition."""
        if self.fatal is not None:
            return
        if response.error is not None:
            self.fail(delivery, response.error)
            return
        base_offset = response.base_offset
        self._release(delivery)
        for batch in delivery.batches:
            self._finish(batch)
            batch.succeed(base_offset, response.log_append_time)
            if base_offset != NO_OFFSET:
                base_offset += batch.records_count

    def settle_unanswered(self, delivery: Delivery) -> None:
        """The request was sent with acks 0: all that will ever be known."""
        assert self.fatal is None, "only idempotent producers end by a fatal error, and they want acks"
        self._release(delivery)
        for batch in delivery.batches:
            self._finish(batch)
            batch.succeed(NO_OFFSET, NO_TIMESTAMP)

    def fail(self, delivery: Delivery, error: TriologError) -> None:
        """The delivery failed: it is tried again while the error allows it and its time is not up, else given up.

        When several batches shared a request that was refused, they are tried again in smaller company: together they may
        be too large for a segment, of a refused one the others are innocent, and after a crash the log may hold some of
        them. A producer that was fenced gives up everything. Of a request that could not be sent, because a server with a
        smaller frame took over, only what is too large by itself is given up.
        """
        if self.fatal is not None:
            return
        now = self._clock()
        is_unsent = isinstance(error, LocalProtocolError)
        if is_unsent and not self._limits.is_sendable(delivery):
            error = _too_large(delivery, error)
        code = error.code if isinstance(error, RequestError) else None if is_unsent else ErrorCode.UNKNOWN_SERVER_ERROR
        if self._config.is_idempotent and code in FENCED_CODES:
            self.end(error)
            return
        if code in UNDECIDED_CODES:
            for batch in delivery.batches:
                batch.is_undecided = True
        if code in LOST_SEQUENCE_CODES and len(delivery.batches) == 1:
            error = _explained(delivery, error)
        retriable = error.retriable if isinstance(error, RequestError) else is_unsent
        expires_at = delivery.batches[0].created_at + self._delivery_timeout_s
        queue = delivery.queue
        if isinstance(error, RequestError) and not retriable and len(delivery.batches) > 1:
            self._separate(delivery, error)
        elif not retriable:
            self._give_up(delivery, error)
        elif now >= expires_at:
            self._give_up(delivery, self._timed_out(delivery.batches, error))
        else:
            queue.retry_at = min(now + queue.backoff.pause_s(), expires_at)
            self._retrying[queue] = None

    def end(self, error: TriologError) -> None:
        """Give up everything because of a fatal error; answers that still come are not looked at."""
        self.fatal = error
        self.abandon(error)

    def drop_unsent(self, error: TriologError) -> None:
        """Give up what is not on its way; what is will be settled as ever."""
        for batch in list(self._unfinished):
            queue = self._queues[batch.topic, batch.partition]
            if not batch.is_done and (queue.delivery is None or batch not in queue.delivery.batches):
                self._drop(queue, batch, error)

    def abandon(self, error: TriologError) -> None:
        """Give up everything: the producer ends here."""
        for batch in list(self._unfinished):
            self._finish(batch)
            batch.fail(error)
        self._queues.clear()
        self._ready.clear()
        self._retrying.clear()
        self._lingering.clear()

    def _open(self, queue: PartitionQueue) -> tuple[Batch, BatchBuilder]:
        builder = BatchBuilder(compression_type=self._config.compression_type, compression_level=self._config.compression_level)
        batch = queue.open = Batch(queue.topic, queue.partition, builder, self._clock())
        self._unfinished[batch] = None
        self._lingering[batch] = None
        return batch, builder

    def _seal(self, queue: PartitionQueue, batch: Batch) -> None:
        assert batch.builder is not None, "sealed twice"
        batch.batch_bytes = batch.builder.estimated_size_bytes
        self._lingering.pop(batch)
        queue.open = None
        queue.sealed.append(batch)
        if queue.delivery is None:
            self._ready[queue] = None

    def _seal_lingering(self, batch: Batch) -> None:
        self._seal(self._queues[batch.topic, batch.partition], batch)

    def _lingered(self, now: float) -> list[Batch]:
        """Batches that have lingered. One whose partition waits for an answer could not be sent and goes on growing: the
        slower the server, the larger its batches."""
        lingered = []
        for batch in self._lingering:
            if batch.created_at + self._linger_s > now:
                break
            if not self._has_delivery(batch):
                lingered.append(batch)
        return lingered

    def _has_delivery(self, batch: Batch) -> bool:
        return self._queues[batch.topic, batch.partition].delivery is not None

    def _is_in_flight(self, batch: Batch) -> bool:
        queue = self._queues[batch.topic, batch.partition]
        return queue.delivery is not None and queue not in self._retrying and batch in queue.delivery.batches

    def _deliver(self, queue: PartitionQueue) -> Delivery | None:
        """What the partition sends next, in flight from now on; None when it has to wait for a producer id."""
        if not self._config.is_idempotent:
            queue.delivery = Delivery(queue, queue.take())
            return queue.delivery
        if queue.identity is None:
            if self._identity is None:
                return None
            queue.start_sequence(self._identity)
        batches = queue.take()
        queue.give_sequences(batches, is_transactional=self._config.transactional_id is not None)
        queue.delivery = Delivery(queue, batches)
        return queue.delivery

    def _due_retries(self, now: float) -> list[Delivery]:
        due = [queue for queue in self._retrying if queue.retry_at is not None and queue.retry_at <= now]
        for queue in due:
            queue.retry_at = None
            self._retrying.pop(queue, None)
        return [queue.delivery for queue in due if queue.delivery is not None]

    def _expire(self, now: float) -> None:
        """Give up batches whose time is over and that are not in flight; in flight, the answer decides."""
        if not self._unfinished or next(iter(self._unfinished)).created_at + self._delivery_timeout_s > now:
            return
        for batch in list(self._unfinished):
            if batch.created_at + self._delivery_timeout_s > now:
                return
            queue = self._queues[batch.topic, batch.partition]
            if self._is_in_flight(batch) or batch.is_done:
                continue
            if queue.delivery is not None and batch in queue.delivery.batches:
                self._give_up(queue.delivery, self._timed_out(queue.delivery.batches, None))
            else:
                self._drop(queue, batch, self._timed_out((batch,), None))

    def _drop(self, queue: PartitionQueue, batch: Batch, error: TriologError) -> None:
        if queue.open is batch:
            self._forget(queue, batch)
        else:
            queue.sealed.remove(batch)
            if not queue.sealed:
                self._ready.pop(queue, None)
            self._finish(batch)
        self._fail_batches(queue, (batch,), error)

    def _forget(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.open = None
        self._lingering.pop(batch)
        self._finish(batch)

    def _give_up(self, delivery: Delivery, error: TriologError) -> None:
        self._release(delivery)
        for batch in delivery.batches:
            self._finish(batch)
        self._fail_batches(delivery.queue, delivery.batches, error)

    def _fail_batches(self, queue: PartitionQueue, batches: Sequence[Batch], error: TriologError) -> None:
        """Batches are given up: tell their futures, and leave no hole in the sequence."""
        is_first = self.failure is None
        self.failure = self.failure or error
        for batch in batches:
            batch.fail(error)
        self._mend_sequence(queue, batches, error)
        if is_first and self._config.transactional_id is not None:
            self.drop_unsent(error)  # the transaction can only be aborted

    def _mend_sequence(self, queue: PartitionQueue, batches: Sequence[Batch], error: TriologError) -> None:
        numbered = [batch for batch in batches if batch.base_sequence != NO_SEQUENCE]
        if not numbered:
            return
        code = error.code if isinstance(error, RequestError) else None
        if code not in LOST_SEQUENCE_CODES and not any(batch.is_undecided for batch in numbered):
            queue.rewind_sequence(numbered[0].base_sequence)
            return
        if self._identity == queue.identity:
            self._identity = None
        queue.start_sequence(None)
        for batch in [batch for batch in queue.sealed if batch.is_undecided]:  # under another identity nobody knows them again
            self._drop(queue, batch, error)

    def _separate(self, delivery: Delivery, error: RequestError) -> None:
        """Put the batches back at the head of their queue."""
        queue = delivery.queue
        queue.sealed.extendleft(reversed(delivery.batches))
        if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
            queue.max_request_bytes = sum(batch.batch_bytes for batch in delivery.batches) // 2
        else:
            queue.sent_alone = len(delivery.batches)
        self._release(delivery)

    def _release(self, delivery: Delivery) -> None:
        """The partition may send again."""
        queue = delivery.queue
        assert queue.delivery is delivery, f"{queue.topic}-{queue.partition} has another delivery in flight"
        queue.delivery = None
        queue.retry_at = None
        queue.backoff.reset()
        self._retrying.pop(queue, None)
        if queue.sealed:
            self._ready[queue] = None

    def _finish(self, batch: Batch) -> None:
        del self._unfinished[batch]
        self.buffered_bytes -= batch.buffered_bytes
        batch.builder = None
        batch.encoded = b""  # its futures may be kept for long

    def _timed_out(self, batches: Sequence[Batch], cause: TriologError | None) -> DeliveryTimedOutError:
        """What batches are given up with that were sent together, because the oldest of them has waited too long."""
        oldest = batches[0]
        verb = "was" if len(batches) == 1 else "are given up: the oldest of them was"
        error = DeliveryTimedOutError(
            f"{_count(batches)} for {oldest.topic}-{oldest.partition} {verb} not acknowledged within "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms}"
            + (f"; the last attempt failed with {cause}" if cause is not None else "")
        )
        error.__cause__ = cause
        return error


def _too_large(delivery: Delivery, error: TriologError) -> RecordTooLargeError:
    queue = delivery.queue
    refusal = RecordTooLargeError(
        f"{queue.topic}-{queue.partition}: {len(delivery.records)} bytes in {_count(delivery.batches)} were not sent: {error}"
    )
    refusal.__cause__ = error
    return refusal


def _count(batches: Sequence[Batch]) -> str:
    return "a batch" if len(batches) == 1 else f"{len(batches)} batches"


def _explained(delivery: Delivery, error: TriologError) -> OutOfOrderSequenceError:
    queue = delivery.queue
    explained = OutOfOrderSequenceError(
        f"{queue.topic}-{queue.partition}: the log does not end with what it acknowledged to this producer, so acknowledged "
        f"records are gone (a crash with another durability than fsync loses some); these records were not written. The "
        f"server said: {error}"
    )
    explained.__cause__ = error
    return explained


def record_size(key: Bytes | None, value: Bytes | None, headers: Headers) -> int:
    """What a record counts in its batch and in the buffer: an upper bound of its bytes in both."""
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, header_value in headers:
        size += len(name) * 4 + len(header_value or b"") + 10
    return size
