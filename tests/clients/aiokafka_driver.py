"""aiokafka: asyncio, with a loop of the driver's own for each call or producer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import aiokafka
import attrs

from tests.clients.driver import DEADLINE_S, Message, Received

T = TypeVar("T")


@attrs.define(eq=False)
class AiokafkaProducer:
    client: aiokafka.AIOKafkaProducer
    runner: asyncio.Runner
    acks: str

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        return self.runner.run(asyncio.wait_for(self._send(topic, messages), DEADLINE_S))

    async def _send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        futures = [
            await self.client.send(
                topic,
                value=each.value,
                key=each.key,
                headers=list(each.headers),
                partition=each.partition,
                timestamp_ms=each.timestamp_ms,
            )
            for each in messages
        ]
        delivered = [await future for future in futures]
        return [-1] * len(messages) if self.acks == "0" else [each.offset for each in delivered]


@attrs.define(eq=False)
class AiokafkaDriver:
    bootstrap: str
    name: str = "aiokafka"

    @contextmanager
    def producer(
        self, *, acks: str = "all", codec: str = "none", idempotent: bool = False, max_bytes: int | None = None
    ) -> Iterator[AiokafkaProducer]:
        settings: dict[str, Any] = {
            "acks": acks if acks == "all" else int(acks),
            "compression_type": None if codec == "none" else codec,
            "enable_idempotence": idempotent,
        }
        if max_bytes is not None:
            settings |= {"max_request_size": max_bytes, "max_batch_size": max_bytes}

        async def start() -> aiokafka.AIOKafkaProducer:
            client = aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, **settings)
            await client.start()
            return client

        with asyncio.Runner() as runner:
            client = runner.run(start())
            try:
                yield AiokafkaProducer(client, runner, acks)
            finally:
                runner.run(client.stop())

    def _with_consumer(self, use: Callable[[aiokafka.AIOKafkaConsumer], Awaitable[T]]) -> T:
        async def run() -> T:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=50
            )
            await consumer.start()
            try:
                return await asyncio.wait_for(use(consumer), 2 * DEADLINE_S)
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def read(self, topic: str, count: int, *, starts: dict[int, int]) -> list[Received]:
        async def use(consumer: aiokafka.AIOKafkaConsumer) -> list[Received]:
            consumer.assign([aiokafka.TopicPartition(topic, number) for number in starts])
            for number, offset in starts.items():
                consumer.seek(aiokafka.TopicPartition(topic, number), offset)
            found: list[Received] = []
            deadline = asyncio.get_running_loop().time() + DEADLINE_S
            while len(found) < count and asyncio.get_running_loop().time() < deadline:
                for records in (await consumer.getmany(timeout_ms=500, max_records=count - len(found))).values():
                    found += [
                        Received(
                            partition=each.partition,
                            offset=each.offset,
                            timestamp_ms=each.timestamp,
                            key=each.key,
                            value=each.value,
                            headers=tuple(each.headers),
                        )
                        for each in records
                    ]
            return found

        return self._with_consumer(use)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def use(consumer: aiokafka.AIOKafkaConsumer) -> int | None:
            asked = aiokafka.TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({asked: timestamp_ms}))[asked]
            return None if found is None else found.offset

        return self._with_consumer(use)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        async def use(consumer: aiokafka.AIOKafkaConsumer) -> tuple[int, int]:
            asked = aiokafka.TopicPartition(topic, partition)
            return (await consumer.beginning_offsets([asked]))[asked], (await consumer.end_offsets([asked]))[asked]

        return self._with_consumer(use)

    def partitions(self, topic: str) -> set[int]:
        async def use(consumer: aiokafka.AIOKafkaConsumer) -> set[int]:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer._client.force_metadata_update()
            return set(consumer.partitions_for_topic(topic) or ())

        return self._with_consumer(use)
