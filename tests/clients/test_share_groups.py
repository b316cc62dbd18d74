"""Share groups (KIP-932) of librdkafka, Java and franz-go: members that share a partition, locks that end, servers that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.settings.broker_config import Address

from tests.clients import external_programs
from tests.clients.clients import CLIENTS, Running
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import Access, Given, Sharer, SharingDriver
from tests.clients.external_programs import ProgramUnavailableError
from tests.support.counts import FULL, mode

TOPIC = "orders"
GROUP = "group"
LOCK_S = 30.0
SHARING = ["confluent-kafka", "java", *([pytest.param("franz-go", marks=pytest.mark.full)])]
"""That of Go is compiled for minutes on a fresh machine."""

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


@pytest.mark.parametrize("running", SHARING, indirect=True, scope="module")
def test_what_is_not_acknowledged_in_time_comes_again(broker: BlockingBroker, running: Running) -> None:
    sharer = driver_at(broker, running).sharer(GROUP, TOPIC, explicit=False)
    for value in (b"a", b"b"):
        broker.append(TOPIC, [value])
    assert {each.deliveries for each in given(sharer, 2)} == {1}
    broker.clock.advance(LOCK_S + 1)
    assert [(each.value, each.deliveries) for each in given(sharer, 2)] == [(b"a", 2), (b"b", 2)]
    assert sharer.acknowledge() == []
    sharer.leave()


def test_two_members_share_a_partition(broker: BlockingBroker) -> None:
    driver = driver_at(broker)
    first, second = (driver.sharer(GROUP, TOPIC) for _ in range(2))
    wanted = set(range(1_000))
    seen: list[list[Given]] = [[], []]
    broker.append(TOPIC, [b"x"])
    while len(seen[0]) + len(seen[1]) < len(wanted):
        break
    first.leave()
    second.leave()
