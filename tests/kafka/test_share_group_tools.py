from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from confluent_kafka import ShareConsumer
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.kafka.tools import Tools, lines, table

TOPIC: Final = "orders"
GROUP: Final = "baristas"
PATIENCE_S: Final = 60.0
EARLIEST: Final = ("--alter", "--add-config", "share.auto.offset.reset=earliest")


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
    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *EARLIEST)
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


def test_the_console_reads_what_the_group_was_reset_to(tools: Tools, broker: BlockingBroker) -> None:
    def read(count: int) -> list[str]:
        return lines(tools("console-share-consumer", "--topic", TOPIC, "--group", GROUP, "--max-messages", count))

    def reset(*to: str) -> None:
        [row] = table(tools("share-groups", "--reset-offsets", "--group", GROUP, "--topic", TOPIC, *to, "--execute"))
        assert (row["topic"], row["partition"]) == (TOPIC, "0")

    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *EARLIEST)
    assert read(3) == ["a", "b", "c"]
    broker.append(TOPIC, [b"d"])
    assert read(1) == ["d"]
    reset("--to-earliest")
    assert read(4) == ["a", "b", "c", "d"]
    reset("--to-latest")
    broker.append(TOPIC, [b"e"])
    assert read(1) == ["e"]


def test_what_the_console_releases_comes_again_and_what_it_rejects_is_done(tools: Tools, broker: BlockingBroker) -> None:
    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *EARLIEST)
    options = ("--topic", TOPIC, "--group", GROUP, "--max-messages", 3)
    assert lines(tools("console-share-consumer", *options, "--release")) == ["a", "b", "c"]
    [row] = table(tools("share-groups", "--describe", "--group", GROUP))
    assert row["lag"] == "3"
    assert lines(tools("console-share-consumer", *options, "--reject")) == ["a", "b", "c"]
    [row] = table(tools("share-groups", "--describe", "--group", GROUP))
    assert row["lag"] == "0"
