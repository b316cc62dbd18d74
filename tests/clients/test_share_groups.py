"""Share groups (KIP-932) of librdkafka, Java and franz-go: locks that end, or are renewed; a crash; a deleted group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import triolog
from confluent_kafka.admin import AdminClient
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.clients import external_programs
from tests.clients.clients import CLIENTS, Running
from tests.clients.confluent_driver import ConfluentDriver, ConfluentSharer
from tests.clients.driver import Access, Given, Sharer, SharingDriver
from tests.clients.external_programs import ProgramUnavailableError

TOPIC = "orders"
GROUP = "group"
LOCK_S = 30.0
PATIENCE_S = 60.0
ACCEPTING = [
    pytest.param("confluent-kafka", 0, id="confluent-kafka"),
    pytest.param("java", 0, marks=pytest.mark.merge, id="java"),
    pytest.param("java-4.4", 0, marks=pytest.mark.merge, id="java-4.4"),
    pytest.param("franz-go", 1, marks=pytest.mark.merge, id="franz-go"),
]
"""The last ones are fetched, or compiled for minutes, on a fresh machine. The number: how much of what they accept may be
refused once locks have ended. franz-go accepts by each poll what the one before it gave, late or not; that is refused, or it is
taken for the second delivery, whose own acceptance is refused then."""
RENEWING = [
    pytest.param("java", True, marks=pytest.mark.merge, id="java"),
    pytest.param("java-4.4", True, marks=pytest.mark.merge, id="java-4.4"),
    pytest.param("franz-go", False, marks=pytest.mark.merge, id="franz-go"),
]
"""Clients that know renewals (KIP-1222), and whether the next poll gives what was renewed once more."""

pytestmark = pytest.mark.timeout(900)  # the first test of a program builds it


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
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


def test_a_member_goes_on_over_a_crash_and_what_it_has_accepted_does_not_come_again(broker: BlockingBroker) -> None:
    broker.append(TOPIC, [b"a", b"b", b"c", b"d"])
    sharer = driver_at(broker).sharer(GROUP, TOPIC)
    assert isinstance(sharer, ConfluentSharer)
    assert [each.value for each in given(sharer, 4)] == [b"a", b"b", b"c", b"d"]
    assert sharer.acknowledge([(0, 0, "accept"), (0, 1, "release"), (0, 2, "reject"), (0, 3, "release")]) == []
    broker.crash()
    broker.restart()
    broker.append(TOPIC, [b"e"])
    seen: list[tuple[bytes, bool]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 3:
        assert time.monotonic() < deadline, seen
        messages = [message for message in sharer.consumer.poll(0.2) if message.error() is None]
        seen += [(message.value(), message.delivery_count() > 1) for message in messages]
        for message in messages:
            sharer.consumer.acknowledge(message)
        assert sharer.acknowledge() == []
    assert sorted(seen) == [(b"b", True), (b"d", True), (b"e", False)]
    sharer.leave()


def test_a_group_that_was_deleted_begins_anew(broker: BlockingBroker) -> None:
    values = [b"a", b"b", b"c"]
    broker.append(TOPIC, values)
    for _ in range(2):
        sharer = driver_at(broker).sharer(GROUP, TOPIC)
        assert [(each.value, each.deliveries) for each in given(sharer, 3)] == [(value, 1) for value in values]
        assert sharer.acknowledge([(0, offset, "accept") for offset in range(3)]) == []
        assert broker.groups.state(GROUP) == "Stable"
        sharer.leave()
        assert broker.groups.state(GROUP) == "Empty"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.delete_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
