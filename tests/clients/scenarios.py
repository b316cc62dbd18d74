"""The rows of the compatibility table: what a client must be able to do, each a function.

A scenario says what it expects in plain asserts and reaches the broker through the client alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.clients import external_programs
from tests.clients.driver import (
    CODECS,
    COOPERATIVE,
    EARLIEST,
    OAUTHBEARER,
    RANGE,
    SERVER,
    Driver,
    Given,
    Member,
    Message,
    Sharer,
    SharingDriver,
)
from tests.clients.external_driver import ExternalDriver
from tests.clients.external_programs import WordCount

START_MS: Final = 1_750_000_000_000
KEPT: Final = {"retention.ms": "-1"}
"""Messages of the scenarios are older than the retention of a week."""


class Broker(StrEnum):
    """Which of the suite's brokers a scenario runs against. All but one are shared by its tests."""

    PLAIN = "plain"
    OWN = "own"
    """One that nobody else uses: the scenario restarts it."""
    TLS = "tls"
    MUTUAL_TLS = "mutual-tls"
    SASL = "sasl"


@attrs.define(eq=False)
class Cell:
    """A client at a broker, for one scenario. Owner: the test."""

    driver: Driver
    prefix: str
    """Nobody else's at this broker."""
    restart: Callable[[], None]
    """Only with a broker of its own."""
    assignor: str = RANGE
    """Of its members, unless the scenario chooses."""

    def member(self, group: str, topic: str, *, instance: str = "") -> Member:
        return self.driver.member(group, topic, instance=instance, assignor=self.assignor)

    def name(self, of: str) -> str:
        """A topic, group or transactional id that nobody else uses."""
        return f"{self.prefix}-{of}"

    def topic(self, of: str = "t", partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        self.driver.create_topic(self.name(of), partitions, {**KEPT, **(configs or {})})
        return self.name(of)


Scenario = Callable[[Cell], None]


@attrs.frozen
class Feature:
    name: str
    scenario: Scenario
    broker: Broker
    mechanism: str | None
    """How the client logs in."""
    assignor: str

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")


FEATURES: Final[dict[str, Feature]] = {}
"""By name, in the order of the table."""


def feature(
    name: str, *, broker: Broker = Broker.PLAIN, mechanism: str | None = None, assignor: str = RANGE
) -> Callable[[Scenario], Scenario]:
    """A row, which may stand above a function more than once."""

    def register(function: Scenario) -> Scenario:
        assert name not in FEATURES, name
        FEATURES[name] = Feature(name, function, broker, mechanism, assignor)
        return function

    return register


def values(count: int, prefix: str = "value") -> list[Message]:
    return [Message(value=f"{prefix}-{number}".encode(), timestamp_ms=START_MS + number) for number in range(count)]


def messages(*texts: str, partition: int = 0) -> list[Message]:
    return [Message(value=text.encode(), partition=partition) for text in texts]


@feature("produce with every codec")
def produce_with_every_codec(cell: Cell) -> None:
    for codec in CODECS:
        topic = cell.topic(codec)
        sent = [Message(value=bytes([number]) * 5000, timestamp_ms=START_MS) for number in range(20)]
        with cell.driver.producer(codec=codec) as producer:
            assert producer.send(topic, sent) == list(range(20))
        assert [each.value for each in cell.driver.read(topic, 20, starts={0: EARLIEST})] == [each.value for each in sent]


@feature("keys, headers, nulls, timestamps")
def keys_headers_nulls_and_timestamps(cell: Cell) -> None:
    topic = cell.topic()
    sent = [
        Message(value=b"v", key=b"k", headers=(("a", b"1"), ("a", b"2"), ("b", b"")), timestamp_ms=START_MS),
        Message(value=None, key=b"tombstone", timestamp_ms=START_MS + 1),
        Message(value=b"no key", timestamp_ms=START_MS + 5),
        Message(value=b"", key=b"", timestamp_ms=START_MS + 2),
        Message(value="grüße".encode(), key="schlüssel".encode(), headers=(("größe", b"\xff\x00"),), timestamp_ms=START_MS),
    ]
    with cell.driver.producer() as producer:
        producer.send(topic, sent)
    found = cell.driver.read(topic, len(sent), starts={0: EARLIEST})
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in found] == [
        (each.key, each.value, each.headers, each.timestamp_ms) for each in sent
    ]


