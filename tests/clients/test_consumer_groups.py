"""librdkafka with `group.protocol=consumer` (KIP-848): static members, expressions, a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition as Partition
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.settings.broker_config import Address

TOPIC = "orders"
GROUP = "group"
PARTITIONS = 4
PATIENCE_S = 60.0


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics={TOPIC: PARTITIONS}) as broker:
        yield broker


@attrs.define(eq=False)
class Members:
    """Consumers of one group, polled in turn by the test."""

    broker: BlockingBroker
    values: list[bytes] = attrs.field(factory=list)
    """What they have read, in the order of reading."""
    consumers: list[Consumer] = attrs.field(factory=list)

    def join(self, topics: Iterable[str] = (TOPIC,), **config: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": GROUP,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 10,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 20,
                "log_level": 0,
                **config,
            }
        )
        consumer.subscribe(list(topics))
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def poll_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, [assigned(each) for each in self.consumers]
            for consumer in self.consumers:
                self._take(consumer.poll(0.02))

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is None:
            self.values.append(message.value())
        elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
            raise KafkaException(error)

    def share(self, *shares: int, topic: str = TOPIC) -> None:
        """Poll until the members have so many partitions of the topic, no two of them the same one."""
        self.poll_until(lambda: sorted(len(assigned(each, topic)) for each in self.consumers) == sorted(shares))
        owned = [number for each in self.consumers for number in assigned(each, topic)]
        assert sorted(owned) == list(range(sum(shares)))


def assigned(consumer: Consumer, topic: str = TOPIC) -> set[int]:
    return {each.partition for each in consumer.assignment() if each.topic == topic}


@pytest.fixture
def members(broker: BlockingBroker) -> Iterator[Members]:
    members = Members(broker)
    yield members
    for consumer in list(members.consumers):
        members.leave(consumer)


def fill(broker: BlockingBroker, *, round_: int = 0) -> list[bytes]:
    """One record in each partition."""
    values = [f"{round_}-{number}".encode() for number in range(PARTITIONS)]
    for number, value in enumerate(values):
        broker.append(TOPIC, [value], partition=number)
    return values


def test_a_static_member_has_the_same_partitions_when_it_comes_back(members: Members) -> None:
    first = members.join(**{"group.instance.id": "one"})
    members.join(**{"group.instance.id": "two"})
    members.share(2, 2)
    [other] = [each for each in members.consumers if each is not first]
    had, others = assigned(first), assigned(other)
    members.leave(first)
    back = members.join(**{"group.instance.id": "one"})
    members.poll_until(lambda: assigned(back) == had)
    assert assigned(other) == others


def test_a_regular_expression_finds_topics_that_are_made_later(broker: BlockingBroker, members: Members) -> None:
    pytest.importorskip("re2")
    members.join(["^orders.*"])
    members.share(4)
    broker.create_topic("orders-new", 2)
    broker.create_topic("invoices", 2)
    members.share(2, topic="orders-new")
    assert {each.topic for each in members.consumers[0].assignment()} == {TOPIC, "orders-new"}


def test_a_group_goes_on_when_the_broker_was_killed_and_started_again(broker: BlockingBroker, members: Members) -> None:
    members.join()
    members.join()
    members.share(2, 2)
    sent = fill(broker)  # before, the first member could read everything alone, and the second would read half of it again
    members.poll_until(lambda: len(members.values) == len(sent))
    for each in members.consumers:
        each.commit(asynchronous=False)
    had = [assigned(each) for each in members.consumers]

    broker.crash()
    broker.restart()
    sent += fill(broker, round_=1)
    members.poll_until(lambda: len(members.values) >= len(sent))
    members.share(2, 2)
    assert [assigned(each) for each in members.consumers] == had
    assert sorted(members.values) == sorted(sent)


# ---- what a test sees of such a group, and does to it ------------------------------------------------------------------------


@contextmanager
def polled(members: Members) -> Iterator[None]:
    """The members are polled by another thread for the time of the block, as an application does."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            for consumer in members.consumers:
                consumer.poll(0.01)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_test_waits_for_the_members_kicks_one_and_lets_all_join_again(broker: BlockingBroker, members: Members) -> None:
    for name in ("a", "b"):
        members.join(**{"client.id": name})
    with polled(members):
        found = broker.groups.wait_assigned(GROUP, 2, timeout_s=PATIENCE_S)
        assert sorted((member.client_id, len(member.partitions)) for member in found) == [("a", 2), ("b", 2)]
        assert sorted(each for member in found for each in member.partitions) == [
            Partition(TOPIC, number) for number in range(PARTITIONS)
        ]

        seen = broker.requests.last
        broker.groups.kick(GROUP, found[0].member_id)
        with pytest.raises(RequestError, match="nobody"):
            broker.groups.kick(GROUP, "nobody")
        broker.requests.wait_for("ConsumerGroupHeartbeat", error="UNKNOWN_MEMBER_ID", after=seen, timeout_s=PATIENCE_S)
        assert len(broker.groups.wait_assigned(GROUP, 2, timeout_s=PATIENCE_S)) == 2

        seen = broker.requests.last
        broker.groups.rebalance(GROUP).wait_fired(2, timeout_s=PATIENCE_S)
        fenced = broker.requests.wait_for("ConsumerGroupHeartbeat", error="FENCED_MEMBER_EPOCH", count=2, after=seen)
        assert {request.client_id for request in fenced} == {"a", "b"}
        assert len(broker.groups.wait_assigned(GROUP, 2, timeout_s=PATIENCE_S)) == 2
        assert broker.groups.state(GROUP) == "Stable"
