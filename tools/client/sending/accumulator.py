"""Records waiting to be sent: batches per partition, what is in flight, what is acknowledged, given up, or tried again.

No sockets; the clock is the caller's, any monotonic one in seconds. Order is kept because a partition has at most
one delivery in flight and a failed one stays at its head; nothing of that partition is sent before it is settled. An
idempotent producer's batches are numbered when they are first sent, which needs a producer id: `wants_producer` says
when the owner is to ask the server for one and hand it to `set_producer`.

    append -> open batch -> (full, lingered, flushed) sealed batches -> Delivery -> settled
                                                          ^                |
                                                          +-- retry -------+

When a partition sends is in `send_schedule`, as which producer in `producer_standing`, what an error means in
`delivery_verdict`, a partition's own batches and numbers in `partition_queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ....protocol import limits
from ....protocol.errors import RequestError, TriologError
from ....protocol.native.messages import ProducePartitionResponse
from ....protocol.records.builder import BatchBuilder, Headers
from ....protocol.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP, Bytes
from ..backoff import Backoff
from ..config import ProducerConfig
from .delivery_verdict import LOST_SEQUENCE_CODES, Fate, judge, timed_out
from .partition_queue import Batch, Delivery, PartitionQueue, ProducerIdentity
from .request_limits import RequestLimits
from .send_schedule import SendSchedule


class ProducerStanding:
    """As which producer new sequences start, and what a batch that is given up does to the count (KIP-98, KIP-360).

    In each partition the server counts the records of a producer id and epoch. While client and server agree on the count the
    partition goes on with it, under the producer it began with. Where nobody knows what the server has counted, that partition
    alone starts again at 0, as another producer: the identity is dropped here, and the owner has to ask for the next one. How
    a partition numbers its batches is in `partition_queue`. Owner: the accumulator. A producer that is not idempotent has no
    identity and wants none.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._is_idempotent = config.is_idempotent
        self._is_transactional = config.transactional_id is not None
        self._identity: ProducerIdentity | None = None

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer that new sequences start under; None when there is none yet, or no longer."""
        return self._identity

    @property
    def lacks_identity(self) -> bool:
        """Return whether a partition that has to start its sequence lacks a producer id."""
        return self._is_idempotent and self._identity is None

    def assume(self, identity: ProducerIdentity, queues: Iterable[PartitionQueue]) -> None:
        """Be this producer from now on. Partitions whose count is sound keep it, except in a transactional producer, whose
        former epoch is fenced: there all of them start again."""
        self._identity = identity
        if self._is_transactional:
            for queue in queues:
                queue.start_sequence(None)

    def take(self, queue: PartitionQueue) -> tuple[Batch, ...] | None:
        """Return the partition's next batches with their sequences; None when it has to wait for a producer id."""
        if not self._is_idempotent:
            return queue.take()
        if queue.identity is None:
            if self._identity is None:
                return None
            queue.start_sequence(self._identity)
        batches = queue.take()
        queue.give_sequences(batches, is_transactional=self._is_transactional)
        return batches

    def close_gap(self, queue: PartitionQueue, batches: Sequence[Batch], error: TriologError) -> list[Batch]:
        """These batches were given up because of `error`: leave no hole in the sequence.

        Answers the ones behind them that have to be given up as well: they may have been written, and as another producer's
        nobody would know them again.
        """
        numbered = [batch for batch in batches if batch.base_sequence != NO_SEQUENCE]
        if not numbered:
            return []
        code = error.code if isinstance(error, RequestError) else None
        if code not in LOST_SEQUENCE_CODES and not any(batch.is_undecided for batch in numbered):
            queue.rewind_sequence(numbered[0].base_sequence)
            return []
        if self._identity == queue.identity:
            self._identity = None
        queue.start_sequence(None)
        return [batch for batch in queue.sealed if batch.is_undecided]


