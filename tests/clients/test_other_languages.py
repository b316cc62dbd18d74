"""Every scenario through clients of other languages, then groups, transactions and administration through each."""

from __future__ import annotations

import pytest

from tests.clients.driver import EARLIEST, Message
from tests.clients.external_driver import ExternalDriver, ExternalError, ExternalProgram
from tests.clients.scenarios import SCENARIOS, Cluster

GROUP = "group"
PARTITIONS = 4

pytestmark = pytest.mark.timeout(900)  # the first test of a program builds it


@pytest.fixture
def driver(program: ExternalProgram, other_cluster: Cluster) -> ExternalDriver:
    return ExternalDriver(program, str(other_cluster.address))


def messages(*values: str, partition: int = 0) -> list[Message]:
    return [Message(value=value.encode(), partition=partition) for value in values]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_client_can(driver: ExternalDriver, other_cluster: Cluster, name: str) -> None:
    SCENARIOS[name](driver, other_cluster)


def test_members_come_read_commit_and_go(driver: ExternalDriver, other_cluster: Cluster) -> None:
    other_cluster.broker.create_topic("t", PARTITIONS)
    with driver.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send("t", messages("a", "b", partition=partition))
        first = driver.member(GROUP, "t")
        assert first.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        assert len(first.received(2 * PARTITIONS)) == 2 * PARTITIONS
        first.commit()
        assert driver.committed(GROUP, "t") == dict.fromkeys(range(PARTITIONS), 2)
        second = driver.member(GROUP, "t")
        shares = [first.assigned(PARTITIONS // 2)[0], second.assigned(PARTITIONS // 2)[0]]
        assert shares[0] | shares[1] == set(range(PARTITIONS))
        assert driver.group(GROUP) == ("Stable", 2)
        first.leave()
        assert second.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        for partition in range(PARTITIONS):
            producer.send("t", messages("c", partition=partition))
        assert [each.value for each in second.received(PARTITIONS)] == [b"c"] * PARTITIONS
        second.leave()
    assert driver.group(GROUP) == ("Empty", 0)


def test_offsets_of_a_group_are_reset_and_the_group_deleted(driver: ExternalDriver, other_cluster: Cluster) -> None:
    other_cluster.broker.create_topic("t")
    with driver.producer() as producer:
        producer.send("t", messages("a", "b", "c"))
    driver.reset(GROUP, "t", {0: 2})
    assert driver.committed(GROUP, "t") == {0: 2}
    member = driver.member(GROUP, "t")
    assert [each.value for each in member.received(1)] == [b"c"]
    member.leave()
    driver.ask("delete_group", group=GROUP)
    assert driver.committed(GROUP, "t") == {}


def test_transactions_are_committed_and_aborted(driver: ExternalDriver, other_cluster: Cluster) -> None:
    other_cluster.broker.create_topic("t")
    with driver.producer(transactional_id="id") as producer:
        for value, commit in (("a", True), ("b", False), ("c", True)):
            producer.begin()
            producer.send("t", messages(value))
            producer.end(commit=commit)
    read = driver.read("t", 2, starts={0: EARLIEST}, committed=True)
    assert [(each.offset, each.value) for each in read] == [(0, b"a"), (4, b"c")]
    read = driver.read("t", 3, starts={0: EARLIEST})
    assert [each.value for each in read] == [b"a", b"b", b"c"]


def test_a_producer_is_fenced_by_its_successor(driver: ExternalDriver, other_cluster: Cluster) -> None:
    other_cluster.broker.create_topic("t")
    with driver.producer(transactional_id="id") as old:
        old.begin()
        old.send("t", messages("old"))
        with driver.producer(transactional_id="id") as new:
            new.begin()
            new.send("t", messages("new"))
            # sarama has no words for PRODUCER_FENCED
            with pytest.raises(ExternalError, match=r"(?i)fence|epoch|error code = 90"):
                old.end(commit=True)
            new.end(commit=True)
    assert [each.value for each in driver.read("t", 1, starts={0: EARLIEST}, committed=True)] == [b"new"]


def test_records_and_offsets_move_in_one_transaction(driver: ExternalDriver, other_cluster: Cluster) -> None:
    for topic in ("source", "target"):
        other_cluster.broker.create_topic(topic)
    with driver.producer() as producer:
        producer.send("source", messages("a", "b"))
    for commit in (False, True):
        driver.transform(GROUP, "source", "target", 2, transactional_id="mover", commit=commit)
        assert driver.committed(GROUP, "source") == ({0: 2} if commit else {})
    read = driver.read("target", 2, starts={0: EARLIEST}, committed=True)
    assert [each.value for each in read] == [b"a", b"b"]
    assert read[0].offset > 2  # behind what was aborted


def test_topics_are_administered(driver: ExternalDriver) -> None:
    driver.ask("create_topic", topic="made", partitions=2, configs={"retention.ms": "-1"})
    assert driver.partitions("made") == {0, 1}
    assert driver.ask("describe_configs", topic="made")["retention.ms"] == "-1"
    driver.ask("alter_configs", topic="made", configs={"retention.ms": "60000"})
    assert driver.ask("describe_configs", topic="made")["retention.ms"] == "60000"
    driver.ask("add_partitions", topic="made", partitions=3)
    assert driver.partitions("made") == {0, 1, 2}
    with driver.producer() as producer:
        producer.send("made", messages("a", "b", "c"))
    driver.ask("delete_records", topic="made", offsets={"0": 2})
    assert driver.watermarks("made", 0) == (2, 3)
    with pytest.raises(ExternalError, match=r"(?i)exists"):
        driver.ask("create_topic", topic="made", partitions=2, configs={})
    driver.ask("delete_topic", topic="made")
    assert driver.partitions("made") == set()


def test_a_cooperative_member_keeps_what_does_not_move(driver: ExternalDriver, other_cluster: Cluster) -> None:
    if driver.name == "kafkajs":
        pytest.skip("kafkajs has no cooperative assignor")
    if driver.name == "sarama":
        pytest.skip("the program does not drive sarama's cooperative sessions")
    other_cluster.broker.create_topic("t", PARTITIONS)
    first = driver.member(GROUP, "t", assignor="cooperative")
    assert first.assigned(PARTITIONS) == (set(range(PARTITIONS)), 0)
    second = driver.member(GROUP, "t", assignor="cooperative")
    kept, revoked = first.assigned(PARTITIONS // 2)
    assert revoked == PARTITIONS // 2
    assert second.assigned(PARTITIONS // 2) == (set(range(PARTITIONS)) - kept, 0)
    second.leave()
    first.leave()


def test_a_static_member_comes_back_without_a_rebalance(driver: ExternalDriver, other_cluster: Cluster) -> None:
    if driver.name == "kafkajs":
        pytest.skip("kafkajs has no static members")
    other_cluster.broker.create_topic("t", PARTITIONS)
    first = driver.member(GROUP, "t", instance="first")
    first.assigned(PARTITIONS)
    second = driver.member(GROUP, "t", instance="second")
    held, _ = second.assigned(PARTITIONS // 2)
    before = first.assigned(PARTITIONS // 2)
    second.leave()
    second = driver.member(GROUP, "t", instance="second")
    assert second.assigned(PARTITIONS // 2)[0] == held
    assert first.assigned(PARTITIONS // 2) == before
    second.leave()
    first.leave()
