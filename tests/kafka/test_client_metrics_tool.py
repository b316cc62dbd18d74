from __future__ import annotations

from collections.abc import Iterator

import pytest
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.kafka.tools import Tools, lines

NAME = ("--name", "producers")
WANTED = ("--metrics", "org.apache.kafka.producer.", "--interval", "100", "--match", "client_software_name=apache-kafka-java")


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=["t"], telemetry=True) as broker:
        yield broker


def test_subscriptions_are_made_listed_described_and_deleted(tools: Tools) -> None:
    tools("client-metrics", "--alter", *NAME, *WANTED)
    assert lines(tools("client-metrics", "--list")) == ["producers"]
    told = tools("client-metrics", "--describe", *NAME)
    for part in ("metrics=org.apache.kafka.producer.", "interval.ms=100", "match=client_software_name=apache-kafka-java"):
        assert part in told
    tools("client-metrics", "--delete", *NAME)
    assert lines(tools("client-metrics", "--list")) == []


def test_what_javas_producer_sends_is_there(tools: Tools, broker: BlockingBroker) -> None:
    tools("client-metrics", "--alter", *NAME, *WANTED)
    sizes = ("--num-records", "100", "--record-size", "10", "--throughput", "100")  # a second, in which it sends some
    tools.plain("producer-perf-test", "--topic", "t", *sizes, "--producer-props", f"bootstrap.servers={broker.kafka}")
    pushed = broker.requests.wait_for("PushTelemetry", answered=True)
    assert all(not each.errors for each in pushed)
    series = broker.call_now(lambda: list(broker._target.core.telemetry.collected.series(0)))
    names = {each.metric for each in series if each.client["client_software_name"] == "apache-kafka-java"}
    assert names
    assert all(name.startswith("org.apache.kafka.producer.") for name in names)
