from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import KafkaException, Producer
from triolog.protocol.records.builder import build_batch
from triolog.server.embedded import BlockingBroker

from tests.kafka.tools import Opened, Row, Tools, table

TOPIC: Final = "orders"
OWNER: Final = "mover"
WITHOUT_OWNER: Final = 4_242
PATIENCE_S: Final = 60.0
LONG_MINUTES: Final = 40
"""Longer than any transaction may be open."""


@pytest.fixture
def broker(broker: BlockingBroker) -> BlockingBroker:
    broker.create_topic(TOPIC, 2)
    broker.append(TOPIC, [b"before"])
    return broker


@pytest.fixture
def producer(broker: BlockingBroker) -> Iterator[Opened]:
    """It has one transaction behind it and one open, at offset 3 of partition 0."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": OWNER, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"committed", partition=0)
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    opened = Opened(producer)
    del producer
    yield opened
    del opened.client


def listed(tools: Tools, *options: object) -> list[Row]:
    return table(tools("transactions", "list", *options), "TransactionalId")


def test_an_open_transaction_is_described_and_ended_by_force(tools: Tools, broker: BlockingBroker, producer: Opened) -> None:
    [row] = listed(tools)
    assert (row["transactionalid"], row["coordinator"], row["transactionstate"]) == (OWNER, "1", "Ongoing")
    assert listed(tools, "--duration-filter", 3_600_000) == []
    assert listed(tools, "--transactional-id-pattern", "mov.*") == [row]
    assert listed(tools, "--transactional-id-pattern", "other.*") == []

    [described] = table(tools("transactions", "describe", "--transactional-id", OWNER), "CoordinatorId")
    assert (described["transactionalid"], described["producerid"]) == (OWNER, row["producerid"])
    assert (described["transactionstate"], described["transactiontimeoutms"]) == ("Ongoing", "60000")
    assert described["topicpartitions"] == f"{TOPIC}-0"
    started = int(described["currenttransactionstarttimems"])
    assert 0 <= time.time() * 1000 - started < PATIENCE_S * 1000

    [writing] = producers(tools)
    assert writing["producerid"] == row["producerid"]
    assert writing["producerepoch"] == described["producerepoch"]
    assert writing["currenttransactionstartoffset"] == "3"

    tools("transactions", "forceTerminateTransaction", "--transactionalId", OWNER)
    [row] = listed(tools)
    assert row["transactionstate"] == "Empty"  # as behind any InitProducerId, which is what the tool sends
    [writing] = producers(tools)
    assert writing["currenttransactionstartoffset"] == "None"
    assert broker.log(TOPIC).values(0) == [b"before", b"committed"]
    with pytest.raises(KafkaException):
        producer.client.commit_transaction(PATIENCE_S)


def producers(tools: Tools) -> list[Row]:
    told = tools("transactions", "describe-producers", "--topic", TOPIC, "--partition", 0)
    return table(told, "ProducerId")


BY_OFFSET: Final = ("--start-offset", 1)
BY_PRODUCER: Final = ("--producer-id", WITHOUT_OWNER, "--producer-epoch", 7, "--coordinator-epoch", 0)


@pytest.mark.parametrize("how", [BY_OFFSET, BY_PRODUCER], ids=["by offset", "by producer"])
def test_a_transaction_that_nobody_owns_is_found_and_aborted(
    tools: Tools, broker: BlockingBroker, producer: Opened, how: tuple[object, ...]
) -> None:
    """The open transaction that has an owner is none of them."""
    long_ago_ms = int(time.time() * 1000) - LONG_MINUTES * 60_000
    lost = build_batch(
        [(long_ago_ms, None, b"lost", ())], producer_id=WITHOUT_OWNER, producer_epoch=7, base_sequence=0, is_transactional=True
    )
    broker.append(TOPIC, [b"before"], partition=1)
    broker.append(TOPIC, lost, partition=1)
    broker.append(TOPIC, [b"behind"], partition=1)
    assert broker.log(TOPIC).values(1) == [b"before"]
    [row] = found(tools)
    assert (row["topic"], row["partition"]) == (TOPIC, "1")
    assert (row["producerid"], row["producerepoch"]) == (str(WITHOUT_OWNER), "7")
    assert (row["startoffset"], row["lasttimestamp"]) == ("1", str(long_ago_ms))
    assert int(row["duration(min)"]) - LONG_MINUTES in (0, 1)

    tools("transactions", "abort", "--topic", TOPIC, "--partition", 1, *how)
    assert found(tools) == []
    assert broker.log(TOPIC).values(1) == [b"before", b"behind"]
    [row] = listed(tools)
    assert row["transactionstate"] == "Ongoing"


def found(tools: Tools) -> list[Row]:
    return table(tools("transactions", "find-hanging", "--broker-id", 1), "Topic")
