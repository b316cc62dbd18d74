"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import attrs
import confluent_kafka
from confluent_kafka import (
    AcknowledgeType,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.clients.driver import COOPERATIVE, DEADLINE_S, OAUTHBEARER, SERVER, Access, Given, Message, Producing, Received, Said
from tests.clients.python_driver import PolledMember, PythonDriver

# Where the one broker is away librdkafka begins again ("rebootstrap"); a transactional producer may then wait indefinitely for
# the broker that it has given up.
STAYING: Final = {"metadata.recovery.strategy": "none"} if confluent_kafka.libversion()[1] >= 0x020B0000 else {}
PATIENT: Final[dict[str, Any]] = {
    **STAYING,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}
"""Settings of a client whose server is killed now and then."""
UNKNOWN_OFFSET = -1001
AWAY = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
"""Errors of a member whose broker is restarted."""
POLL_S = 0.05
GIVEN_POLL_S = 0.2
TYPES = {"accept": AcknowledgeType.ACCEPT, "release": AcknowledgeType.RELEASE, "reject": AcknowledgeType.REJECT}


TOKEN_EXPIRES_S = 4e9
"""When the client asks for another one: not in these tests."""


def _settings(bootstrap: str, access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
        "security.protocol": access.protocol,
    }
    if access.ca:
        settings["ssl.ca.location"] = access.ca
    if access.certificate:
        settings |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.certificate}
    if access.mechanism == OAUTHBEARER:
        settings |= {"sasl.mechanism": OAUTHBEARER, "oauth_cb": lambda _: (access.token, TOKEN_EXPIRES_S)}
    elif access.mechanism:
        settings |= {"sasl.mechanism": access.mechanism, "sasl.username": access.user, "sasl.password": access.password}
    return settings


def received(message: confluent_kafka.Message) -> Received:
    if message.error() is not None:
        raise KafkaException(message.error())
    return Received(
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def offset_of(delivered: confluent_kafka.Message) -> int:
    """Return the offset in a delivery report, -1 without one."""
    offset: int | None = delivered.offset()
    return -1 if offset in (None, UNKNOWN_OFFSET) else offset


@attrs.define(eq=False)
class ConfluentProducer:
    client: confluent_kafka.Producer
    settings: dict[str, Any]

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        delivered: dict[int, confluent_kafka.Message] = {}
        errors: list[confluent_kafka.KafkaError] = []

        def report(slot: int) -> Any:
            def take(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
                if error is not None:
                    errors.append(error)
                delivered[slot] = message

            return take

        for slot, each in enumerate(messages):
            self.client.produce(
                topic,
                value=each.value,
                key=each.key,
                headers=list(each.headers),
                partition=each.partition,
                timestamp=each.timestamp_ms or 0,
                on_delivery=report(slot),
            )
            self.client.poll(0)
        assert self.client.flush(DEADLINE_S) == 0, "the client still waits for acknowledgements"
        if errors:
            raise KafkaException(errors[0])
        return [offset_of(delivered[slot]) for slot in range(len(messages))]

    def begin(self) -> None:
        self.client.begin_transaction()

    def end(self, *, commit: bool) -> None:
        if commit:
            self.client.commit_transaction(DEADLINE_S)
        else:
            self.client.abort_transaction(DEADLINE_S)

    def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        at = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        with closing(confluent_kafka.Consumer({**self.settings, "group.id": group})) as consumer:
            self.client.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), DEADLINE_S)


@attrs.define(eq=False)
class ConfluentConsuming:
    consumer: confluent_kafka.Consumer

    def poll(self) -> list[Received]:
        found = self.consumer.consume(100, timeout=POLL_S)
        return [received(message) for message in found if message.error() is None or message.error().code() not in AWAY]

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


