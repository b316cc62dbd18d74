"""Producers without transactions: the product's own client, the least that Kafka's protocol takes, and one that puts several
batches for a partition into one request, which the native protocol allows and no client of the product does for long."""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import accumulate, takewhile
from typing import Any, ClassVar, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode, TriologError
from triolog.protocol.native.messages import ProducePartition, ProduceRequest
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_OFFSET, TopicPartition
from triolog.server.listeners.kafka.door import NO_TOPIC_ID
from triolog.tools.client.connection import Client
from triolog.tools.client.producer import Producer, SentRecord, open_producer

from tests.simulation.clients.inhabitant import Inhabitant, KafkaInhabitant, native_client
from tests.simulation.clients.readers import fields_of
from tests.simulation.history import Acknowledged, GivenUp, Send, Sent
from tests.simulation.script import Step
from tests.support.kafka_server import produce_request
from tests.support.kafka_wire import ask

PRODUCE_VERSION: Final = 9
PRODUCE_BY_ID_VERSION: Final = 13
INIT_VERSION: Final = 4
PATIENCE_S: Final = 20.0
PAUSE_S: Final = 0.1
DEAF_PAUSE_S: Final = 0.2
IN_FLIGHT: Final = 5
EVERY: Final = 16
"""One of so many records has a batch in its value."""
INNER_OFFSET: Final = 10_000
"""The base offset of these batches: after a damaged batch, one with exactly the next offset counts as the log's."""
FEW: Final = 2
"""Records of a batch that has room for another one: it fits into the smallest segment."""
BASE_OFFSET_BYTES: Final = 8
Fields = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
"""Key, value and headers of a record."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


@attrs.define(eq=False)
class NativeProducer(Inhabitant):
    """Idempotent. Does not wait for acknowledgements before it goes on."""

    _sent: int = 0
    _producer: Producer | None = None
    _nursery: trio.Nursery | None = None

    async def run(self, steps: list[Step]) -> None:
        async with (
            native_client(self.world) as client,
            open_producer(client, delivery_timeout_ms=20_000, request_timeout_ms=4000, max_block_ms=10_000) as producer,
        ):
            async with trio.open_nursery() as nursery:
                self._producer, self._nursery = producer, nursery
                await super().run(steps)

    async def send(self, topic: str, partition: int, count: int) -> None:
        assert self._producer is not None
        assert self._nursery is not None
        where = TopicPartition(topic, partition)
        for _ in range(count):
            sent = Sent(f"{self.who}:{self._sent}", self.a_timestamp())
            self._sent += 1
            self.world.add(Send(**self.now(), partition=where, producer=self.who, records=(sent,)))
            try:
                future = await self._producer.send(topic, sent.id.encode(), partition=partition, timestamp_ms=sent.timestamp)
            except TriologError as exc:
                self.world.add(GivenUp(**self.now(), ids=(sent.id,), error=repr(exc), is_refused=True))
            else:
                self._nursery.start_soon(self._await, where, sent.id, future)

    async def _await(self, where: TopicPartition, sent: str, future: SentRecord) -> None:
        try:
            metadata = await future
        except TriologError as exc:
            self.world.add(GivenUp(**self.now(), ids=(sent,), error=repr(exc)))
        else:
            self.world.add(Acknowledged(**self.now(), partition=where, ids=(sent,), base_offset=metadata.offset))


Answer = tuple[ErrorCode, int]
"""To a batch: its error, and where it is."""


@attrs.define
class Batch:
    """A batch on its way, until it is acknowledged or given up."""

    where: TopicPartition
    ids: tuple[str, ...]
    data: bytes
    deadline: float
    topic_id: bytes = NO_TOPIC_ID
    """Which version 13 sends in place of the name."""

    def request(self) -> Any:
        where = {"topic": self.where.topic, "topic_id": self.topic_id, "partition": self.where.partition}
        return produce_request(self.data, **where, timeout_ms=5000)


@attrs.define(eq=False)
class KafkaProducer(KafkaInhabitant):
    """Idempotent, with up to five batches in flight, which it sends again, in order, until it knows of each. When it gives one
    up it becomes another producer."""

    VERSION: ClassVar[int] = PRODUCE_VERSION

    _identity: tuple[int, int] | None = None
    _incarnation: int = 0
    _sequences: Counter[TopicPartition] = attrs.field(factory=Counter)
    _sent: int = 0
    _batches: list[Batch] = attrs.field(factory=list)
    _given: trio.Event = attrs.field(factory=trio.Event)
    _is_over: bool = False
    _deaf_until: float = 0.0

    async def run(self, steps: list[Step]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._deliver)
                await Inhabitant.run(self, steps)
                self._is_over = True
                self._given.set()
        finally:
            await self.kafka.close()

    async def send(self, topic: str, partition: int, count: int, batches: int = 1) -> None:
        """Batches of `count` records each, which leave together."""
        deadline = trio.current_time() + PATIENCE_S
        if not await self._is_introduced(deadline):
            return
        for _ in range(batches):
            self._take(TopicPartition(topic, partition), count, deadline)
        self._given.set()

    async def _is_introduced(self, deadline: float) -> bool:
        """Whether it has an identity, which it asks for until the deadline."""
        while self._identity is None:
            if trio.current_time() > deadline:
                return False
            await self._introduce()
        return True

    async def deafen(self, for_ms: int) -> None:
        """Get no answer for a while, whatever was done."""
        self._deaf_until = trio.current_time() + for_ms / 1000

    def _take(self, where: TopicPartition, count: int, deadline: float, topic_id: bytes = NO_TOPIC_ID) -> None:
        assert self._identity is not None
        records = tuple(Sent(self.name(self._sent + number), self.a_timestamp()) for number in range(count))
        self._sent += count
        producer = f"{self.who}/{self._incarnation}"
        self.world.add(Send(**self.now(), partition=where, producer=producer, records=records))
        data = build_batch(
            [(each.timestamp, *self._fields(each.id, is_small=count <= FEW)) for each in records],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=self._sequences[where],
        )
        self._sequences[where] += count
        self._batches.append(Batch(where, tuple(each.id for each in records), data, deadline, topic_id))

    def name(self, number: int) -> str:
        """The id of a record, which says what it has."""
        return f"{self.who}:{number}"

    def _fields(self, name: str, *, is_small: bool) -> Fields:
        """Some values hold a record batch, as a log shipper's do. A scan of damaged bytes must not take it for the log's."""
        key, value, headers = fields_of(name)
        chance = zlib.crc32(name.encode())
        if value is None or chance % EVERY or not is_small:
            return key, value, headers
        inner = build_batch([(self.world.now_ms(), None, f"inside of {name}".encode(), ())])
        return key, value + b"\n" + INNER_OFFSET.to_bytes(BASE_OFFSET_BYTES, "big") + inner[BASE_OFFSET_BYTES:], headers

    async def _introduce(self) -> None:
        asked = ask("InitProducerId", transactional_id=None, transaction_timeout_ms=0)
        answer = await self.kafka.call(asked, INIT_VERSION)
        if answer is None or answer.error_code:
            await trio.sleep(PAUSE_S)
            return
        self._identity = answer.producer_id, answer.producer_epoch
        self._incarnation += 1
        self._sequences.clear()

    async def _deliver(self) -> None:
        while not (self._is_over and not self._batches):
            if not self._batches:
                self._given = trio.Event()
                await self._given.wait()
                continue
            flight = self._next_flight()
            answers = await self._ask(flight)
            if trio.current_time() < self._deaf_until:
                answers = []
                await trio.sleep(DEAF_PAUSE_S)
            self._settle(flight, answers)
            if len(answers) < len(flight) or (flight and self._batches[:1] == flight[:1]):
                await trio.sleep(PAUSE_S)

    def _next_flight(self) -> list[Batch]:
        """What is sent before an answer is waited for."""
        return self._batches[:IN_FLIGHT]

    async def _ask(self, flight: list[Batch]) -> list[Answer]:
        """The answers to batches, as far as they are known."""
        answers = await self.kafka.call_all([batch.request() for batch in flight], self.VERSION)
        found = [answer.responses[0].partition_responses[0] for answer in answers]
        return [(ErrorCode(each.error_code), each.base_offset) for each in found]

    def _settle(self, flight: list[Batch], answers: list[Answer]) -> None:
        """Up to the first that is to be sent again; behind that one nothing was taken, or it comes again with it."""
        for batch, (error, base_offset) in zip(flight, answers, strict=False):
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._batches.remove(batch)
                self.world.add(Acknowledged(**self.now(), partition=batch.where, ids=batch.ids, base_offset=base_offset))
                continue
            if error not in RETRIABLE:
                self._give_up(error.name)
            break
        if self._batches and trio.current_time() > self._batches[0].deadline:
            self._give_up("no answer in time")

    def _give_up(self, error: str) -> None:
        """Of everything that is not acknowledged: it belongs to the identity that has a hole in its sequences now."""
        for batch in self._batches:
            self.world.add(GivenUp(**self.now(), ids=batch.ids, error=error))
        self._batches.clear()
        self._identity = None


ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 5000
BUNDLE_BYTES: Final = 650
"""An append has to fit into the smallest segment."""


@attrs.define(eq=False)
class Bundler(KafkaProducer):
    """Its batches are appended together or in parts, and each counts by itself."""

    _client: Client | None = None

    async def run(self, steps: list[Step]) -> None:
        async with native_client(self.world) as self._client:
            await super().run(steps)

    def _next_flight(self) -> list[Batch]:
        flight = super()._next_flight()
        of_first = list(takewhile(lambda batch: batch.where == flight[0].where, flight))
        sizes = accumulate(len(batch.data) for batch in of_first)
        return [batch for batch, size in zip(of_first, sizes, strict=True) if batch is flight[0] or size <= BUNDLE_BYTES]

    async def _ask(self, flight: list[Batch]) -> list[Answer]:
        assert self._client is not None
        where = flight[0].where
        part = ProducePartition(where.topic, where.partition, b"".join(batch.data for batch in flight))
        try:
            response = await self._client.produce(ProduceRequest((part,), ACKS_ALL, TIMEOUT_MS, None))
        except TriologError:
            return []
        assert response is not None
        [found] = response.partitions
        if found.error is not None:
            return [(found.error.code, NO_OFFSET)]
        before = accumulate((len(batch.ids) for batch in flight[:-1]), initial=0)
        base_offset = found.base_offset
        return [(ErrorCode.NONE, NO_OFFSET if base_offset == NO_OFFSET else base_offset + count) for count in before]
