"""The batches of one partition, oldest first, and the sequence numbers that make the server know a batch again (KIP-98).

A batch gets its sequence when it is sent for the first time and keeps it for every retry, so the server writes it once however
often it comes. A hole in the sequence would be refused: when a batch is given up the ones behind it get new numbers.

| the batch that is given up | the ones behind it |
|---|---|
| was refused each time it was sent: the server has not counted it | go on with its sequence |
| may have been written: nobody knows what the server has counted | start at 0 under another producer id or epoch (KIP-360) |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from ....protocol.native.messages import ProducePartition
from ....protocol.records.batch import increment_sequence, with_producer
from ....protocol.records.builder import BatchBuilder
from ....protocol.types import NO_SEQUENCE, Bytes
from ..backoff import Backoff
from .futures import BatchOutcome

MAX_SEQUENCED_BATCHES: Final = 5
"""Batches of a producer that share a request: the server knows a producer's last five again (Kafka: NUM_BATCHES_TO_RETAIN)."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch from a response to `init_producer`."""

    producer_id: int
    producer_epoch: int


class Batch(BatchOutcome):
    """Records of one partition that travel together. Owned by its queue until it is done."""

    __slots__ = (
        "base_sequence",
        "batch_bytes",
        "buffered_bytes",
        "builder",
        "created_at",
        "encoded",
        "is_undecided",
        "records_count",
    )

    def __init__(self, topic: str, partition: int, builder: BatchBuilder, now: float) -> None:
        super().__init__(topic, partition)
        self.builder: BatchBuilder | None = builder
        self.created_at = now
        self.buffered_bytes = 0  # counted against the buffer
        self.batch_bytes = 0  # of the batch, not compressed; known when it is sealed
        self.records_count = 0
        self.encoded: Bytes = b""
        self.base_sequence = NO_SEQUENCE
        self.is_undecided = False  # an attempt ended without the server's word on it

    def encode(self) -> Bytes:
        """The record batch; built once, so that a retry sends the same bytes."""
        if self.builder is not None:
            self.records_count = self.builder.records_count
            self.encoded = self.builder.build()
            self.builder = None
        return self.encoded

    def encode_sequenced(self, identity: ProducerIdentity, base_sequence: int, *, is_transactional: bool) -> None:
        """Build the record batch, or build it anew, with its producer and its place in the sequence."""
        self.base_sequence = base_sequence
        if self.builder is not None:
            self.builder.set_producer(*identity, base_sequence, is_transactional=is_transactional)
            self.encode()
        else:
            self.encoded = with_producer(self.encoded, *identity, base_sequence)


class PartitionQueue:
    """See the module. Owned by the accumulator."""

    __slots__ = (
        "backoff",
        "delivery",
        "identity",
        "max_request_bytes",
        "next_sequence",
        "open",
        "partition",
        "sealed",
        "sent_alone",
        "topic",
    )

    def __init__(self, topic: str, partition: int, backoff: Backoff, max_request_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.sealed: deque[Batch] = deque()
        self.delivery: Delivery | None = None  # in flight, or waiting to be sent again
        self.backoff = backoff
        self.max_request_bytes = max_request_bytes  # what batches may share; less once the server found it too much
        self.sent_alone = 0  # batches at the head that share a request with none, because one of them is refused
        self.identity: ProducerIdentity | None = None  # whose sequence this is; None: it starts with the next batch
        self.next_sequence = 0

    def seal(self) -> None:
        """The open batch takes no more records: it stands behind the others."""
        batch = self.open
        assert batch is not None, f"{self.topic}-{self.partition} has no open batch"
        assert batch.builder is not None, "sealed twice"
        batch.batch_bytes = batch.builder.estimated_size_bytes
        self.open = None
        self.sealed.append(batch)

    def take(self) -> tuple[Batch, ...]:
        """Take what goes into the next request off the head."""
        taken = [self.sealed.popleft()]
        if self.sent_alone:
            self.sent_alone -= 1
            return tuple(taken)
        size = taken[0].batch_bytes
        while self.sealed and size + self.sealed[0].batch_bytes <= self.max_request_bytes:
            if self.identity is not None and len(taken) == MAX_SEQUENCED_BATCHES:
                break
            size += self.sealed[0].batch_bytes
            taken.append(self.sealed.popleft())
        return tuple(taken)

    def put_back(self, delivery: Delivery, *, in_halves: bool) -> None:
        """Put the batches of a refused delivery back at the head: from now on requests have half its size, or these batches go
        out one by one."""
        self.sealed.extendleft(reversed(delivery.batches))
        if in_halves:
            self.max_request_bytes = sum(batch.batch_bytes for batch in delivery.batches) // 2
        else:
            self.sent_alone = len(delivery.batches)

    def give_sequences(self, batches: Iterable[Batch], *, is_transactional: bool) -> None:
        """Number the batches that have no number yet; they follow what was numbered before."""
        assert self.identity is not None, f"{self.topic}-{self.partition} has no producer id"
        for batch in batches:
            if batch.base_sequence == NO_SEQUENCE:
                batch.encode_sequenced(self.identity, self.next_sequence, is_transactional=is_transactional)
                self.next_sequence = increment_sequence(self.next_sequence, batch.records_count)

    def start_sequence(self, identity: ProducerIdentity | None) -> None:
        """Begin at 0, under this identity or, None, under one that is still to come."""
        self.identity = identity
        self.next_sequence = 0
        self._forget_sequences()

    def rewind_sequence(self, sequence: int) -> None:
        """Go on with a sequence that the server has not counted."""
        self.next_sequence = sequence
        self._forget_sequences()

    def _forget_sequences(self) -> None:
        for batch in self.sealed:
            batch.base_sequence = NO_SEQUENCE


class Delivery:
    """The batches of one partition in one request, and what the server has to be told for them."""

    __slots__ = ("batches", "queue", "records")

    def __init__(self, queue: PartitionQueue, batches: tuple[Batch, ...]) -> None:
        self.queue = queue
        self.batches = batches
        encoded = [batch.encode() for batch in batches]
        self.records = encoded[0] if len(encoded) == 1 else b"".join(encoded)

    def to_message(self) -> ProducePartition:
        """This partition's entry of a produce request."""
        return ProducePartition(self.queue.topic, self.queue.partition, self.records)
