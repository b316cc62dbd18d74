from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

TOPIC = "orders"
GROUP = "billing"
PATIENCE_S = 30.0


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics={TOPIC: 4}) as broker:
        yield broker


@contextmanager
def consuming(broker: BlockingBroker, **config: object) -> Iterator[list[bytes]]:
    """A member of the group that reads and commits for the time of the block; yields the values that it has read."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 50,
        "heartbeat.interval.ms": 50,
        "reconnect.backoff.ms": 1,
        "log_level": 0,
        **config,
    }
    values: list[bytes] = []
    stop = threading.Event()

    def poll() -> None:
        consumer = Consumer(settings)
        consumer.subscribe([TOPIC])
        while not stop.is_set():
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                values.append(message.value())
        consumer.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield values
    finally:
        stop.set()
        thread.join()


def test_two_members_share_the_partitions(broker: BlockingBroker) -> None:
    with consuming(broker, **{"client.id": "a"}), consuming(broker, **{"client.id": "b"}):
        members = broker.groups.wait_assigned(GROUP, 2, timeout_s=PATIENCE_S)
        assert sorted(member.client_id for member in members) == ["a", "b"]
        assert sorted(each for member in members for each in member.partitions) == [
            TopicPartition(TOPIC, number) for number in range(4)
        ]
        assert [len(member.partitions) for member in members] == [2, 2]


def test_committed_offsets_and_lag(broker: BlockingBroker) -> None:
    broker.log(TOPIC).produce_all(["a", "b"])
    with consuming(broker) as values:
        broker.groups.wait_no_lag(GROUP, TOPIC, timeout_s=PATIENCE_S)
        assert values == [b"a", b"b"]
    broker.log(TOPIC).produce("c")
    assert broker.groups.committed(GROUP)[TopicPartition(TOPIC, 0)] == 2
    assert broker.groups.lag(GROUP) == 1
    with pytest.raises(TimeoutError, match="is behind in orders"):
        broker.groups.wait_no_lag(GROUP, TOPIC, timeout_s=0.05)


def test_a_member_that_is_kicked_joins_again(broker: BlockingBroker) -> None:
    with consuming(broker):
        [member] = broker.groups.wait_assigned(GROUP, timeout_s=PATIENCE_S)
        seen = broker.requests.last
        broker.groups.kick(GROUP, member.member_id)
        broker.requests.wait_for("JoinGroup", after=seen, timeout_s=PATIENCE_S)
        [again] = broker.groups.wait_assigned(GROUP, timeout_s=PATIENCE_S)
        assert again.member_id != member.member_id


def test_a_rebalance_on_demand(broker: BlockingBroker) -> None:
    with consuming(broker):
        broker.groups.wait_assigned(GROUP, timeout_s=PATIENCE_S)
        seen = broker.requests.last
        broker.groups.rebalance(GROUP).wait_fired(timeout_s=PATIENCE_S)
        broker.requests.wait_for("JoinGroup", after=seen, timeout_s=PATIENCE_S)
        broker.groups.wait_assigned(GROUP, timeout_s=PATIENCE_S)


def test_a_frozen_group_lets_nobody_in_until_it_is_released(broker: BlockingBroker) -> None:
    frozen = broker.groups.freeze(GROUP)
    with consuming(broker):
        frozen.wait_fired(timeout_s=PATIENCE_S)
        assert broker.groups.members(GROUP) == []
        frozen.remove()
        broker.groups.wait_assigned(GROUP, timeout_s=PATIENCE_S)


def test_a_session_ends_when_the_clock_is_moved(broker: BlockingBroker) -> None:
    with consuming(broker, **{"session.timeout.ms": 60_000, "heartbeat.interval.ms": 20_000}):
        broker.groups.wait_assigned(GROUP, timeout_s=PATIENCE_S)
        # librdkafka sends its first heartbeat as soon as it has joined; after the jump it would start the session anew.
        broker.requests.wait_for("Heartbeat", timeout_s=PATIENCE_S)
        broker.clock.advance(61)
        deadline = time.monotonic() + PATIENCE_S
        while broker.groups.members(GROUP) and time.monotonic() < deadline:
            """Its end is being stored."""
        assert broker.groups.state(GROUP) == "Empty"
