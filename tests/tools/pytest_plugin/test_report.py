"""What is said of a broker beside a failed test."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from triolog.server.embedded import BlockingBroker
from triolog.server.settings.broker_config import Address
from triolog.tools.pytest_plugin.report import report_of


def test_a_failed_test_tells_what_a_crashed_broker_was_asked() -> None:
    with BlockingBroker(kafka=Address("127.0.0.1", 0)) as broker:
        broker.create_topic("orders")
        broker.faults.add("Produce", once=True, error="MESSAGE_TOO_LARGE")
        broker.faults.disk("full", path="nowhere/*")
        AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
        broker.crash()
        told = report_of(broker).splitlines()
    assert "the broker is down; restart() starts it again" in told
    assert any(line.startswith("fault #1 fired 0 times") for line in told)
    assert any(line.startswith("disk fault #1 fired 0 times") for line in told)
    assert any(" Metadata v" in line for line in told)
