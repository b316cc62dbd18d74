"""Administration through aiokafka. It deletes no groups, and resets offsets with a consumer."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

from tests.clients.driver import DEADLINE_S

T = TypeVar("T")


def _check(code: int) -> None:
    if code:
        raise for_code(code)


class AiokafkaAdmin(ABC):
    """What a driver answers with the admin client."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]: ...

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
        wanted = {TopicPartition(topic, number): RecordsToDelete(offset) for number, offset in before.items()}
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
