"""What is said of a broker beside a failed test. How pytest shows it is in test_plugin.py."""

from __future__ import annotations

from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.tools.pytest_plugin.report import report_of

from tests.support.kafka_wire import KafkaWire
from tests.support.streams_members import StreamsMember


def test_it_says_why_an_application_of_kafka_streams_does_not_run() -> None:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0)) as broker:
        with KafkaWire.connect(broker.kafka) as client:
            StreamsMember(client).beat()
        lines = report_of(broker).splitlines()
        told = "Streams group app is NotReady with 1 members; MISSING_SOURCE_TOPICS: Source topics topic are missing."
        assert told in lines
        broker.crash()
        assert "the broker is down; restart() starts it again" in report_of(broker).splitlines()