class Accumulator:
    """All records of one producer that are not settled. Owner: the producer, in one thread."""

    def __init__(self, config: ProducerConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._limits = RequestLimits(max_request_bytes=config.max_request_bytes, max_frame_bytes=limits.MAX_FRAME_BYTES)
        self._batch_bytes = config.batch_bytes
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._schedule = SendSchedule(config.linger_ms / 1000)
        self._standing = ProducerStanding(config)
        self._unfinished: dict[Batch, PartitionQueue] = {}  # by creation
        self.buffered_bytes = 0
        self.failure: TriologError | None = None
        """The first error that a batch was given up for; a transaction's owner clears it when one begins."""
        self.has_sent = False
        """Whether a batch was ever handed out to be sent; cleared as `failure` is."""
        self.fatal: TriologError | None = None
        """What ended the producer: nothing can be sent any more."""

    def __repr__(self) -> str:
        ready = self._schedule.ready_count
        return f"<Accumulator {len(self._unfinished)} batches, {self.buffered_bytes} bytes, {ready} ready>"

    @property
    def unfinished(self) -> list[Batch]:
        """Batches that are neither acknowledged nor given up, oldest first."""
        return list(self._unfinished)

    @property
    def wants_producer(self) -> bool:
        """Return whether batches wait for a producer id."""
        return self._standing.lacks_identity and self._schedule.ready_count > 0

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer that new sequences start under; None when there is none yet, or no longer."""
        return self._standing.identity

    def set_producer(self, identity: ProducerIdentity) -> None:
        """Number batches as this producer's. A transactional producer takes it between transactions, when nothing is in
        flight."""
        if self._config.transactional_id is not None:
            assert not self._unfinished, f"another epoch although {len(self._unfinished)} batches are not settled"
        self._standing.assume(identity, self._queues.values())

    def limit_frames(self, max_frame_bytes: int) -> None:
        """Set the largest frame that the server accepts. Call it before the first record, and again when a connection reports
        another limit."""
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
        """Return whether a record of this size fits the buffer now. One record always fits an empty buffer."""
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
                self._seal(queue)
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
        for queue in self._schedule.lingering:
            self._seal(queue)

    def drain(self) -> Iterator[list[Delivery]]:
        """Yield the deliveries to send now, as the partitions of one request at a time. Yielded deliveries are in flight."""
        now = self._clock()
        self._expire(now)
        for queue in self._schedule.lingered(now):
            self._seal(queue)
        deliveries = self._schedule.due_retries(now)
        for queue in self._schedule.ready:
            batches = self._standing.take(queue)
            if batches is not None:
                queue.delivery = Delivery(queue, batches)
                self._schedule.update(queue)
                deliveries.append(queue.delivery)
                self.has_sent = True
        yield from self._limits.split(deliveries)

    def next_deadline(self) -> float | None:
        """Return when `drain` is worth calling again if nothing is appended or settled until then; None: never."""
        deadline = self._schedule.next_deadline()
        for batch, queue in self._unfinished.items():
            if not self._is_in_flight(queue, batch):
                expires_at = batch.created_at + self._delivery_timeout_s
                return expires_at if deadline is None else min(deadline, expires_at)
        return deadline

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
        """The delivery failed; what becomes of it is in `delivery_verdict`."""
        if self.fatal is not None:
            return
        now = self._clock()
        queue, expires_at = delivery.queue, delivery.batches[0].created_at + self._delivery_timeout_s
        verdict = judge(delivery, error, self._config, self._limits, is_late=now >= expires_at)
        if verdict.is_undecided:
            for batch in delivery.batches:
                batch.is_undecided = True
        match verdict.fate:
            case Fate.RETRY:
                self._schedule.retry(queue, min(now + queue.backoff.pause_s(), expires_at))
            case Fate.IN_HALVES | Fate.ONE_BY_ONE:
                queue.put_back(delivery, in_halves=verdict.fate is Fate.IN_HALVES)
                self._release(delivery)
            case Fate.GIVE_UP:
                self._give_up(delivery, verdict.error)
            case Fate.END_PRODUCER:
                self.end(verdict.error)

    def end(self, error: TriologError) -> None:
        """Give up everything because of a fatal error; answers that still come are not looked at."""
        self.fatal = error
        self.abandon(error)

    def drop_unsent(self, error: TriologError) -> None:
        """Give up what is not on its way; what is will be settled as ever."""
        for batch, queue in list(self._unfinished.items()):
            if not batch.is_done and (queue.delivery is None or batch not in queue.delivery.batches):
                self._drop(queue, batch, error)

    def abandon(self, error: TriologError) -> None:
        """Give up everything: the producer ends here."""
        for batch in list(self._unfinished):
            self._finish(batch)
            batch.fail(error)
        self._queues.clear()
        self._schedule.clear()

    def _open(self, queue: PartitionQueue) -> tuple[Batch, BatchBuilder]:
        builder = BatchBuilder(compression_type=self._config.compression_type, compression_level=self._config.compression_level)
        batch = queue.open = Batch(queue.topic, queue.partition, builder, self._clock())
        self._unfinished[batch] = queue
        self._schedule.start_linger(queue, batch)
        return batch, builder

    def _seal(self, queue: PartitionQueue) -> None:
        queue.seal()
        self._schedule.stop_linger(queue)
        self._schedule.update(queue)

    def _is_in_flight(self, queue: PartitionQueue, batch: Batch) -> bool:
        return queue.delivery is not None and not self._schedule.is_retrying(queue) and batch in queue.delivery.batches

    def _expire(self, now: float) -> None:
        """Give up batches whose time is over and that are not in flight; in flight, the answer decides."""
        if not self._unfinished or next(iter(self._unfinished)).created_at + self._delivery_timeout_s > now:
            return
        timeout_ms = self._config.delivery_timeout_ms
        for batch, queue in list(self._unfinished.items()):
            if batch.created_at + self._delivery_timeout_s > now:
                return
            if self._is_in_flight(queue, batch) or batch.is_done:
                continue
            if queue.delivery is not None and batch in queue.delivery.batches:
                self._give_up(queue.delivery, timed_out(queue.delivery.batches, timeout_ms, None))
            else:
                self._drop(queue, batch, timed_out((batch,), timeout_ms, None))

    def _drop(self, queue: PartitionQueue, batch: Batch, error: TriologError) -> None:
        if queue.open is batch:
            self._forget(queue, batch)
        else:
            queue.sealed.remove(batch)
            self._schedule.update(queue)
            self._finish(batch)
        self._fail_batches(queue, (batch,), error)

    def _forget(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.open = None
        self._schedule.stop_linger(queue)
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
        for batch in self._standing.close_gap(queue, batches, error):
            self._drop(queue, batch, error)
        if is_first and self._config.transactional_id is not None:
            self.drop_unsent(error)  # the transaction can only be aborted

    def _release(self, delivery: Delivery) -> None:
        """The partition may send again."""
        queue = delivery.queue
        assert queue.delivery is delivery, f"{queue.topic}-{queue.partition} has another delivery in flight"
        queue.delivery = None
        queue.backoff.reset()
        self._schedule.stop_retry(queue)
        self._schedule.update(queue)

    def _finish(self, batch: Batch) -> None:
        del self._unfinished[batch]
        self.buffered_bytes -= batch.buffered_bytes
        batch.builder = None
        batch.encoded = b""  # its futures may be kept for long
