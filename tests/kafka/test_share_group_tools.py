"""kafka-share-groups: share groups are listed, described and deleted, with their offsets; what it prints is what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from confluent_kafka import ShareConsumer
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.settings.broker_config import Address

from tests.kafka.tools import Tools, lines, table

TOPIC: Final = "orders"
GROUP: Final = "baristas"
PATIENCE_S: Final = 60.0


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
        broker.append(TOPIC, [b"a", b"b", b"c"])
        yield broker


def member(broker: BlockingBroker) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP, "log_level": 0})
    consumer.subscribe([TOPIC])
    return consumer


def test_a_share_group_is_listed_described_and_deleted(tools: Tools, broker: BlockingBroker) -> None:
    earliest = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *earliest)
    with closing(member(broker)) as consumer:
        assert len(consumer.poll(PATIENCE_S)) == 3
        consumer.commit_sync(PATIENCE_S)
        assert lines(tools("share-groups", "--list")) == [GROUP]
        [state] = table(tools("share-groups", "--describe", "--group", GROUP, "--state"))
        assert (state["state"], state["#members"]) == ("Stable", "1")
        [row] = table(tools("share-groups", "--describe", "--group", GROUP, "--members"))
        assert (row["group"], row["host"], row["assignment"]) == (GROUP, "/127.0.0.1", f"{TOPIC}:0")
    [row] = table(tools("share-groups", "--describe", "--group", GROUP))
    assert (row["topic"], row["partition"]) == (TOPIC, "0")
    tools("share-groups", "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    with closing(member(broker)) as consumer:
        assert len(consumer.poll(PATIENCE_S)) == 3
    tools("share-groups", "--delete", "--group", GROUP)
    assert lines(tools("share-groups", "--list")) == []
