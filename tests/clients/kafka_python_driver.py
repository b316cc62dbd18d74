"""kafka-python: written in Python, with threads."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import attrs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.clients import python_driver
from tests.clients.driver import COOPERATIVE, DEADLINE_S, Access, Message, Producing, Received

# Its log lines have its connections in them: pytest, which keeps the lines of a test, would keep their sockets.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

POLL_MS = 50
RETRY_BACKOFF_MS = 5
"""Of 100 each new client waits most: it asks for a topic only so long after the metadata of its bootstrap (3.0.12)."""
MEMBER_POLL_MS = 500
"""A poll that ends while the answer to SyncGroup is under way loses the assignment (3.0.12), and the next one joins anew: it
should rarely end before, and what is begun anew is waited for to its end, or a slow machine would never get to it."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def _access(access: Access) -> dict[str, Any]:
    if access.ca is None:
        return python_driver.login(access, Tokens)
    files = {"ssl_cafile": access.ca, "ssl_certfile": access.certificate, "ssl_keyfile": access.certificate}
    return {**python_driver.login(access, Tokens), **files}


@attrs.define(eq=False)
class KafkaPythonProducer:
    client: Any
    acks: str

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        futures = [self.client.send(topic, **python_driver.sending(each)) for each in messages]
        self.client.flush(DEADLINE_S)
        offsets = [future.get(DEADLINE_S).offset for future in futures]
        return [-1] * len(messages) if self.acks == "0" else offsets

    def begin(self) -> None:
        self.client.begin_transaction()

    def end(self, *, commit: bool) -> None:
        if commit:
            self.client.commit_transaction()
        else:
            self.client.abort_transaction()

    def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        at = {
            kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        self.client.send_offsets_to_transaction(at, group)


class _Assignments(python_driver.Assignments, kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """As the client wants it."""


@attrs.define(eq=False)
class KafkaPythonConsuming:
    consumer: Any

    def poll(self) -> list[Received]:
        coordinator = self.consumer._coordinator
        if coordinator.need_rejoin():
            coordinator.ensure_active_group(timeout_ms=DEADLINE_S * 1000)
        return python_driver.received(self.consumer.poll(MEMBER_POLL_MS))

    def commit(self) -> None:
        try:
            self.consumer.commit()
        except kafka.errors.RebalanceInProgressError as exc:
            raise python_driver.RebalancingError from exc

    def close(self) -> None:
        self.consumer.close()


@attrs.define(eq=False)
class KafkaPythonDriver(python_driver.PythonDriver):
    def _settings(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap, **_access(self.access)}

    @contextmanager
    def producer(self, **wanted: Any) -> Iterator[KafkaPythonProducer]:
        asked = Producing(**wanted)
        settings: dict[str, Any] = {
            **python_driver.producing(asked),
            "enable_idempotence": asked.idempotent or bool(asked.transactional_id),
            "retry_backoff_ms": RETRY_BACKOFF_MS,
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 100,
        }
        if asked.max_bytes is not None:
            settings |= {"max_request_size": asked.max_bytes, "batch_size": asked.max_bytes}
        with closing(kafka.KafkaProducer(**self._settings(), **settings)) as client:
            if asked.transactional_id:
                client.init_transactions()
            yield KafkaPythonProducer(client, asked.acks)

    @contextmanager
    def _consumer(self, *, committed: bool = False) -> Iterator[Any]:
        settings = {**self._settings(), **python_driver.reading(committed=committed), "retry_backoff_ms": RETRY_BACKOFF_MS}
        with closing(kafka.KafkaConsumer(**settings)) as consumer:
            yield consumer

    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]:
        found: list[Received] = []
        deadline = time.monotonic() + DEADLINE_S
        with self._consumer(committed=committed) as consumer:
            consumer.assign([kafka.TopicPartition(topic, number) for number in starts])
            for number, offset in starts.items():
                consumer.seek(kafka.TopicPartition(topic, number), offset)
            while len(found) < count and time.monotonic() < deadline:
                found += python_driver.received(consumer.poll(POLL_MS, max_records=count - len(found)))
        return found

    def _consuming(
        self, member: python_driver.PolledMember, group: str, topic: str, instance: str, assignor: str
    ) -> KafkaPythonConsuming:
        chosen = CooperativeStickyAssignor if assignor == COOPERATIVE else RangePartitionAssignor
        settings = {**self._settings(), **python_driver.joining(group, instance, chosen), "retry_backoff_ms": RETRY_BACKOFF_MS}
        consumer = kafka.KafkaConsumer(**settings)
        # A leader that does not know the topic yet assigns nothing, and then all join again.
        consumer.partitions_for_topic(topic)
        consumer.subscribe([topic], listener=_Assignments(member))
        return KafkaPythonConsuming(consumer)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
            return None if found is None else int(found.offset)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([asked])[asked], consumer.end_offsets([asked])[asked]

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
