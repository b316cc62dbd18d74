"""Transactions, administration, and ways to get in: rows of the compatibility table."""

from __future__ import annotations

import pytest

from tests.clients.driver import EARLIEST
from tests.clients.features import Broker, Cell, feature, messages

# sarama has no words for PRODUCER_FENCED
FENCED = r"(?i)fence|epoch|error code = 90"


@feature("transactions: committed and aborted")
def transactions_are_committed_and_aborted(cell: Cell) -> None:
    driver, topic = cell.driver, cell.topic()
    with driver.producer(transactional_id=cell.name("id")) as producer:
        for value, commit in (("a", True), ("b", False), ("c", True)):
            producer.begin()
            producer.send(topic, messages(value))
            producer.end(commit=commit)
    read = driver.read(topic, 2, starts={0: EARLIEST}, committed=True)
    assert [(each.offset, each.value) for each in read] == [(0, b"a"), (4, b"c")]
    read = driver.read(topic, 3, starts={0: EARLIEST})
    assert [each.value for each in read] == [b"a", b"b", b"c"]


@feature("transactions: fenced by a successor")
def a_producer_is_fenced_by_its_successor(cell: Cell) -> None:
    driver, topic, transactional_id = cell.driver, cell.topic(), cell.name("id")
    with driver.producer(transactional_id=transactional_id) as old:
        old.begin()
        old.send(topic, messages("old"))
        with driver.producer(transactional_id=transactional_id) as new:
            new.begin()
            new.send(topic, messages("new"))
            with pytest.raises(Exception, match=FENCED):
                old.end(commit=True)
            new.end(commit=True)
    assert [each.value for each in driver.read(topic, 1, starts={0: EARLIEST}, committed=True)] == [b"new"]


@feature("transactions: consume, transform, produce")
def records_and_offsets_move_in_one_transaction(cell: Cell) -> None:
    driver, group, source, target = cell.driver, cell.name("group"), cell.topic("source"), cell.topic("target")
    with driver.producer() as producer:
        producer.send(source, messages("a", "b"))
    for commit in (False, True):
        driver.transform(group, source, target, 2, transactional_id=cell.name("mover"), commit=commit)
        assert driver.committed(group, source) == ({0: 2} if commit else {})
    read = driver.read(target, 2, starts={0: EARLIEST}, committed=True)
    assert [each.value for each in read] == [b"a", b"b"]
    assert read[0].offset > 2  # behind what was aborted


@feature("administration of topics")
def topics_are_administered(cell: Cell) -> None:
    driver, topic = cell.driver, cell.name("made")
    driver.create_topic(topic, 2, {"retention.ms": "-1"})
    assert driver.partitions(topic) == {0, 1}
    assert driver.describe_configs(topic)["retention.ms"] == "-1"
    driver.alter_configs(topic, {"retention.ms": "60000"})
    assert driver.describe_configs(topic)["retention.ms"] == "60000"
    driver.add_partitions(topic, 3)
    assert driver.partitions(topic) == {0, 1, 2}
    with driver.producer() as producer:
        producer.send(topic, messages("a", "b", "c"))
    driver.delete_records(topic, {0: 2})
    assert driver.watermarks(topic, 0) == (2, 3)
    with pytest.raises(Exception, match=r"(?i)exists"):
        driver.create_topic(topic, 2, {})
    driver.delete_topic(topic)
    assert driver.partitions(topic) == set()


@feature("SASL SCRAM-SHA-512", broker=Broker.SASL, mechanism="SCRAM-SHA-512")
@feature("SASL SCRAM-SHA-256", broker=Broker.SASL, mechanism="SCRAM-SHA-256")
@feature("SASL PLAIN", broker=Broker.SASL, mechanism="PLAIN")
@feature("TLS with the client's certificate", broker=Broker.MUTUAL_TLS)
@feature("TLS", broker=Broker.TLS)
def a_client_gets_in(cell: Cell) -> None:
    """Administration, producing and reading, which are connections of their own."""
    topic = cell.topic()
    with cell.driver.producer() as producer:
        assert producer.send(topic, messages("a", "b")) == [0, 1]
    assert [each.value for each in cell.driver.read(topic, 2, starts={0: EARLIEST})] == [b"a", b"b"]
