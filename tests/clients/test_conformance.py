"""Every scenario through every client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.aiokafka_driver import AiokafkaDriver
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import Driver
from tests.clients.kafka_python_driver import KafkaPythonDriver
from tests.clients.scenarios import SCENARIOS, Cluster

DRIVERS: tuple[type[Driver], ...] = (ConfluentDriver, AiokafkaDriver, KafkaPythonDriver)

# kafka-python does not close the socket of a connection that was refused. What we leave open shows as a descriptor.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster.start(str(tmp_path / "data"))
    yield started
    started.broker.stop()


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__.removesuffix("Driver"))
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_client_can(cluster: Cluster, driver: type[Driver], name: str) -> None:
    SCENARIOS[name](driver(str(cluster.address)), cluster)
