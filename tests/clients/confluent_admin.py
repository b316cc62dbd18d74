"""Administration through confluent-kafka."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.clients.driver import DEADLINE_S


class ConfluentAdmin(ABC):
    """What a driver answers with the admin client."""

    @abstractmethod
    def _settings(self, **settings: Any) -> dict[str, Any]: ...

    def _asked(self, ask: Callable[[AdminClient], Mapping[Any, Any]]) -> Any:
        """What the one future has. The client has to live for as long as it is waited for."""
        admin = AdminClient(self._settings())
        [future] = ask(admin).values()
        return future.result(DEADLINE_S)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._asked(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs))]))

    def delete_topic(self, topic: str) -> None:
        self._asked(lambda admin: admin.delete_topics([topic]))

    def partitions(self, topic: str) -> set[int]:
        found = AdminClient(self._settings()).list_topics(timeout=DEADLINE_S).topics
        return set(found[topic].partitions) if topic in found else set()

    def add_partitions(self, topic: str, total: int) -> None:
        self._asked(lambda admin: admin.create_partitions([NewPartitions(topic, total)]))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        found = self._asked(lambda admin: admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in found.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._alter_configs(ResourceType.TOPIC, topic, configs)

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        self._alter_configs(ResourceType.GROUP, group, configs)

    def _alter_configs(self, kind: ResourceType, name: str, configs: Mapping[str, str]) -> None:
        changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()]
        resource = ConfigResource(kind, name, incremental_configs=changes)
        self._asked(lambda admin: admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        self._asked(lambda admin: admin.delete_records(wanted))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._asked(lambda admin: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {each.partition: each.offset for each in found.topic_partitions if each.topic == topic}

    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        self._asked(lambda admin: admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))

    def group(self, group: str) -> tuple[str, int]:
        found = self._asked(lambda admin: admin.describe_consumer_groups([group]))
        return found.state.name.capitalize(), len(found.members)

    def delete_group(self, group: str) -> None:
        self._asked(lambda admin: admin.delete_consumer_groups([group]))
