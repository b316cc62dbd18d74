"""Several nodes, and administration beyond what `test_conformance.py` asks of each client."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import closing

import pytest
import triolog
from confluent_kafka import KafkaError, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    import kafka.admin


@pytest.fixture
def strict() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), lenient=False) as strict:
        yield strict


def partitions(strict: BlockingBroker, topic: str) -> int:
    return len(strict.describe_topic(topic).partitions)


def librdkafka(strict: BlockingBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": strict.bootstrap_servers, "log_level": 0})


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
            assert strict.describe_topic("t").config[key] == value


def test_an_embedded_broker_takes_the_replicas_and_keys_of_production() -> None:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0)) as strict:
        config = {"min.insync.replicas": "2", "confluent.placement.constraints": "{}", "remote.storage.enable": "true"}
        admin = librdkafka(strict)
        [future] = admin.create_topics([NewTopic("t", 3, 3, config=config)]).values()
        future.result(PATIENCE_S)
        assert partitions(strict, "t") == 3
        assert strict.describe_topic("t").config == config


TOPIC = "orders"
PATIENCE_S = 30.0


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    kafka = Address("127.0.0.1", 0)
    with triolog.blocking.open(MEMORY, kafka=kafka, nodes=3, topics={TOPIC: 3}) as broker:
        yield broker


def settings(broker: BlockingBroker) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.ms": 1, "retry.backoff.ms": 1, "log_level": 0}


def leaders(broker: BlockingBroker) -> dict[int, int]:
    """Partition -> node, as clients are told."""
    metadata = AdminClient(settings(broker)).list_topics(TOPIC, timeout=PATIENCE_S)
    return {number: each.leader for number, each in metadata.topics[TOPIC].partitions.items()}


def producer_of(broker: BlockingBroker) -> Producer:
    return Producer({**settings(broker), "linger.ms": 0, "retry.backoff.max.ms": 10, "enable.idempotence": True})


def send(producer: Producer, value: bytes, partition: int) -> None:
    errors: list[object] = []
    producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors[0] is None


def test_a_client_sees_three_nodes_and_asks_each_leader(broker: BlockingBroker) -> None:
    metadata = AdminClient(settings(broker)).list_topics(timeout=PATIENCE_S)
    assert sorted(metadata.brokers) == [1, 2, 3]
    assert len({each.port for each in metadata.brokers.values()}) == 3
    assert sorted(leaders(broker).values()) == [1, 2, 3]
    producer = producer_of(broker)
    for partition in range(3):
        send(producer, b"v", partition)
    assert {request.node for request in broker.requests.find("Produce")} == {1, 2, 3}
    assert not broker.requests.find("Produce", error="NOT_LEADER_OR_FOLLOWER")


def test_a_leader_moves_with_a_higher_epoch_and_the_producer_follows(broker: BlockingBroker) -> None:
    producer = producer_of(broker)
    send(producer, b"before", 0)
    before = leaders(broker)[0]
    after = before % 3 + 1
    assert broker.move_leader(TOPIC, 0, after) == 1
    assert broker.move_leader(TOPIC, 0, after) == 2
    send(producer, b"after", 0)
    assert leaders(broker)[0] == after
    assert {request.node for request in broker.requests.find("Produce", error="NOT_LEADER_OR_FOLLOWER")} == {before}
    assert [request.node for request in broker.requests.find("Produce")][-1] == after
    assert broker.log(TOPIC).values(0) == [b"before", b"after"]


def test_a_node_goes_down_and_comes_back_on_its_port(broker: BlockingBroker) -> None:
    producer = producer_of(broker)
    led = next(number for number, node in leaders(broker).items() if node == 2)
    send(producer, b"before", led)
    broker.node_down(2)
    send(producer, b"during", led)
    assert leaders(broker)[led] == 3
    broker.node_up(2)
    assert leaders(broker)[led] == 2
    send(producer, b"after", led)
    assert broker.log(TOPIC).values(led) == [b"before", b"during", b"after"]


def test_a_node_that_is_down_is_hidden_and_one_that_comes_up_is_added(broker: BlockingBroker) -> None:
    broker.node_down(3)
    client = AdminClient(settings(broker))
    assert sorted(client.list_topics(timeout=PATIENCE_S).brokers) == [1, 2]
    assert 3 not in leaders(broker).values()
    broker.node_up(3)
    assert sorted(client.list_topics(timeout=PATIENCE_S).brokers) == [1, 2, 3]
    assert 3 in leaders(broker).values()


def test_a_transaction_finds_its_coordinator_after_it_has_moved(broker: BlockingBroker) -> None:
    producer = Producer({**settings(broker), "transactional.id": "tx"})
    producer.init_transactions(PATIENCE_S)
    [first] = {request.node for request in broker.requests.find("InitProducerId")}
    broker.move_coordinator("tx", first % 3 + 1)
    producer.begin_transaction()
    producer.produce(TOPIC, b"v", partition=0)
    producer.commit_transaction(PATIENCE_S)
    assert broker.requests.find(error="NOT_COORDINATOR")
    assert broker.log(TOPIC).values(0) == [b"v"]


def test_nodes_and_moves_survive_a_crash(broker: BlockingBroker) -> None:
    before = leaders(broker)[0]
    broker.move_leader(TOPIC, 0, before % 3 + 1)
    broker.crash()
    broker.restart()
    assert leaders(broker)[0] == before % 3 + 1
    assert broker.call_now(lambda: broker._target.core.reader.snapshot(TopicPartition(TOPIC, 0)).leader_epoch) == 1


def test_a_rule_of_one_node(broker: BlockingBroker) -> None:
    fault = broker.faults.add("Produce", node=leaders(broker)[1], disconnect=True, once=True)
    producer = producer_of(broker)
    send(producer, b"v", 0)
    assert fault.fired == 0
    send(producer, b"v", 1)
    assert fault.fired == 1


def test_a_single_node_has_no_others() -> None:
    with triolog.blocking.open(MEMORY) as broker, pytest.raises(ValueError, match="single node"):
        broker.node_down(1)


def test_a_client_speaks_the_versions_of_the_kafka_that_is_emulated() -> None:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), emulate="2.4", topics=[TOPIC]) as broker:
        send(Producer(settings(broker)), b"v", 0)
        assert {request.version for request in broker.requests.find("Produce")} == {8}
        assert {request.version for request in broker.requests.find("Metadata")} == {9}


def test_a_version_that_nobody_knows_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="unknown Kafka version"),
        triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), emulate="0.7"),
    ):
        """Does not start."""


def poll_until(consumer: ShareConsumer, values: set[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while values:
        values = values - {message.value() or b"" for message in consumer.poll(0.2)}
        assert time.monotonic() < deadline, values


def test_a_share_consumer_reads_from_each_leader_and_follows_one_that_moves(broker: BlockingBroker) -> None:
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[earliest])
    admin = AdminClient(settings(broker))
    admin.incremental_alter_configs([group])[group].result(PATIENCE_S)
    for partition in range(3):
        broker.append(TOPIC, [b"%d" % partition], partition=partition)
    consumer = ShareConsumer({**settings(broker), "group.id": "g"})
    try:
        consumer.subscribe([TOPIC])
        poll_until(consumer, {b"0", b"1", b"2"})
        assert {request.node for request in broker.requests.find("ShareFetch")} == {1, 2, 3}
        broker.move_leader(TOPIC, 0, 1 + leaders(broker)[0] % 3)
        broker.append(TOPIC, [b"moved"])
        poll_until(consumer, {b"moved"})
    finally:
        consumer.close()
    assert broker.requests.find(error="NOT_LEADER_OR_FOLLOWER")
    assert not broker.requests.find("ShareFetch", error="INVALID_SHARE_SESSION_EPOCH")
