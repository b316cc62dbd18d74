"""Records one by one in, batches out: the producer for trio programs.

`send` puts a record into its partition's batch and gives a future for it; one task sends what is due, one task per request
waits for the answer and settles its batches. Order and retries are `accumulator`'s. After a lost connection or a timeout a
request is sent again although the server may have written it; with idempotence, the default, the server writes it once.
Without, a record is delivered at least once. `transaction` has what a transactional producer does beside sending.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Unpack

import trio

from ...protocol.errors import InvalidTxnStateError, RequestError, RequestTimedOutError, TriologError
from ...protocol.native.messages import MetadataRequest
from ...protocol.records.builder import Headers
from ...protocol.types import Bytes
from .backoff import Backoff
from .config import ProducerConfig
from .connection import Client, open_background
from .errors import ClosedError, ConnectionLostError
from .options import ProducerOptions, producer_config
from .procedures import groups as group_procedures
from .running_loop import current_loop
from .sending.futures import RecordFuture, RecordMetadata
from .sending.partition_queue import Delivery
from .sending.request_limits import record_size
from .sending.topics import ProducedTopic, Sending
from .transaction import Transaction, TransactionCalls


class SentRecord(RecordFuture):
    """A record on its way: `await` it for its RecordMetadata, or for the error that ended it. Awaiting is a checkpoint."""

    __slots__ = ()

    async def wait(self) -> RecordMetadata:
        """Wait for the record, as `await` on the future does. Cancelling the wait does not take the record back."""
        event = current_loop().event()
        self.add_listener(event.set)
        await event.wait()
        return self.value()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()


class Producer(Sending):
    """Sends records over a client. Owns its batches; `run` is its sending task. Use `open_producer`."""

    def __init__(self, client: Client, config: ProducerConfig) -> None:
        super().__init__(config, client.loop.now)
        self._client = client
        self._loop = client.loop
        self._loading: dict[str, AbstractAsyncContextManager[object]] = {}
        self._wake_sender = self._loop.event()
        self._room = self._loop.parking_lot()
        self._is_asking = False  # for a producer id
        if config.transactional_id is not None:
            self._transactions = TransactionCalls(client.driver, config, self._accumulator, lambda timeout_s: self.flush())

    async def send(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> SentRecord:
        """Take a record; returns when it is in its batch, which is not yet sent. Await the result for its offset.

        Waits while the buffer is full, BufferFullError after `max_block_ms`; the first record of a topic asks the server
        for its partitions, RequestTimedOutError when they are not known by then. Always a checkpoint, before the record is
        taken: a cancelled send has sent nothing.
        """
        produced = self._topics.get(topic)
        size = record_size(key, value, headers)
        if produced is None or not self._accumulator.has_room(size):
            produced = await self._make_ready(topic, size)
        else:
            await self._loop.checkpoint()
            if not self._accumulator.has_room(size):
                produced = await self._make_ready(topic, size)
        return self._append(produced, size, value, key, timestamp_ms, partition, headers)

    def send_nowait(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> SentRecord:
        """As `send`, without a checkpoint; trio.WouldBlock when the buffer is full or the topic was never sent to.

        The sending task runs only while the caller awaits something.
        """
        produced = self._topics.get(topic)
        size = record_size(key, value, headers)
        if produced is None or not self._accumulator.has_room(size):
            raise trio.WouldBlock
        return self._append(produced, size, value, key, timestamp_ms, partition, headers)

    def transaction(self) -> Transaction:
        """The next transaction: `async with producer.transaction()` commits at its end, and aborts when an exception leaves
        it. Only for a producer with a `transactional_id`."""
        if self._transactions is None:
            raise InvalidTxnStateError("a producer without transactional_id has no transactions")
        return Transaction(self._transactions)

    async def flush(self) -> None:
        """Send what waits for company and wait until every record sent before is settled, one way or the other."""
        self._accumulator.flush()
        self._wake_sender.set()
        await self._loop.checkpoint()
        for batch in self._accumulator.unfinished:
            event = self._loop.event()
            batch.add_listener(event.set)
            await event.wait()

    async def initialize(self) -> None:
        """For a transactional producer: get its producer id and epoch; otherwise nothing."""
        if self._transactions is not None:
            await self._transactions.initialize()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send what is due until cancelled; what is unsettled then fails with ClosedError."""
        try:
            async with self._loop.open_nursery() as nursery:
                task_status.started()
                while True:
                    self._wake_sender = self._loop.event()
                    buffered_bytes = self._accumulator.buffered_bytes
                    for deliveries in self._accumulator.drain():
                        nursery.start_soon(self._deliver, deliveries)
                    if self._accumulator.wants_producer and not self._is_asking and self._transactions is None:
                        nursery.start_soon(self._ask_for_producer)
                    if self._accumulator.buffered_bytes < buffered_bytes:  # batches have expired
                        self._room.unpark_all()
                    deadline = self._accumulator.next_deadline()
                    with self._loop.scope(deadline=math.inf if deadline is None else deadline):
                        await self._wake_sender.wait()
        finally:
            self._is_closed = True
            self._accumulator.abandon(ClosedError("the producer was closed before the record was acknowledged"))
            self._room.unpark_all()

    def _append(self, topic: ProducedTopic, *record: Any) -> SentRecord:
        batch, index, timestamp, is_news = self._take(topic, *record)
        if is_news:
            self._wake_sender.set()
        return SentRecord(batch, index, timestamp)

    async def _make_ready(self, topic: str, size: int) -> ProducedTopic:
        produced = None
        with self._loop.scope(deadline=self._loop.now() + self._config.max_block_ms / 1000):
            produced = await self._load(topic)
            while not self._accumulator.has_room(size) and not self._is_closed and self._accumulator.fatal is None:
                self._accumulator.flush()
                self._wake_sender.set()
                await self._room.park()
            return produced
        if produced is None:
            raise RequestTimedOutError(
                f"could not get the partitions of topic {topic!r} within max_block_ms={self._config.max_block_ms}: "
                "the server cannot be reached, or does not respond"
            )
        raise self._no_room(size)

    async def _load(self, topic: str) -> ProducedTopic:
        async with self._loading.setdefault(topic, self._loop.lock()):
            backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
            while (produced := self._topics.get(topic)) is None:
                try:
                    self._learn(topic, await self._client.metadata(MetadataRequest((topic,))), self._client.max_frame_bytes)
                except ConnectionLostError:
                    await self._loop.sleep(backoff.pause_s())
            return produced

    async def _ask_for_producer(self) -> None:
        """Get a producer id for the batches that wait for one; while there is none they time out as any others."""
        self._is_asking = True
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        while self._accumulator.wants_producer:
            try:
                self._accumulator.set_producer(await self._client.run(group_procedures.init_producer(self._config)))
            except TriologError as exc:
                if isinstance(exc, RequestError) and exc.retriable:
                    await self._loop.sleep(backoff.pause_s())
                else:
                    self._refuse_producer(exc)
        self._is_asking = False
        self._room.unpark_all()
        self._wake_sender.set()

    async def _deliver(self, deliveries: list[Delivery]) -> None:
        try:
            response = await self._client.produce(self._request(deliveries))
        except TriologError as exc:
            self._accumulator.limit_frames(self._client.max_frame_bytes)  # perhaps of another server
            self._fail(deliveries, exc)
        else:
            self._settle(deliveries, response)
        self._room.unpark_all()
        self._wake_sender.set()


@asynccontextmanager
async def open_producer(
    client: Client, config: ProducerConfig | None = None, **options: Unpack[ProducerOptions]
) -> AsyncIterator[Producer]:
    """A producer over `client`, with ProducerConfig's fields as keywords.

    Leaving the block flushes: it returns when every record is settled. Leaving it by an exception abandons what is not.
    With a `transactional_id` the block begins when the server has given the producer its epoch, which fences any other
    producer of that id.
    """
    producer = Producer(client, producer_config(config, options))
    async with open_background() as nursery:
        await nursery.start(producer.run)
        await producer.initialize()
        yield producer
        await producer.flush()
        nursery.cancel_scope.cancel()
