"""Records one by one in, batches out, for blocking programs: the shared `Producer` over the client's loop.

There is no thread, so the producer works when it is called: `send` sends what is full or has lingered and takes in answers
without waiting; `flush`, a full buffer and a future's `result` wait. A program that pauses for longer than `linger_ms` and
wants its records out meanwhile calls `poll`. Leaving a `with` block flushes. What idempotence, the default, means is in
`producer`, what a transactional producer does beside sending in `transaction`.

And `BlockingAppender`, for programs that decide by what they have read.
"""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Final, Self, Unpack

from ....protocol.records.builder import Headers
from ....protocol.types import Bytes
from ..appender import Appender
from ..config import ProducerConfig
from ..options import ProducerOptions, producer_config
from ..producer import Producer
from ..sending.futures import RecordFuture, RecordMetadata
from ..sending.partition_queue import Batch
from ..sending.request_limits import record_size
from .client import BlockingClient
from .in_place import blocking
from .transaction import BlockingTransaction

MIN_POLL_MS: Final = 1
"""Looking for answers is a system call, which a send by itself is not."""


class BlockingRecord(RecordFuture):
    """A record on its way. `result` works for it; a listener is called from within whichever call settles it."""

    __slots__ = ("_producer",)

    def __init__(self, producer: BlockingProducer, batch: Batch, index: int, timestamp: int) -> None:
        super().__init__(batch, index, timestamp)
        self._producer = producer

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Return the record's metadata; raise the record's error or TimeoutError. Sends the record's batch without
        lingering."""
        if not self.is_done:
            self._producer.settle(self, timeout_s)
        return self.value()


class BlockingProducer:
    """Sends records over a client. Owner: one thread, the client's."""

    def __init__(
        self, client: BlockingClient, config: ProducerConfig | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        self._loop = client.loop
        config = producer_config(config, options)
        self._poll_s = max(config.linger_ms, MIN_POLL_MS) / 1000
        self._poll_at = float("inf")  # a send from then on looks for answers
        self._shared = Producer(client._shared, config)
        self._sending = self._loop.start_guarded(self._shared.run)
        try:
            self._loop.run(self._shared.initialize())
        except BaseException:
            self.close(flush=False)
            raise

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._shared)[1:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close(flush=kind is None)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are not settled, against `buffer_bytes`."""
        return self._shared.buffered_bytes

    def send(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> BlockingRecord:
        """Take a record; what is due is sent on the way. Waits while the buffer is full: BufferFullError after a while."""
        shared = self._shared
        size = record_size(key, value, headers)
        produced = shared._ready_topic(topic, size)
        if produced is None:
            produced = self._loop.run(shared._make_ready(topic, size))
        batch, index, timestamp, is_news = shared._take(produced, size, value, key, timestamp_ms, partition, headers)
        if is_news:
            shared._wake()
            self.poll()
        elif time.monotonic() >= self._poll_at:
            self.poll()
        return BlockingRecord(self, batch, index, timestamp)

    def transaction(self) -> BlockingTransaction:
        """The next transaction: `with producer.transaction()` commits at its end, and aborts when an exception leaves it.
        Only for a producer with a `transactional_id`."""
        return BlockingTransaction(self._loop, self._shared.transaction())

    def poll(self) -> None:
        """Take in answers and send what is due, without waiting for anything."""
        self._loop.turn()
        self._poll_at = self._loop.next_deadline()
        if self._shared._is_sending:  # the answers let what has lingered go out
            self._poll_at = min(self._poll_at, time.monotonic() + self._poll_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send everything and wait until it is settled, one way or the other; TimeoutError."""
        self._loop.run(self._shared._flush_within(timeout_s))

    def settle(self, record: BlockingRecord, timeout_s: float | None) -> None:
        """Send what waits for company, and wait until this record is settled; TimeoutError."""
        self._loop.run(self._settled(record, timeout_s))

    async def _settled(self, record: BlockingRecord, timeout_s: float | None) -> None:
        loop = self._loop.parts
        settled = loop.event()
        record.add_listener(settled.set)
        self._shared._hurry()
        with loop.scope(deadline=math.inf if timeout_s is None else loop.now() + timeout_s):
            await settled.wait()
            return
        raise TimeoutError(f"not settled within {timeout_s} s")

    def close(self, *, flush: bool = True) -> None:
        """Flush, or give up what is not settled; then take no more."""
        try:
            if flush and not self._sending.is_cancelled:
                self.flush()
        finally:
            self._sending.cancel()
            self._loop.turn()


class BlockingAppender:
    """Appends over a client, as `Appender`. Owner: one thread, the client's."""

    def __init__(
        self, client: BlockingClient, config: ProducerConfig | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        self._loop = client.loop
        self._shared = Appender(client, config, **options)

    append = blocking(Appender.append)
