"""Administration with real clients beyond what `test_conformance.py` asks of each. A strict broker, as `triolog serve` is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    import kafka.admin

PATIENCE_S = 30.0


@pytest.fixture
def strict() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), lenient=False) as strict:
        yield strict


def partitions(strict: BlockingBroker, topic: str) -> int:
    return len(strict.describe_topic(topic).partitions)


def librdkafka(strict: BlockingBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": strict.bootstrap_servers, "log_level": 0})


def librdkafka_error(future: object) -> int:
    with pytest.raises(KafkaException) as raised:
        future.result(PATIENCE_S)  # type: ignore[attr-defined]
    code: int = raised.value.args[0].code()
    return code


def test_librdkafka_makes_grows_trims_and_deletes_topics(strict: BlockingBroker) -> None:
    admin = librdkafka(strict)
    new = [NewTopic("t", 2, 1, config={"retention.ms": "-1"}), NewTopic("by-hand", 2, replica_assignment=[[1], [1]])]
    for future in admin.create_topics(new).values():
        future.result(PATIENCE_S)
    assert (partitions(strict, "t"), partitions(strict, "by-hand")) == (2, 2)
    [future] = admin.create_topics([NewTopic("three", 1, 3)]).values()
    assert librdkafka_error(future) == KafkaError.INVALID_REPLICATION_FACTOR
    [future] = admin.create_topics([NewTopic("unknown", 1, 1, config={"no.such.key": "1"})]).values()
    assert librdkafka_error(future) == KafkaError.INVALID_CONFIG
    [future] = admin.create_topics([NewTopic("validated", 1, 1)], validate_only=True).values()
    future.result(PATIENCE_S)
    assert strict.topics() == ["by-hand", "t"]
    admin.create_partitions([NewPartitions("t", 5)])["t"].result(PATIENCE_S)
    assert partitions(strict, "t") == 5
    assert librdkafka_error(admin.create_partitions([NewPartitions("t", 2)])["t"]) == KafkaError.INVALID_PARTITIONS
    strict.append("t", [b"a", b"b", b"c"], partition=1)
    [trimmed] = admin.delete_records([TopicPartition("t", 1, 2)]).values()
    assert trimmed.result(PATIENCE_S).low_watermark == 2
    [earliest] = admin.list_offsets({TopicPartition("t", 1): OffsetSpec.earliest()}).values()
    assert earliest.result(PATIENCE_S).offset == 2
    admin.delete_topics(["by-hand"])["by-hand"].result(PATIENCE_S)
    assert librdkafka_error(admin.delete_topics(["nope"])["nope"]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert strict.topics() == ["t"]


def test_a_topic_can_be_deleted_while_librdkafka_produces_to_it(strict: BlockingBroker) -> None:
    strict.create_topic("t")
    settings = {"linger.ms": 0, "message.timeout.ms": 5000, "log_level": 0, "topic.metadata.propagation.max.ms": 100}
    admin = librdkafka(strict)
    producer = Producer({"bootstrap.servers": strict.bootstrap_servers, **settings})
    errors: list[KafkaError | None] = []
    for number in range(200):
        producer.produce("t", b"v", partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
        if number == 0:
            assert producer.flush(PATIENCE_S) == 0  # librdkafka would find the topic when it is gone already
        if number == 100:
            admin.delete_topics(["t"])["t"].result(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    assert len(errors) == 200
    assert errors[0] is None
    gone = {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._MSG_TIMED_OUT,
    }
    assert {error.code() for error in errors if error is not None} <= gone


def test_kafka_python_finds_every_key_that_it_may_alter(strict: BlockingBroker) -> None:
    """It refuses by itself to alter a key that the broker does not list."""
    strict.create_topic("t")
    with closing(kafka.admin.KafkaAdminClient(bootstrap_servers=strict.bootstrap_servers)) as admin:
        for key in ("min.insync.replicas", "unclean.leader.election.enable", "durability"):
            value = {"durability": "fsync", "min.insync.replicas": "2"}.get(key, "true")
            admin.alter_configs([kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "t", {key: value})])
            assert strict.describe_topic("t").configs[key] == value


def test_an_embedded_broker_takes_the_replicas_and_keys_of_production() -> None:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0)) as strict:
        config = {"min.insync.replicas": "2", "confluent.placement.constraints": "{}", "remote.storage.enable": "true"}
        admin = librdkafka(strict)
        [future] = admin.create_topics([NewTopic("t", 3, 3, config=config)]).values()
        future.result(PATIENCE_S)
        assert partitions(strict, "t") == 3
        assert strict.describe_topic("t").configs == config