@feature("acks 0, 1 and all")
def acks_none_one_and_all(cell: Cell) -> None:
    for acks in ("0", "1", "all"):
        topic = cell.topic(f"acks-{acks}")
        with cell.driver.producer(acks=acks) as producer:
            offsets = producer.send(topic, values(50))
        assert offsets == ([-1] * 50 if acks == "0" else list(range(50)))
        assert [each.offset for each in cell.driver.read(topic, 50, starts={0: EARLIEST})] == list(range(50))


@feature("topics made by producing")
def a_topic_is_made_by_producing(cell: Cell) -> None:
    topic = cell.name("made")
    with cell.driver.producer() as producer:
        assert producer.send(topic, messages("a", "b", "c")) == [0, 1, 2]
    assert cell.driver.partitions(topic) == {0}


@feature("assign and seek")
def assign_and_seek(cell: Cell) -> None:
    topic = cell.topic()
    with cell.driver.producer() as producer:
        for start in range(0, 100, 10):
            producer.send(topic, values(100)[start : start + 10])
    for offset in (0, 1, 55, 99):
        found = cell.driver.read(topic, 100 - offset, starts={0: offset})
        assert [each.offset for each in found] == list(range(offset, 100))


@feature("seek by time")
def seek_by_time(cell: Cell) -> None:
    topic = cell.topic()
    with cell.driver.producer() as producer:
        for late in (100, 200, 300):
            producer.send(topic, [Message(value=b"x", timestamp_ms=START_MS + late)])
    expected = {0: 0, 100: 0, 101: 1, 150: 1, 200: 1, 250: 2, 300: 2}
    assert {late: cell.driver.offset_for_time(topic, 0, START_MS + late) for late in expected} == expected
    assert cell.driver.offset_for_time(topic, 0, START_MS + 301) is None


@feature("watermarks")
def watermarks(cell: Cell) -> None:
    topic = cell.topic(partitions=2)
    assert cell.driver.watermarks(topic, 0) == (0, 0)
    with cell.driver.producer() as producer:
        producer.send(topic, values(10))
    cell.driver.delete_records(topic, {0: 4})
    assert [cell.driver.watermarks(topic, number) for number in (0, 1)] == [(4, 10), (0, 0)]


@feature("big messages")
def big_messages(cell: Cell) -> None:
    size = 5_000_000
    topic = cell.topic(configs={"max.message.bytes": str(size + 1000)})
    sent = [Message(value=bytes([number]) * size, timestamp_ms=START_MS) for number in range(3)]
    with cell.driver.producer(max_bytes=size + 1000) as producer:
        assert producer.send(topic, sent) == [0, 1, 2]
    assert [each.value for each in cell.driver.read(topic, 3, starts={0: EARLIEST})] == [each.value for each in sent]


@feature("many partitions")
def many_partitions(cell: Cell) -> None:
    count = 100
    topic = cell.topic("wide", count)
    assert cell.driver.partitions(topic) == set(range(count))
    sent = [Message(value=f"{number}".encode(), partition=number % count, timestamp_ms=START_MS) for number in range(3 * count)]
    with cell.driver.producer() as producer:
        producer.send(topic, sent)
    found = cell.driver.read(topic, 3 * count, starts=dict.fromkeys(range(count), EARLIEST))
    assert {(each.partition, each.value) for each in found} == {(each.partition, each.value) for each in sent}