@attrs.define(eq=False)
class ConfluentSharer:
    """A consumer of share groups (KIP-932). It belongs to one thread."""

    consumer: ShareConsumer
    topic: str

    def poll(self) -> list[Given]:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if given := [_given(message) for message in self.consumer.poll(GIVEN_POLL_S)]:
                return given
        raise AssertionError("nothing was given in time")

    def acknowledge(self, said: Sequence[Said] = ()) -> list[str]:
        for partition, offset, what in said:
            self.consumer.acknowledge_offset(self.topic, partition, offset, TYPES[what])
        answers = self.consumer.commit_sync(DEADLINE_S)
        return [error.args[0].name() for error in answers.values() if error is not None]

    def leave(self) -> None:
        self.consumer.close()


def _given(message: confluent_kafka.Message) -> Given:
    if message.error() is not None:
        raise KafkaException(message.error())
    return Given(message.partition(), message.offset(), message.value(), message.delivery_count())


@attrs.define(eq=False)
class ConfluentDriver(PythonDriver):
    def _settings(self, **settings: Any) -> dict[str, Any]:
        return {**_settings(self.bootstrap, self.access), **settings}

    def _producing(self, asked: Producing) -> dict[str, Any]:
        settings = self._settings(**{"acks": asked.acks, "compression.type": asked.codec, "linger.ms": 1})
        if asked.transactional_id:
            settings["transactional.id"] = asked.transactional_id
        else:
            settings["enable.idempotence"] = asked.idempotent
        if asked.max_bytes is not None:
            settings["message.max.bytes"] = asked.max_bytes
        return settings

    @contextmanager
    def producer(self, **wanted: Any) -> Iterator[ConfluentProducer]:
        asked = Producing(**wanted)
        producer = ConfluentProducer(confluent_kafka.Producer(self._producing(asked)), self._settings())
        if asked.transactional_id:
            producer.client.init_transactions(DEADLINE_S)
        yield producer
        del producer.client  # its threads end with it

    def _reading(self, *, committed: bool = False) -> dict[str, Any]:
        return self._settings(
            **{
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 1,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )

    @contextmanager
    def _consumer(self, *, committed: bool = False) -> Iterator[confluent_kafka.Consumer]:
        with closing(confluent_kafka.Consumer(self._reading(committed=committed))) as consumer:
            yield consumer

    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]:
        found: list[Received] = []
        deadline = time.monotonic() + DEADLINE_S
        with self._consumer(committed=committed) as consumer:
            consumer.assign([TopicPartition(topic, number, offset) for number, offset in starts.items()])
            while len(found) < count and time.monotonic() < deadline:
                found += [received(message) for message in consumer.consume(count - len(found), timeout=POLL_S)]
        return found

    def _joining(self, group: str, instance: str, assignor: str) -> dict[str, Any]:
        settings = {**self._reading(committed=True), "group.id": group, "auto.offset.reset": "earliest"}
        if assignor == SERVER:
            settings["group.protocol"] = "consumer"
        else:
            strategy = "cooperative-sticky" if assignor == COOPERATIVE else assignor
            settings |= {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 50, "session.timeout.ms": 10_000}
        if instance:
            settings["group.instance.id"] = instance
        return settings

    def _consuming(self, member: PolledMember, group: str, topic: str, instance: str, assignor: str) -> ConfluentConsuming:
        consumer = confluent_kafka.Consumer(self._joining(group, instance, assignor))
        consumer.subscribe(
            [topic],
            on_assign=lambda _, given: member.given(each.partition for each in given),
            on_revoke=lambda _, taken: member.taken(each.partition for each in taken),
        )
        return ConfluentConsuming(consumer)

    def sharer(self, group: str, topic: str, *, explicit: bool = True) -> ConfluentSharer:
        mode = "explicit" if explicit else "implicit"
        settings = {"group.id": group, "share.acknowledgement.mode": mode}
        consumer = ShareConsumer(self._settings(**settings))
        consumer.subscribe([topic])
        return ConfluentSharer(consumer, topic)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """librdkafka says the end of the log where there is no such record."""
        with self._consumer() as consumer:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], timeout=DEADLINE_S)
            if found.error is not None:
                raise KafkaException(found.error)
            return None if found.offset < 0 else found.offset

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        with self._consumer() as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
            return low, high

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
