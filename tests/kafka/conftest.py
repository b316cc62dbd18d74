"""Apache Kafka's classes for the tests of this folder, started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

import pytest
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

from tests.kafka.tools import Tools
from tests.support.kafka_admin import delete_topics
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls, KafkaUnavailableError, class_path, unavailable
from tests.support.kafka_wire import KafkaWire, ask

AT_ONCE: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}


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


def _as_long_as_it_is_used(fixture_name: str, config: pytest.Config) -> Literal["package", "session"]:
    """These tests run together in one process of xdist; elsewhere in any order."""
    return "package" if hasattr(config, "workerinput") else "session"


@pytest.fixture(scope=_as_long_as_it_is_used)
def shared_apache(kafka: KafkaCalls, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("apache"), kafka_class_path, kafka, settings=AT_ONCE) as broker:
        broker.format()
        broker.start()
        yield broker
        broker.stop()


@pytest.fixture
def apache(shared_apache: KafkaBroker) -> Iterator[KafkaBroker]:
    """One broker of Kafka for all tests that only send it requests. Each begins without topics and empty groups."""
    yield shared_apache
    with closing(KafkaWire.connect(Address.parse(shared_apache.address))) as client:
        groups = [each.group_id for each in client.call(ask("ListGroups"), 5).groups]
        client.call(ask("DeleteGroups", groups_names=groups), 2)
        while topics := _topics(client):
            client.call(delete_topics(*topics), 5)


def _topics(client: KafkaWire) -> list[str]:
    answer = client.call(
        ask("Metadata", topics=None, include_cluster_authorized_operations=False, include_topic_authorized_operations=False), 12
    )
    return [each.name for each in answer.topics if not each.is_internal]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Strict, as `triolog serve` is."""
    with triolog.blocking.open(tmp_path / "data", for_tests=True, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
        yield broker


@pytest.fixture
def tools(kafka: KafkaCalls, broker: BlockingBroker) -> Tools:
    return Tools(kafka, broker)
