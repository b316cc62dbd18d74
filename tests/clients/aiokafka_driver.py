"""aiokafka: written in Python, with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ssl import SSLContext, create_default_context
from typing import Any, TypeVar

import aiokafka
import attrs
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import for_code

from tests.clients.driver import DEADLINE_S, Access, Message, Producing, Received
from tests.clients.python_driver import (
    Assignments,
    PolledMember,
    PythonDriver,
    joining,
    login,
    producing,
    reading,
    received,
    sending,
)

T = TypeVar("T")
POLL_MS = 50


def _check(code: int) -> None:
    if code:
        raise for_code(code)


class Tokens(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _context(access: Access) -> SSLContext | None:
    if access.ca is None:
        return None
    context = create_default_context(cafile=access.ca)
    if access.certificate is not None:
        context.load_cert_chain(access.certificate)
    return context


@attrs.define(eq=False)
class AiokafkaProducer:
    client: aiokafka.AIOKafkaProducer
    runner: asyncio.Runner
    acks: str

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        return self._run(self._send(topic, messages))

    def begin(self) -> None:
        self._run(self.client.begin_transaction())

    def end(self, *, commit: bool) -> None:
        self._run(self.client.commit_transaction() if commit else self.client.abort_transaction())

    def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        at = {aiokafka.TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        self._run(self.client.send_offsets_to_transaction(at, group))

    def _run(self, work: Awaitable[T]) -> T:
        return self.runner.run(asyncio.wait_for(work, DEADLINE_S))

    async def _send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        futures = [await self.client.send(topic, **sending(each)) for each in messages]
        delivered = [await future for future in futures]
        return [-1] * len(messages) if self.acks == "0" else [each.offset for each in delivered]


class _Assignments(Assignments, aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """As the client wants it."""


@attrs.define(eq=False)
class AiokafkaConsuming:
    consumer: aiokafka.AIOKafkaConsumer
    runner: asyncio.Runner

    def poll(self) -> list[Received]:
        return received(self.runner.run(self.consumer.getmany(timeout_ms=POLL_MS)))

    def commit(self) -> None:
        self.runner.run(self.consumer.commit())

    def close(self) -> None:
        self.runner.run(self.consumer.stop())
        self.runner.close()


@attrs.define(eq=False)
class AiokafkaDriver(PythonDriver):
    def _settings(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap, **login(self.access, Tokens), "ssl_context": _context(self.access)}

    @contextmanager
    def producer(self, **wanted: Any) -> Iterator[AiokafkaProducer]:
        asked = Producing(**wanted)
        settings = {**producing(asked), "enable_idempotence": asked.idempotent}
        if asked.max_bytes is not None:
            settings |= {"max_request_size": asked.max_bytes, "max_batch_size": asked.max_bytes}

        async def start() -> aiokafka.AIOKafkaProducer:
            client = aiokafka.AIOKafkaProducer(**self._settings(), **settings)
            await client.start()
            return client

        with asyncio.Runner() as runner:
            client = runner.run(start())
            try:
                yield AiokafkaProducer(client, runner, asked.acks)
            finally:
                runner.run(client.stop())

    async def _started(self, **settings: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(**{**self._settings(), **settings})
        await consumer.start()
        return consumer

    def _with_consumer(self, use: Callable[[aiokafka.AIOKafkaConsumer], Awaitable[T]], *, committed: bool = False) -> T:
        async def run() -> T:
            consumer = await self._started(**reading(committed=committed))
            try:
                return await asyncio.wait_for(use(consumer), 2 * DEADLINE_S)
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]:
        async def use(consumer: aiokafka.AIOKafkaConsumer) -> list[Received]:
            consumer.assign([aiokafka.TopicPartition(topic, number) for number in starts])
            for number, offset in starts.items():
                consumer.seek(aiokafka.TopicPartition(topic, number), offset)
            found: list[Received] = []
            deadline = asyncio.get_running_loop().time() + DEADLINE_S
            while len(found) < count and asyncio.get_running_loop().time() < deadline:
                found += received(await consumer.getmany(timeout_ms=500, max_records=count - len(found)))
            return found

        return self._with_consumer(use, committed=committed)

    def _consuming(self, member: PolledMember, group: str, topic: str, instance: str, assignor: str) -> AiokafkaConsuming:
        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = await self._started(**joining(group, instance, RangePartitionAssignor))
            consumer.subscribe([topic], listener=_Assignments(member))
            return consumer

        runner = asyncio.Runner()
        return AiokafkaConsuming(runner.run(start()), runner)

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

    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        async def run() -> None:
            consumer = await self._started(**reading(committed=False), group_id=group)
            try:
                partitions = {aiokafka.TopicPartition(topic, number): at for number, at in offsets.items()}
                consumer.assign(list(partitions))
                await consumer.commit(partitions)
            finally:
                await consumer.stop()

        asyncio.run(run())

    def _with_admin(self, use: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def run() -> T:
            admin = AIOKafkaAdminClient(**self._settings())
            await admin.start()
            try:
                return await asyncio.wait_for(use(admin), DEADLINE_S)
            finally:
                await admin.close()

        return asyncio.run(run())

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        _check(self._with_admin(lambda admin: admin.create_topics([new])).topic_errors[0][1])

    def delete_topic(self, topic: str) -> None:
        self._with_admin(lambda admin: admin.delete_topics([topic]))

    def partitions(self, topic: str) -> set[int]:
        async def use(admin: AIOKafkaAdminClient) -> set[int]:
            if topic not in await admin.list_topics():
                return set()
            [found] = await admin.describe_topics([topic])
            return {each["partition"] for each in found["partitions"]}

        return self._with_admin(use)

    def add_partitions(self, topic: str, total: int) -> None:
        self._with_admin(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [found] = self._with_admin(lambda admin: admin.describe_configs([resource]))
        return {entry[0]: entry[1] for entry in found.resources[0][4]}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        [found] = self._with_admin(lambda admin: admin.alter_configs([resource]))
        _check(found.resources[0][0])

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        wanted = {aiokafka.TopicPartition(topic, number): RecordsToDelete(offset) for number, offset in before.items()}
        self._with_admin(lambda admin: admin.delete_records(wanted))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._with_admin(lambda admin: admin.list_consumer_group_offsets(group))
        return {each.partition: at.offset for each, at in found.items() if each.topic == topic and at.offset >= 0}

    def group(self, group: str) -> tuple[str, int]:
        [found] = self._with_admin(lambda admin: admin.describe_consumer_groups([group]))
        [(error, _, state, _, _, members, *_)] = found.groups
        _check(error)
        return state, len(members)

    def delete_group(self, group: str) -> None:
        raise NotImplementedError("declared in clients.py")
