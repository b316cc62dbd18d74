"""librdkafka in asyncio programs, through `confluent_kafka.aio`. Its driver administers as ConfluentDriver does.

AIOProducer has no headers and no timestamps: messages get the time of the client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer

from tests.clients.confluent_driver import AWAY, POLL_S, ConfluentDriver, offset_of, received
from tests.clients.driver import DEADLINE_S, Message, Producing, Received
from tests.clients.python_driver import PolledMember

# `close` of a fenced producer logs its traceback: pytest, which keeps the lines of a test, would keep the producer.
logging.getLogger("confluent_kafka.aio").setLevel(logging.CRITICAL)

T = TypeVar("T")


def _run(work: Awaitable[T]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(work, 2 * DEADLINE_S)

    return asyncio.run(within())


@attrs.define(eq=False)
class AioProducer:
    client: AIOProducer
    runner: asyncio.Runner
    settings: dict[str, Any]

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        return self.runner.run(self._send(topic, messages))

    async def _send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        futures = [await self.client.produce(topic, each.value, each.key, partition=each.partition) for each in messages]
        assert await self.client.flush(DEADLINE_S) == 0, "the client still waits for acknowledgements"
        return [offset_of(await each) for each in futures]

    def begin(self) -> None:
        self.runner.run(self.client.begin_transaction())

    def end(self, *, commit: bool) -> None:
        ended = self.client.commit_transaction if commit else self.client.abort_transaction
        self.runner.run(ended(DEADLINE_S))

    def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        at = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        self.runner.run(self._send_offsets(group, at))

    async def _send_offsets(self, group: str, offsets: list[TopicPartition]) -> None:
        async with AIOConsumer({**self.settings, "group.id": group}) as consumer:
            metadata = await consumer.consumer_group_metadata()
            await self.client.send_offsets_to_transaction(offsets, metadata, DEADLINE_S)


@attrs.define(eq=False)
class AioConsuming:
    consumer: AIOConsumer
    runner: asyncio.Runner

    def poll(self) -> list[Received]:
        found = self.runner.run(self.consumer.consume(100, timeout=POLL_S))
        return [received(message) for message in found if message.error() is None or message.error().code() not in AWAY]

    def commit(self) -> None:
        self.runner.run(self.consumer.commit(asynchronous=False))

    def close(self) -> None:
        self.runner.run(self.consumer.close())
        self.runner.close()


@attrs.define(eq=False)
class ConfluentAioDriver(ConfluentDriver):
    @contextmanager
    def producer(self, **wanted: Any) -> Iterator[AioProducer]:
        asked = Producing(**wanted)

        async def start() -> AIOProducer:
            client = AIOProducer(self._producing(asked))
            if asked.transactional_id:
                await client.init_transactions(DEADLINE_S)
            return client

        with asyncio.Runner() as runner:
            producer = AioProducer(runner.run(start()), runner, self._settings())
            yield producer
            try:
                runner.run(producer.client.close())
            except KafkaException as exc:
                if not exc.args[0].fatal():
                    raise
                producer.client.executor.shutdown()  # what `close` leaves open for a producer that was fenced

    def _with_consumer(self, use: Callable[[AIOConsumer], Awaitable[T]], *, committed: bool = False) -> T:
        async def run() -> T:
            async with AIOConsumer(self._reading(committed=committed)) as consumer:
                return await use(consumer)

        return _run(run())

    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]:
        async def use(consumer: AIOConsumer) -> list[Received]:
            found: list[Received] = []
            deadline = time.monotonic() + DEADLINE_S
            await consumer.assign([TopicPartition(topic, number, offset) for number, offset in starts.items()])
            while len(found) < count and time.monotonic() < deadline:
                found += [received(message) for message in await consumer.consume(count - len(found), timeout=POLL_S)]
            return found

        return self._with_consumer(use, committed=committed)

    def _consuming(self, member: PolledMember, group: str, topic: str, instance: str, assignor: str) -> AioConsuming:
        async def on_assign(_: AIOConsumer, given: list[TopicPartition]) -> None:
            member.given(each.partition for each in given)

        async def on_revoke(_: AIOConsumer, taken: list[TopicPartition]) -> None:
            member.taken(each.partition for each in taken)

        async def start() -> AIOConsumer:
            consumer = AIOConsumer(self._joining(group, instance, assignor))
            await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
            return consumer

        runner = asyncio.Runner()
        return AioConsuming(runner.run(start()), runner)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def use(consumer: AIOConsumer) -> int | None:
            [found] = await consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], timeout=DEADLINE_S)
            if found.error is not None:
                raise KafkaException(found.error)
            return None if found.offset < 0 else found.offset

        return self._with_consumer(use)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        async def use(consumer: AIOConsumer) -> tuple[int, int]:
            low, high = await consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
            return low, high

        return self._with_consumer(use)