@feature("idempotence across a broker restart", broker=Broker.OWN)
def idempotence_across_a_broker_restart(cell: Cell) -> None:
    """A producer goes on where it was: its sequence numbers are known to the broker that comes back."""
    topic = cell.topic()
    with cell.driver.producer(idempotent=True) as producer:
        for number in range(3):
            if number:
                cell.restart()
            assert producer.send(topic, values(10, f"run-{number}")) == list(range(10 * number, 10 * number + 10))
    expected = [f"run-{number}-{each}".encode() for number in range(3) for each in range(10)]
    assert [each.value for each in cell.driver.read(topic, 30, starts={0: EARLIEST})] == expected


PARTITIONS = 4


@feature("groups: members come, read, commit and go (KIP-848)", assignor=SERVER)
@feature("groups: members come, read, commit and go")
def members_come_read_commit_and_go(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic(partitions=PARTITIONS)
    with driver.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, messages("a", "b", partition=partition))
        first = cell.member(group, topic)
        assert first.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        assert len(first.received(2 * PARTITIONS)) == 2 * PARTITIONS
        first.commit()
        assert driver.committed(group, topic) == dict.fromkeys(range(PARTITIONS), 2)
        second = cell.member(group, topic)
        shares = [first.assigned(PARTITIONS // 2)[0], second.assigned(PARTITIONS // 2)[0]]
        assert shares[0] | shares[1] == set(range(PARTITIONS))
        assert driver.group(group) == ("Stable", 2)
        first.leave()
        assert second.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        for partition in range(PARTITIONS):
            producer.send(topic, messages("c", partition=partition))
        assert [each.value for each in second.received(PARTITIONS)] == [b"c"] * PARTITIONS
        second.leave()
    assert driver.group(group) == ("Empty", 0)


@feature("groups: static members (KIP-848)", assignor=SERVER)
@feature("groups: static members")
def a_static_member_comes_back_without_a_rebalance(cell: Cell) -> None:
    group, topic = cell.name("group"), cell.topic(partitions=PARTITIONS)
    first = cell.member(group, topic, instance="first")
    first.assigned(PARTITIONS)
    second = cell.member(group, topic, instance="second")
    held, _ = second.assigned(PARTITIONS // 2)
    before = first.assigned(PARTITIONS // 2)
    second.leave()
    second = cell.member(group, topic, instance="second")
    assert second.assigned(PARTITIONS // 2)[0] == held
    assert first.assigned(PARTITIONS // 2) == before
    second.leave()
    first.leave()


@feature("groups: cooperative rebalances")
def a_cooperative_member_keeps_what_does_not_move(cell: Cell) -> None:
    _two_members_keep_what_they_may(cell, COOPERATIVE)


@feature("groups: assignments by the server (KIP-848)")
def a_member_of_the_servers_groups_keeps_what_does_not_move(cell: Cell) -> None:
    _two_members_keep_what_they_may(cell, SERVER)


def _two_members_keep_what_they_may(cell: Cell, assignor: str) -> None:
    """Two partitions move to a second member, once; when it leaves they come back, and what was committed is kept."""
    driver, group, topic = cell.driver, cell.name("group"), cell.topic(partitions=PARTITIONS)
    with driver.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, messages("a", partition=partition))
    first = driver.member(group, topic, assignor=assignor)
    assert first.assigned(PARTITIONS) == (set(range(PARTITIONS)), 0)
    assert len(first.received(PARTITIONS)) == PARTITIONS
    first.commit()
    second = driver.member(group, topic, assignor=assignor)
    kept, revoked = first.assigned(PARTITIONS // 2)
    assert revoked == PARTITIONS // 2
    assert second.assigned(PARTITIONS // 2) == (set(range(PARTITIONS)) - kept, 0)
    second.leave()
    assert first.assigned(PARTITIONS) == (set(range(PARTITIONS)), PARTITIONS // 2)
    first.leave()
    assert driver.committed(group, topic) == dict.fromkeys(range(PARTITIONS), 1)


@feature("groups: a rolling change of the protocol (KIP-848)")
def members_change_to_the_servers_groups_and_back_one_by_one(cell: Cell) -> None:
    for assignor in (RANGE, COOPERATIVE):
        _roll(cell, assignor)


def _roll(cell: Cell, assignor: str) -> None:
    """A classic member, one that the server assigns to, a classic one again: each hands its partitions over to the next, and
    reads every record once."""
    driver, group, topic = cell.driver, cell.name(f"group-{assignor}"), cell.topic(assignor, partitions=PARTITIONS)
    before = None
    for round_, each in enumerate((assignor, SERVER, assignor)):
        member = driver.member(group, topic, assignor=each)
        if before is not None:
            kept, _ = before.assigned(PARTITIONS // 2)
            assert member.assigned(PARTITIONS // 2)[0] == set(range(PARTITIONS)) - kept
            before.leave()
        assert member.assigned(PARTITIONS)[0] == set(range(PARTITIONS))
        with driver.producer() as producer:
            for partition in range(PARTITIONS):
                producer.send(topic, messages(f"{round_}", partition=partition))
        assert [record.value for record in member.received(PARTITIONS)] == [str(round_).encode()] * PARTITIONS
        member.commit()
        before = member
    assert before is not None
    before.leave()
    assert driver.committed(group, topic) == dict.fromkeys(range(PARTITIONS), 3)


@feature("groups: offsets are reset (KIP-848)", assignor=SERVER)
@feature("groups: offsets are reset")
def offsets_of_a_group_are_reset(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic()
    with driver.producer() as producer:
        producer.send(topic, messages("a", "b", "c"))
    driver.reset(group, topic, {0: 2})
    assert driver.committed(group, topic) == {0: 2}
    member = cell.member(group, topic)
    assert [each.value for each in member.received(1)] == [b"c"]
    member.leave()


@feature("groups: deleted")
def a_group_is_deleted(cell: Cell) -> None:
    driver, group, topic = cell.driver, cell.name("group"), cell.topic()
    driver.reset(group, topic, {0: 0})
    assert driver.committed(group, topic) == {0: 0}
    driver.delete_group(group)
    assert driver.committed(group, topic) == {}


VALUES = ("a", "b", "c", "d")


def _sharing(cell: Cell, **configs: str) -> SharingDriver:
    driver = cell.driver
    assert isinstance(driver, SharingDriver)
    driver.configure_group(cell.name("group"), {"share.auto.offset.reset": "earliest", **configs})
    return driver


def _filled(cell: Cell) -> str:
    topic = cell.topic()
    with cell.driver.producer() as producer:
        producer.send(topic, messages(*VALUES))
    return topic


def _given(sharer: Sharer, wanted: Collection[int]) -> dict[int, Given]:
    """Polls until it has all of these offsets, which it was given once; says nothing of them."""
    given: list[Given] = []
    while len(given) < len(wanted):
        given += sharer.poll()
    assert sorted(each.offset for each in given) == sorted(wanted)
    return {each.offset: each for each in given}


@feature("share groups: accepted, given back, rejected")
def what_is_given_back_comes_again(cell: Cell) -> None:
    driver, group, topic = _sharing(cell), cell.name("group"), _filled(cell)
    sharer = driver.sharer(group, topic)
    given = _given(sharer, range(4))
    assert [(given[offset].value, given[offset].deliveries) for offset in given] == [(each.encode(), 1) for each in VALUES]
    assert sharer.acknowledge([(0, 0, "accept"), (0, 1, "release"), (0, 2, "reject"), (0, 3, "release")]) == []
    again = _given(sharer, [1, 3])
    assert [each.deliveries for each in again.values()] == [2, 2]
    assert sharer.acknowledge([(0, 1, "accept"), (0, 3, "accept")]) == []
    with cell.driver.producer() as producer:
        producer.send(topic, messages("e"))
    assert _given(sharer, [4])[4].deliveries == 1
    assert sharer.acknowledge([(0, 4, "accept")]) == []
    sharer.leave()


@feature("share groups: what a member had that leaves, others get")
def what_a_member_had_that_leaves_others_get(cell: Cell) -> None:
    driver, group, topic = _sharing(cell), cell.name("group"), _filled(cell)
    first = driver.sharer(group, topic)
    given = _given(first, range(4))
    assert first.acknowledge([(0, 0, "accept"), (0, 1, "release"), (0, 2, "release"), (0, 3, "release")]) == []
    assert given[0].deliveries == 1
    first.leave()
    second = driver.sharer(group, topic)
    again = _given(second, [1, 2, 3])
    assert all(each.deliveries >= 2 for each in again.values())
    assert second.acknowledge([(0, offset, "accept") for offset in again]) == []
    second.leave()


@feature("share groups: accepted by the next poll")
def what_is_said_by_itself(cell: Cell) -> None:
    driver, group, topic = _sharing(cell), cell.name("group"), _filled(cell)
    sharer = driver.sharer(group, topic, explicit=False)
    _given(sharer, range(4))
    with cell.driver.producer() as producer:
        producer.send(topic, messages("e"))
    assert _given(sharer, [4])[4].deliveries == 1
    assert sharer.acknowledge() == []
    sharer.leave()
    with cell.driver.producer() as producer:
        producer.send(topic, messages("f"))
    other = driver.sharer(group, topic, explicit=False)
    assert _given(other, [5])[5].deliveries == 1
    assert other.acknowledge() == []
    other.leave()


@feature("share groups: rejected, into the dead-letter queue (KIP-1191)")
def what_is_rejected_is_in_the_dead_letter_queue(cell: Cell) -> None:
    queue = f"dlq.{cell.name('queue')}"
    keys = {"errors.deadletterqueue.topic.name": queue, "errors.deadletterqueue.copy.record.enable": "true"}
    cell.driver.create_topic(queue, 1, {**KEPT, "errors.deadletterqueue.group.enable": "true"})
    sharer = _sharing(cell, **keys).sharer(cell.name("group"), topic := _filled(cell))
    _given(sharer, range(4))
    assert sharer.acknowledge([(0, 0, "accept"), (0, 1, "reject"), (0, 2, "accept"), (0, 3, "reject")]) == []
    found = cell.driver.read(queue, 2, starts={0: EARLIEST})
    assert [each.value for each in found] == [b"b", b"d"]
    headers = [dict(each.headers) for each in found]
    assert [(each["__dlq.errors.topic"], each["__dlq.errors.offset"]) for each in headers] == [
        (topic.encode(), b"1"),
        (topic.encode(), b"3"),
    ]
    sharer.leave()


@feature("Streams groups: words are counted (KIP-1071)")
def an_application_counts_words(cell: Cell) -> None:
    """Only Kafka Streams has such groups: each version of Java's client is asked with the one that came with it."""
    driver = cell.driver
    assert isinstance(driver, ExternalDriver)
    program = external_programs.streams(driver.program.ask("version"))
    words, counts = cell.topic("words", 2), cell.topic("counts")
    with cell.driver.producer() as producer:
        producer.send(words, messages("a b a", "c") + messages("b a", partition=1))
    with tempfile.TemporaryDirectory() as folder:
        started = WordCount.start(
            program, driver.bootstrap, Path(folder), name=cell.name("application"), topics=(words, counts)
        )
        with started:
            told: dict[bytes | None, bytes | None] = {}
            start = 0
            while told != {b"a": b"3", b"b": b"2", b"c": b"1"}:
                for record in driver.read(counts, 1, starts={0: start}):
                    told[record.key] = record.value
                    start = record.offset + 1
            started.stop()


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


@feature("SASL OAUTHBEARER", broker=Broker.SASL, mechanism=OAUTHBEARER)
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
