"""Schedules the partitions that may send now or become due by themselves: open batches linger, failed deliveries are retried.

Times are seconds of the caller's clock. The accumulator expires batches.
"""

from __future__ import annotations

from .partition_queue import Batch, Delivery, PartitionQueue


class SendSchedule:
    """Owner: the accumulator, which tells it of every queue that it has changed. Each of the three is oldest first."""

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        self._ready: dict[PartitionQueue, None] = {}
        """Queues with sealed batches and nothing in flight."""
        self._lingering: dict[PartitionQueue, Batch] = {}
        """Open batches, by creation."""
        self._retrying: dict[PartitionQueue, float] = {}
        """When the delivery of a queue is due again."""

    @property
    def ready(self) -> list[PartitionQueue]:
        """Queues that may send, in the order in which they became so."""
        return list(self._ready)

    @property
    def ready_count(self) -> int:
        """Return the number of queues that may send."""
        return len(self._ready)

    @property
    def lingering(self) -> list[PartitionQueue]:
        """Queues whose batch is open, the oldest first."""
        return list(self._lingering)

    def update(self, queue: PartitionQueue) -> None:
        """Batches of this queue were sealed, taken or dropped, or its delivery is settled."""
        if queue.sealed and queue.delivery is None:
            self._ready[queue] = None
        else:
            self._ready.pop(queue, None)

    def start_linger(self, queue: PartitionQueue, batch: Batch) -> None:
        """The queue has opened this batch."""
        self._lingering[queue] = batch

    def stop_linger(self, queue: PartitionQueue) -> None:
        """The queue's batch is open no more."""
        del self._lingering[queue]

    def lingered(self, now: float) -> list[PartitionQueue]:
        """Queues whose batch has lingered. One that waits for an answer could not send and goes on growing its batch: the
        slower the server, the larger its batches."""
        lingered = []
        for queue, batch in self._lingering.items():
            if batch.created_at + self._linger_s > now:
                break
            if queue.delivery is None:
                lingered.append(queue)
        return lingered

    def retry(self, queue: PartitionQueue, at: float) -> None:
        """Send the queue's delivery again then."""
        self._retrying[queue] = at

    def is_retrying(self, queue: PartitionQueue) -> bool:
        """Return whether the queue's delivery waits for a retry, and so is not in flight."""
        return queue in self._retrying

    def stop_retry(self, queue: PartitionQueue) -> None:
        """The queue's delivery is settled, whether or not it waits."""
        self._retrying.pop(queue, None)

    def due_retries(self, now: float) -> list[Delivery]:
        """Deliveries to be sent again now, in flight from here on."""
        due = [queue for queue, at in self._retrying.items() if at <= now]
        for queue in due:
            del self._retrying[queue]
        return [queue.delivery for queue in due if queue.delivery is not None]

    def next_deadline(self) -> float | None:
        """Return when the next queue becomes due by itself; None: never."""
        deadlines = list(self._retrying.values())
        for queue, batch in self._lingering.items():
            if queue.delivery is None:
                deadlines.append(batch.created_at + self._linger_s)
                break
        return min(deadlines, default=None)

    def clear(self) -> None:
        """Nothing is sent any more."""
        self._ready.clear()
        self._lingering.clear()
        self._retrying.clear()
