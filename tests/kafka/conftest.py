"""Apache Kafka's classes for the tests of this folder, started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.server.settings.broker_config import Address

from tests.kafka.tools import Tools
from tests.support.kafka_jars import KafkaCalls, KafkaUnavailableError, class_path, unavailable


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    try:
        return class_path()
    except KafkaUnavailableError as exc:
        unavailable(str(exc))


@pytest.fixture(scope="session")
def kafka(kafka_class_path: str) -> Iterator[KafkaCalls]:
    with KafkaCalls.start(kafka_class_path) as calls:
        yield calls


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Strict, as `triolog serve` is."""
    with BlockingBroker(tmp_path / "data", for_tests=True, native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
        yield broker


@pytest.fixture
def tools(kafka: KafkaCalls, broker: BlockingBroker) -> Tools:
    return Tools(kafka, broker)
