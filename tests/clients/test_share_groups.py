"""Share groups (KIP-932) of librdkafka, Java and franz-go: members that share, locks that end, a broker that crashes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.settings.broker_config import Address

from tests.clients import external_programs
from tests.clients.clients import CLIENTS, Running
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import Access, Given, Sharer, SharingDriver
from tests.clients.external_programs import ProgramUnavailableError

TOPIC = "orders"
GROUP = "group"
LOCK_S = 30.0
PATIENCE_S = 60.0
ACCEPTING = [
    pytest.param("confluent-kafka", 0, id="confluent-kafka"),
    pytest.param("java", 0, id="java"),
    pytest.param("java-4.4", 0, marks=pytest.mark.full, id="java-4.4"),
    pytest.param("franz-go", 1, marks=pytest.mark.full, id="franz-go"),
]
"""The last ones are fetched, or compiled for minutes, on a fresh machine. The number: how much of what they accept may be
refused once locks have ended. franz-go accepts by each poll what the one before it gave, late or not; that is refused, or it is
taken for the second delivery, whose own acceptance is refused then."""
RENEWING = [
    pytest.param("java", True, id="java"),
    pytest.param("java-4.4", True, marks=pytest.mark.full, id="java-4.4"),
    pytest.param("franz-go", False, marks=pytest.mark.full, id="franz-go"),
]
"""Clients that know renewals (KIP-1222), and whether the next poll gives what was renewed once more."""

pytestmark = pytest.mark.timeout(900)  # the first test of a program builds it


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
        yield broker


@pytest.fixture(scope="module")
def programs() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, programs: ExitStack) -> Running:
    """As wide as the module, so that what is started is there before a test's leaks are counted."""
    try:
        running: Running = programs.enter_context(CLIENTS[request.param].running())
    except ProgramUnavailableError as exc:
        external_programs.unavailable(str(exc))
    return running


def driver_at(broker: BlockingBroker, running: Running | None = None) -> SharingDriver:
    """A client whose groups begin to read at the first record."""
    make = ConfluentDriver if running is None else running.driver
    driver = make(broker.bootstrap_servers, Access())
    assert isinstance(driver, SharingDriver)
    driver.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
    return driver


def given(sharer: Sharer, count: int) -> list[Given]:
    """What the next polls give, so many."""
    found = sharer.poll()
    while len(found) < count:
        found += sharer.poll()
    assert len(found) == count
    return sorted(found)


@pytest.mark.parametrize(("running", "may_be_refused"), ACCEPTING, indirect=["running"], scope="module")
def test_what_is_not_acknowledged_in_time_comes_again(broker: BlockingBroker, running: Running, may_be_refused: int) -> None:
    driver = driver_at(broker, running)
    for value in (b"a", b"b"):
        broker.append(TOPIC, [value])
    sharer = driver.sharer(GROUP, TOPIC, explicit=False)
    assert {each.deliveries for each in given(sharer, 2)} == {1}
    broker.clock.advance(LOCK_S + 1)
    assert [(each.value, each.deliveries) for each in given(sharer, 2)] == [(b"a", 2), (b"b", 2)]
    assert len(sharer.acknowledge()) <= may_be_refused
    broker.clock.advance(LOCK_S + 1)
    broker.append(TOPIC, [b"c"])
    assert [(each.value, each.deliveries) for each in given(sharer, 1)] == [(b"c", 1)]
    sharer.leave()


@pytest.mark.parametrize(("running", "is_polled_again"), RENEWING, indirect=["running"], scope="module")
def test_a_lock_that_is_renewed_holds(broker: BlockingBroker, running: Running, is_polled_again: bool) -> None:
    sharer = driver_at(broker, running).sharer(GROUP, TOPIC)
    broker.append(TOPIC, [b"a"])
    assert given(sharer, 1)[0].deliveries == 1
    broker.clock.advance(LOCK_S * 2 / 3)
    assert sharer.acknowledge([(0, 0, "renew")]) == []
    if is_polled_again:
        assert given(sharer, 1)[0].deliveries == 1
    broker.clock.advance(LOCK_S * 2 / 3)
    assert sharer.acknowledge([(0, 0, "accept")]) == []
    sharer.leave()


def share_consumer(broker: BlockingBroker, **config: Any) -> ShareConsumer:
    driver_at(broker)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 10,
            "log_level": 0,
            **config,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def accept(consumer: ShareConsumer, messages: Iterable[Message]) -> None:
    for message in messages:
        consumer.acknowledge(message)
    assert set(consumer.commit_sync(PATIENCE_S).values()) <= {None}


def polled(consumer: ShareConsumer) -> list[Message]:
    """What it is given, sooner or later."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := list(consumer.poll(0.2)):
            return found
    raise AssertionError("nothing was given in time")


def test_two_members_share_a_partition_and_nothing_is_given_twice(broker: BlockingBroker) -> None:
    for number in range(100):
        broker.append(TOPIC, [str(number).encode()])
    with closing(share_consumer(broker, **{"max.poll.records": 5})) as one:
        with closing(share_consumer(broker, **{"max.poll.records": 5})) as two:
            batches = [polled(one), polled(two)]
            assert all(batches), "both have some at the same time"
            seen = [message.offset() for batch in batches for message in batch]
            accept(one, batches[0])
            accept(two, batches[1])
            deadline = time.monotonic() + PATIENCE_S
            while len(seen) < 100:
                assert time.monotonic() < deadline, seen
                for each in (one, two):
                    if batch := list(each.poll(0.05)):
                        seen += [message.offset() for message in batch]
                        accept(each, batch)
            assert sorted(seen) == list(range(100))


def test_a_member_goes_on_over_a_crash_and_what_it_has_accepted_does_not_come_again(broker: BlockingBroker) -> None:
    broker.append(TOPIC, [b"a", b"b", b"c", b"d"])
    with closing(share_consumer(broker)) as consumer:
        messages = polled(consumer)
        assert [message.value() for message in messages] == [b"a", b"b", b"c", b"d"]
        consumer.acknowledge(messages[0])
        consumer.acknowledge(messages[1], AcknowledgeType.RELEASE)
        consumer.acknowledge(messages[2], AcknowledgeType.REJECT)
        consumer.acknowledge(messages[3], AcknowledgeType.RELEASE)
        assert set(consumer.commit_sync(PATIENCE_S).values()) == {None}
        broker.crash()
        broker.restart()
        broker.append(TOPIC, [b"e"])
        seen: list[bytes] = []
        while b"e" not in seen or len(seen) < 3:
            messages = polled(consumer)
            seen += [message.value() for message in messages]
            accept(consumer, messages)
        assert sorted(seen) == [b"b", b"d", b"e"]


def test_a_group_that_was_deleted_begins_anew(broker: BlockingBroker) -> None:
    broker.append(TOPIC, [b"a", b"b", b"c"])
    with closing(share_consumer(broker)) as consumer:
        accept(consumer, polled(consumer))
        assert broker.groups.state(GROUP) == "Stable"
    assert broker.groups.state(GROUP) == "Empty"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.delete_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
    with closing(share_consumer(broker)) as consumer:
        assert [message.value() for message in polled(consumer)] == [b"a", b"b", b"c"]
