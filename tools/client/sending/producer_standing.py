"""As which producer new sequences start, and what a batch that is given up does to the count (KIP-98, KIP-360).

In each partition the server counts the records of a producer id and epoch. While client and server agree on the count the
partition goes on with it, under the producer it began with. Where nobody knows what the server has counted, that partition
alone starts again at 0, as another producer: the identity is dropped here, and the owner has to ask for the next one. How a
partition numbers its batches is in `partition_queue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....protocol.errors import RequestError, TriologError
from ....protocol.types import NO_SEQUENCE
from ..config import ProducerConfig
from .delivery_verdict import LOST_SEQUENCE_CODES
from .partition_queue import Batch, PartitionQueue, ProducerIdentity


class ProducerStanding:
    """Owner: the accumulator. A producer that is not idempotent has no identity and wants none."""

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
        """Whether a partition that has to start its sequence cannot."""
        return self._is_idempotent and self._identity is None

    def assume(self, identity: ProducerIdentity, queues: Iterable[PartitionQueue]) -> None:
        """Be this producer from now on. Partitions whose count is sound keep it, except in a transactional producer, whose
        former epoch is fenced: there all of them start again."""
        self._identity = identity
        if self._is_transactional:
            for queue in queues:
                queue.start_sequence(None)

    def take(self, queue: PartitionQueue) -> tuple[Batch, ...] | None:
        """What the partition sends next, with its numbers; None when it has to wait for a producer id."""
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
