"""Administration through kafka-python."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient


class KafkaPythonAdmin(ABC):
    """What a driver answers with the admin client."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]: ...

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(**self._settings())) as admin:
            yield admin

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}
        with self._admin() as admin:
            admin.create_topics({topic: options})

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def partitions(self, topic: str) -> set[int]:
        with self._admin() as admin:
            if topic not in admin.list_topics():
                return set()
            [found] = admin.describe_topics([topic])
            return {each["partition_index"] for each in found["partitions"]}

    def add_partitions(self, topic: str, total: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: total})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        with self._admin() as admin:
            found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
            return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        with self._admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        with self._admin() as admin:
            admin.delete_records({kafka.TopicPartition(topic, number): offset for number, offset in before.items()})

    def committed(self, group: str, topic: str) -> dict[int, int]:
        with self._admin() as admin:
            found = admin.list_group_offsets(group)[group]
            return {each.partition: at.offset for each, at in found.items() if each.topic == topic and at.offset >= 0}

    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        with self._admin() as admin:
            admin.reset_group_offsets(group, {kafka.TopicPartition(topic, number): at for number, at in offsets.items()})

    def group(self, group: str) -> tuple[str, int]:
        with self._admin() as admin:
            found = admin.describe_groups([group])[group]
            return found["group_state"], len(found["members"])

    def delete_group(self, group: str) -> None:
        with self._admin() as admin:
            assert admin.delete_groups([group])
