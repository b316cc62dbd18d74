"""Clients besides librdkafka, which `tests/server/fake/test_odd_logs.py` has, on logs that no real broker would have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import triolog
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.clients import external_programs
from tests.clients.clients import CLIENTS, Running
from tests.clients.driver import Access, Driver
from tests.clients.external_programs import ProgramUnavailableError

pytestmark = [
    pytest.mark.merge,
    pytest.mark.timeout(900),  # the first test of a program builds it
]
TOPIC: Final = "orders"
NEW_YEAR_MS: Final = 1_767_225_600_000


@pytest.fixture(scope="module", params=["aiokafka", "kafka-python", "kafkajs", "franz-go"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    try:
        with CLIENTS[request.param].running() as running:
            yield running
    except ProgramUnavailableError as exc:
        external_programs.unavailable(str(exc))


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, for_tests=True, kafka="127.0.0.1:0", topics=[TOPIC]) as broker:
        yield broker


@pytest.fixture
def driver(running: Running, broker: BlockingBroker) -> Driver:
    return running.driver(broker.bootstrap_servers, Access())


def test_offsets_without_records_are_passed(driver: Driver, broker: BlockingBroker) -> None:
    log = broker.log(TOPIC)
    log.append(["first"])
    for call in (log.skip_offsets, log.append_empty_batch, log.lose_offsets):
        call(5)
        log.append([call.__name__])
    found = driver.read(TOPIC, 4, starts={0: 0})
    assert [(each.offset, each.value) for each in found] == [
        (0, b"first"),
        (6, b"skip_offsets"),
        (12, b"append_empty_batch"),
        (18, b"lose_offsets"),
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_read(driver: Driver, broker: BlockingBroker, magic: int) -> None:
    """All of a log has one format. kafkajs 2.2 reads a whole response in the format of its first batch, and the compiled part
    of aiokafka 0.14 checks a wrong CRC where a message follows a batch of today."""
    broker.log(TOPIC).append_old_format([(NEW_YEAR_MS, b"key", b"v", ()), (NEW_YEAR_MS + 1, None, None, ())], magic=magic)
    found = driver.read(TOPIC, 2, starts={0: 0})
    assert [(each.offset, each.key, each.value) for each in found] == [(0, b"key", b"v"), (1, None, None)]
    if magic == 1:
        assert [each.timestamp_ms for each in found] == [NEW_YEAR_MS, NEW_YEAR_MS + 1]


def test_generated_records_are_read(driver: Driver, broker: BlockingBroker) -> None:
    log = broker.log(TOPIC)
    log.generate(3_000, value_bytes=50)
    found = driver.read(TOPIC, 3_000, starts={0: 0})
    assert [(each.offset, each.value) for each in found] == [(each.offset, each.value) for each in log.fetch()]
