"""librdkafka in groups of both protocols: static members, expressions, a restart, what a test does to members."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import triolog
from confluent_kafka import Consumer
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import SERVER
from tests.clients.python_driver import PolledMember

TOPIC = "orders"
GROUP = "billing"
PATIENCE_S = 60.0
PARTITIONS = 4


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics={TOPIC: PARTITIONS}) as broker:
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
            TopicPartition(TOPIC, number) for number in range(PARTITIONS)
        ]
        assert [len(member.partitions) for member in members] == [2, 2]


def test_committed_offsets_and_lag(broker: BlockingBroker) -> None:
    broker.log(TOPIC).append(["a", "b"])
    with consuming(broker) as values:
        broker.groups.wait_no_lag(GROUP, TOPIC, timeout_s=PATIENCE_S)
        assert values == [b"a", b"b"]
    broker.log(TOPIC).append(["c"])
    assert broker.groups.committed(GROUP)[TopicPartition(TOPIC, 0)] == 2
    assert broker.groups.lag(GROUP) == 1
    with pytest.raises(TimeoutError, match="lags in orders"):
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


Join = Callable[..., PolledMember]


@attrs.define(eq=False)
class NamedDriver(ConfluentDriver):
    name: str = attrs.field(kw_only=True)

    def _settings(self, **settings: Any) -> dict[str, Any]:
        return {**ConfluentDriver._settings(self, **settings), "client.id": self.name}


@pytest.fixture
def join(broker: BlockingBroker) -> Iterator[Join]:
    """Joins a member, which polls by itself and leaves at the end."""
    members: list[PolledMember] = []

    def join(*, topic: str = TOPIC, instance: str = "", name: str = "client") -> PolledMember:
        driver = NamedDriver(broker.bootstrap_servers, name=name)
        members.append(driver.member(GROUP, topic, instance=instance, assignor=SERVER))
        return members[-1]

    yield join
    for member in members:
        member.leave()


def fill(broker: BlockingBroker, *, round_: int) -> list[bytes]:
    values = [f"{round_}-{number}".encode() for number in range(PARTITIONS)]
    for number, value in enumerate(values):
        broker.append(TOPIC, [value], partition=number)
    return values


def test_a_static_member_has_the_same_partitions_when_it_comes_back(join: Join) -> None:
    first, other = join(instance="one"), join(instance="two")
    (had, _), others = first.assigned(2), other.assigned(2)
    assert had | others[0] == set(range(PARTITIONS))
    first.leave()
    assert join(instance="one").assigned(2)[0] == had
    assert other.assigned(2) == others


def test_a_regular_expression_finds_topics_that_are_made_later(broker: BlockingBroker, join: Join) -> None:
    pytest.importorskip("re2")
    member = join(topic="^orders.*")
    member.assigned(PARTITIONS)
    broker.create_topic("orders-new", PARTITIONS + 2)
    broker.create_topic("invoices", PARTITIONS + 4)
    assert member.assigned(PARTITIONS + 2) == (set(range(PARTITIONS + 2)), 0)


def test_a_group_goes_on_when_the_broker_was_killed_and_started_again(broker: BlockingBroker, join: Join) -> None:
    members = [join(), join()]
    had = [member.assigned(2)[0] for member in members]
    sent = fill(broker, round_=0)  # before, the first member could read everything alone, and the second half of it again
    for member in members:
        member.received(2)
        member.commit()
    broker.crash()
    broker.restart()
    sent += fill(broker, round_=1)
    read = [each.value for member in members for each in member.received(4)]
    assert [member.assigned(2)[0] for member in members] == had
    assert sorted(value or b"" for value in read) == sorted(sent)


def test_a_test_waits_for_the_members_kicks_one_and_lets_all_join_again(broker: BlockingBroker, join: Join) -> None:
    for name in ("a", "b"):
        join(name=name)
    found = broker.groups.wait_assigned(GROUP, 2, timeout_s=PATIENCE_S)
    assert sorted((member.client_id, len(member.partitions)) for member in found) == [("a", 2), ("b", 2)]
    assert sorted(each for member in found for each in member.partitions) == [
        TopicPartition(TOPIC, number) for number in range(PARTITIONS)
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
