"""Records one by one in, batches out, for programs without trio. Order, retries and batching are `accumulator`'s.

There is no thread, so the producer works when it is called: `send` sends what is full or has lingered and takes in answers
without waiting; `flush`, a full buffer and a future's `result` wait. A program that pauses for longer than `linger_ms` and
wants its records out meanwhile calls `poll`. Leaving a `with` block flushes. What idempotence, the default, means is in
`producer`, what a transactional producer does beside sending in `transaction`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self, Unpack

from ....protocol.errors import InvalidTxnStateError, RequestError, TriologError
from ....protocol.native.messages import MetadataRequest, ProduceResponse
from ....protocol.records.builder import Headers
from ....protocol.types import Bytes
from ..backoff import Backoff
from ..config import ProducerConfig
from ..errors import ClosedError, ConnectionLostError
from ..exchange import expect, is_answered
from ..options import ProducerOptions, producer_config
from ..procedures import groups as group_procedures
from ..sending.futures import RecordFuture, RecordMetadata
from ..sending.partition_queue import Batch, Delivery
from ..sending.request_limits import record_size
from ..sending.topics import ProducedTopic, Sending
from ..transaction import TransactionCalls
from .client import BlockingClient, Started
from .in_place import finished
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
            self._producer.work_until(lambda: self.is_done, timeout_s)
        return self.value()


class _Exchange(NamedTuple):
    started: Started
    deliveries: list[Delivery]


class BlockingProducer(Sending):
    """Sends records over a client. Owner: one thread, the client's."""

    def __init__(
        self, client: BlockingClient, config: ProducerConfig | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(producer_config(config, options), time.monotonic)
        self._client = client
        self._exchanges: list[_Exchange] = []
        self._next_deadline = float("inf")
        self._poll_at = float("inf")  # a send from then on looks for answers
        self._ask_backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        self._ask_at = -float("inf")  # for a producer id, not before
        if self._config.transactional_id is not None:
            self._transactions = TransactionCalls(client.driver, self._config, self._accumulator, self._flush_in_place)
            finished(self._transactions.initialize())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close(flush=kind is None)

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
        if self._is_closed:
            raise ClosedError("the producer is closed")
        size = record_size(key, value, headers)
        produced = self._topics.get(topic) or self._load(topic)
        if not self._accumulator.has_room(size):
            self._make_room(size)
        batch, index, timestamp, is_news = self._take(produced, size, value, key, timestamp_ms, partition, headers)
        if is_news or time.monotonic() >= self._poll_at:
            self.poll()
        return BlockingRecord(self, batch, index, timestamp)

    def transaction(self) -> BlockingTransaction:
        """The next transaction: `with producer.transaction()` commits at its end, and aborts when an exception leaves it.
        Only for a producer with a `transactional_id`."""
        if self._transactions is None:
            raise InvalidTxnStateError("a producer without transactional_id has no transactions")
        return BlockingTransaction(self._transactions)

    def poll(self) -> None:
        """Take in answers and send what is due, without waiting for anything but room in the socket."""
        for connection in {
            id(exchange.started.connection): exchange.started.connection for exchange in self._exchanges
        }.values():
            while connection.pump(0):
                pass
        self._settle_answered()
        self._send_due()

    def flush(self, timeout_s: float | None = None) -> None:
        """Send everything and wait until it is settled, one way or the other; TimeoutError."""
        unfinished = self._accumulator.unfinished
        self.work_until(lambda: all(batch.is_done for batch in unfinished), timeout_s)

    async def _flush_in_place(self, timeout_s: float | None) -> None:
        self.flush(timeout_s)

    def close(self, *, flush: bool = True) -> None:
        """Flush, or give up what is not settled; then take no more."""
        try:
            if flush and not self._is_closed:
                self.flush()
        finally:
            self._is_closed = True
            for exchange in self._exchanges:
                exchange.started.forget()
            self._exchanges.clear()
            self._accumulator.abandon(ClosedError("the producer was closed before the record was acknowledged"))

    def work_until(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Send without lingering, receive and retry until `is_enough`; TimeoutError after `timeout_s`."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self._accumulator.flush()
        while True:
            self.poll()
            if is_enough():
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not settled within {timeout_s} s")
            self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        """Until an answer comes, the next retry is due, or the deadline."""
        until = min(
            deadline, self._next_deadline, self._next_ask(), *(exchange.started.overdue_at for exchange in self._exchanges)
        )
        if self._exchanges:
            self._exchanges[0].started.connection.pump(until)
        else:
            time.sleep(max(0.0, until - time.monotonic()))

    def _make_room(self, size: int) -> None:
        try:
            accumulator = self._accumulator
            self.work_until(
                lambda: accumulator.has_room(size) or accumulator.fatal is not None, self._config.max_block_ms / 1000
            )
        except TimeoutError:
            raise self._no_room(size) from None

    def _load(self, topic: str) -> ProducedTopic:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        deadline = time.monotonic() + self._config.max_block_ms / 1000
        while True:
            try:
                described = self._client.metadata(MetadataRequest((topic,)))
                return self._learn(topic, described, self._client.max_frame_bytes)
            except ConnectionLostError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(backoff.pause_s())

    def _send_due(self) -> None:
        self._send(self._accumulator.drain())
        if self._next_ask() <= time.monotonic() and self._ask_for_producer():
            self._send(self._accumulator.drain())
        deadline_or_none = self._accumulator.next_deadline()
        self._next_deadline = float("inf") if deadline_or_none is None else deadline_or_none
        self._poll_at = self._next_deadline
        if self._exchanges:  # their answers let what has lingered go out
            self._poll_at = min(self._poll_at, time.monotonic() + max(self._config.linger_ms, MIN_POLL_MS) / 1000)

    def _next_ask(self) -> float:
        """Return the time to request the producer id that batches wait for; infinity when no batch waits."""
        return self._ask_at if self._accumulator.wants_producer and self._transactions is None else float("inf")

    def _ask_for_producer(self) -> bool:
        try:
            self._accumulator.set_producer(self._client.run(group_procedures.init_producer(self._config)))
        except TriologError as exc:
            if isinstance(exc, RequestError) and exc.retriable:
                self._ask_at = time.monotonic() + self._ask_backoff.pause_s()
            else:
                self._refuse_producer(exc)
        else:
            self._ask_backoff.reset()
            return True
        return False

    def _send(self, requests: Iterator[list[Delivery]]) -> None:
        unsent = deque(requests)  # the accumulator counts them as in flight from now on
        try:
            while unsent:
                self._send_request(unsent[0])
                unsent.popleft()
        except BaseException:  # Ctrl-C, of which the program may make nothing: they are sent again
            for deliveries in unsent:
                self._fail(deliveries, ConnectionLostError("interrupted while sending"))
            raise

    def _send_request(self, deliveries: list[Delivery]) -> None:
        request = self._request(deliveries)
        try:
            started = self._client.start(request)
        except TriologError as exc:
            self._accumulator.limit_frames(self._client.max_frame_bytes)  # perhaps of another server
            self._fail(deliveries, exc)
            return
        if is_answered(request):
            self._exchanges.append(_Exchange(started, deliveries))
        else:
            self._settle(deliveries, None)

    def _settle_answered(self) -> None:
        waiting: list[_Exchange] = []
        for exchange in self._exchanges:
            if exchange.started.is_ready:
                self._settle_exchange(exchange)
            else:
                waiting.append(exchange)
        self._exchanges = waiting

    def _settle_exchange(self, exchange: _Exchange) -> None:
        try:
            answer = exchange.started.take()
        except TriologError as exc:
            self._fail(exchange.deliveries, exc)
        else:
            self._settle(exchange.deliveries, expect(ProduceResponse, answer))
