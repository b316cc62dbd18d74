"""DescribeClientQuotas and AlterClientQuotas: what Kafka 4.3.1 takes and refuses, and what is there afterwards. What a client
that is above its quota gets, and when it is read from again. Time is the broker's clock, which tests move."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support import kafka_quotas as quotas
from tests.support.brokers import until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_quotas import (
    ADDRESS,
    ANY,
    CONNECTIONS,
    EXACT,
    FETCHED,
    MUTATIONS,
    PERCENT,
    PRODUCED,
    USER,
    Parts,
    altered,
    altering,
    asking,
    described,
    mutated,
    mutations,
)
from tests.support.kafka_server import (
    TOPIC,
    KafkaServer,
    batch,
    fetch_partition,
    fetch_request,
    kafka_server,
    produce_request,
    produced,
)
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import CLIENT_ID, KafkaWire, ask, frame

DEFAULTS: quotas.Parts = [("user", None), ("client-id", None)]
STORED: list[tuple[quotas.Parts, quotas.Values]] = [
    (USER, [(PRODUCED, 1.0), (quotas.FETCHED, 2.0)]),
    (quotas.BOTH, [(quotas.PERCENT, 0.5)]),
    (DEFAULTS, [(quotas.MUTATIONS, 3.0)]),
    (ADDRESS, [(CONNECTIONS, 4.0)]),
]
NAMES = {"user": USER, "both": quotas.BOTH, "defaults": DEFAULTS, "address": ADDRESS}


async def found(client: KafkaStream, *components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
    """Which of the stored entities are described."""
    answer = await client.call(asking(*components, strict=strict), 1)
    code, entries = described(answer)
    assert code == "NONE"
    by_parts = {frozenset(parts): name for name, parts in NAMES.items()}
    return {by_parts[each] for each in entries or ()}


@pytest.mark.parametrize("version", range(2))
async def test_quotas_are_described_as_they_were_set_also_after_a_restart(fast_path: Path, version: int) -> None:
    expected = "NONE", {frozenset(parts): dict(values) for parts, values in STORED}
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert described(await client.call(asking(), version)) == ("NONE", None)
        assert set(altered(await client.call(altering(*STORED), version)).values()) == {"NONE"}
        assert described(await client.call(asking(), version)) == expected
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert described(await client.call(asking(), version)) == expected
        assert kafka.broker.security.quotas.is_active
        await client.call(altering(*((parts, [(key, None) for key, _ in values]) for parts, values in STORED)), version)
        assert described(await client.call(asking(), version)) == ("NONE", None)
        assert not kafka.broker.security.quotas.is_active


DESCRIBED: list[tuple[quotas.Components, list[str], list[str]]] = [
    ([], ["user", "both", "defaults", "address"], []),
    ([("user", ANY, None)], ["user", "both", "defaults"], ["user"]),
    ([("user", EXACT, "u")], ["user", "both"], ["user"]),
    ([("user", quotas.DEFAULT, None)], ["defaults"], []),
    ([("client-id", ANY, None)], ["both", "defaults"], []),
    ([("client-id", EXACT, "other")], [], []),
    ([("user", ANY, None), ("client-id", EXACT, "c")], ["both"], ["both"]),
    ([("ip", ANY, None)], ["address"], ["address"]),
    ([("ip", EXACT, "1.2.3.4")], ["address"], ["address"]),
    ([("ip", quotas.DEFAULT, None)], [], []),
]
"""What is asked for -> which of the stored entities are described, loosely and strictly."""


async def test_entities_are_described_that_have_what_is_asked_for(client: KafkaStream) -> None:
    await client.call(altering(*STORED), 1)
    for components, loosely, strictly in DESCRIBED:
        assert await found(client, *components) == set(loosely), components
        assert await found(client, *components, strict=True) == set(strictly), components


SENSELESS: list[tuple[quotas.Components, str]] = [
    ([("group", EXACT, "x")], "UNSUPPORTED_VERSION"),
    ([("", EXACT, "x")], "INVALID_REQUEST"),
    ([("user", 7, "x")], "INVALID_REQUEST"),
    ([("user", EXACT, None)], "INVALID_REQUEST"),
    ([("user", quotas.DEFAULT, "x")], "INVALID_REQUEST"),
    ([("user", ANY, None), ("user", ANY, None)], "INVALID_REQUEST"),
    ([("user", ANY, None), ("ip", ANY, None)], "INVALID_REQUEST"),
]


async def test_a_question_that_makes_no_sense_is_refused(client: KafkaStream) -> None:
    for components, error in SENSELESS:
        answer = await client.call(asking(*components), 1)
        assert (ErrorCode(answer.error_code).name, answer.entries) == (error, None), components
        assert answer.error_message, components


NO_QUOTAS: list[tuple[quotas.Parts, quotas.Values]] = [
    ([], [(PRODUCED, 1.0)]),
    ([("group", "x")], [(PRODUCED, 1.0)]),
    ([("group", "x")], [(PRODUCED, None)]),
    ([("user", "")], [(PRODUCED, 1.0)]),
    ([("ip", "1.2.3.4"), ("user", "u")], [(CONNECTIONS, 1.0)]),
    ([("ip", "localhost")], [(CONNECTIONS, 1.0)]),
    (ADDRESS, [(PRODUCED, 1.0)]),
    (USER, [(CONNECTIONS, 1.0)]),
    (USER, [("bogus", 1.0)]),
    (USER, [("SCRAM-SHA-256", 1.0)]),
    (USER, [(PRODUCED, 0.0)]),
    (USER, [(quotas.PERCENT, -1.0)]),
    (USER, [(PRODUCED, 0.5)]),
    (USER, [(quotas.FETCHED, 1e300)]),
    (USER, [(quotas.PERCENT, float("nan"))]),
    (ADDRESS, [(CONNECTIONS, 2.0**31)]),
    (USER, [(PRODUCED, 1.0), ("bogus", 1.0)]),
    (USER, [(PRODUCED, 1.0), (PRODUCED, 2.0)]),
]


async def test_what_cannot_be_a_quota_is_refused_and_changes_nothing(client: KafkaStream) -> None:
    beside: quotas.Parts = [("user", "beside")]
    for parts, values in NO_QUOTAS:
        answer = await client.call(altering((parts, values), (beside, [(PRODUCED, 9.0)])), 1)
        assert altered(answer) == {frozenset(parts): "INVALID_REQUEST", frozenset(beside): "NONE"}, values
        assert described(await client.call(asking(), 1)) == ("NONE", {frozenset(beside): {PRODUCED: 9.0}}), values


async def test_an_entity_named_twice_is_refused_once_of_a_type_named_twice_the_last_name_counts(client: KafkaStream) -> None:
    answer = await client.call(
        altering((quotas.TWICE, [(PRODUCED, 5.0)]), (USER, [(PRODUCED, 1.0)]), (quotas.TWICE, [(quotas.FETCHED, 6.0)])), 1
    )
    assert altered(answer) == {frozenset(quotas.TWICE): "INVALID_REQUEST", frozenset(USER): "NONE"}
    assert len(answer.entries) == 2
    assert described(await client.call(asking(), 1)) == ("NONE", {frozenset(USER): {PRODUCED: 1.0}})
    answer = await client.call(altering(([("user", "a"), ("user", "b")], [(PRODUCED, 1.0)])), 1)
    assert altered(answer) == {frozenset({("user", "b")}): "NONE"}


async def test_removing_what_is_not_there_and_validating_change_nothing(client: KafkaStream) -> None:
    answer = await client.call(altering((USER, [("bogus", None), (PRODUCED, None)]), (ADDRESS, [])), 1)
    assert set(altered(answer).values()) == {"NONE"}
    bodies = [(USER, [(PRODUCED, 1.0)]), (quotas.BOTH, [(PRODUCED, 0.0)])]
    answer = await client.call(altering(*bodies, validate_only=True), 1)
    assert list(altered(answer).values()) == ["NONE", "INVALID_REQUEST"]
    assert described(await client.call(asking(), 1)) == ("NONE", None)


async def test_changes_of_several_clients_at_once_are_all_kept(kafka: KafkaServer, client: KafkaStream) -> None:
    async with kafka.connected() as other:
        await client.send(altering((USER, [(PRODUCED, 1.0)])), 1)
        await other.send(altering((USER, [(quotas.FETCHED, 2.0)])), 1)
        await client.receive()
        await other.receive()
    assert described(await client.call(asking(), 1)) == ("NONE", {frozenset(USER): {PRODUCED: 1.0, quotas.FETCHED: 2.0}})


MINE: Parts = [("client-id", CLIENT_ID)]
METADATA = ask("Metadata", topics=None, include_cluster_authorized_operations=False, include_topic_authorized_operations=False)
KILOBYTES = batch("x" * 20_000)


@pytest.fixture
def wire(broker: BlockingBroker) -> Iterator[KafkaWire]:
    with KafkaWire.connect(broker.kafka) as client:
        yield client


def limit(client: KafkaWire, key: str, bound: float | None, parts: Parts = MINE) -> None:
    [entry] = client.call(altering((parts, [(key, bound)])), 1).entries
    assert entry.error_code == 0


def is_answered(client: KafkaWire) -> bool:
    readable, _, _ = select.select([client.socket], [], [], 0)
    return bool(readable)


def throttled_ms(size: int, bound: float) -> int:
    """Of a first burst of so many bytes."""
    return round((size / 10 - bound) / bound * 10_000)


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_produce_above_the_quota_is_stored_and_its_client_told_for_how_long(wire: KafkaWire, version: int) -> None:
    limit(wire, PRODUCED, 100)
    body = produce_request(KILOBYTES, topic=TOPIC)
    answer = wire.call(body, version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms == throttled_ms(len(frame(body, version, 0)) - 4, 100)


@pytest.mark.parametrize("acks", [-1, 0])
def test_nothing_more_is_taken_from_it_until_the_time_is_over(broker: BlockingBroker, wire: KafkaWire, acks: int) -> None:
    """Both requests are there at once, so that one that is not muted takes both in one turn."""
    limit(wire, PRODUCED, 100)
    body = produce_request(KILOBYTES, topic=TOPIC, acks=acks)
    wire.send_raw(frame(body, 9, 1) + frame(METADATA, 9, 2))
    if acks:
        wire.receive_frame()
    while not broker.requests.find("Produce", answered=True):
        """Asked again: with acks 0 nobody says that it was taken."""
    with KafkaWire.connect(broker.kafka) as other:
        other.call(METADATA, 9)
        broker.clock.advance(100)
        other.call(METADATA, 9)
        assert len(broker.requests.find("Metadata")) == 2
        assert not is_answered(wire)
    broker.clock.advance(200)
    assert wire.receive_frame()


def one_batch(offset: int, **fields: Any) -> Any:
    return fetch_request(fetch_partition(offset, max_bytes=1), topic=TOPIC, **fields)


def fetch(client: KafkaWire, offset: int, **fields: Any) -> Any:
    return client.call(one_batch(offset, **fields), 12)


def fetched(answer: Any) -> list[int]:
    return [len(each.records) for topic in answer.responses for each in topic.partitions]


def test_a_fetch_above_the_quota_has_no_records_until_the_time_is_over(broker: BlockingBroker, wire: KafkaWire) -> None:
    for _ in range(3):
        wire.call(produce_request(KILOBYTES, topic=TOPIC), 9)
    limit(wire, FETCHED, 3000)
    first = fetch(wire, 0)
    assert (fetched(first), first.throttle_time_ms) == ([len(KILOBYTES)], 0)
    second = fetch(wire, 1)
    assert (fetched(second), second.error_code, second.session_id) == ([], 0, 0)
    assert 0 < second.throttle_time_ms <= throttled_ms(2 * len(KILOBYTES), 3000)
    wire.send(one_batch(1), 12)
    broker.clock.advance(12)
    third = wire.receive()
    assert (fetched(third), third.throttle_time_ms) == ([len(KILOBYTES)], 0)


def test_a_fetch_session_goes_on_behind_a_throttled_answer(broker: BlockingBroker, wire: KafkaWire) -> None:
    wire.call(produce_request(KILOBYTES, topic=TOPIC), 9)
    limit(wire, FETCHED, 3000)
    opened = fetch(wire, 0, session_epoch=0)
    assert opened.session_id
    wire.call(produce_request(KILOBYTES, topic=TOPIC), 9)
    answer = fetch(wire, 1, session_id=opened.session_id, session_epoch=1)
    assert (fetched(answer), answer.session_id, answer.error_code) == ([], opened.session_id, 0)
    assert answer.throttle_time_ms > 0
    wire.send(one_batch(1, session_id=opened.session_id, session_epoch=2), 12)
    broker.clock.advance(12)
    answer = wire.receive()
    assert (fetched(answer), answer.session_id, answer.throttle_time_ms) == ([len(KILOBYTES)], opened.session_id, 0)


def test_a_fetch_reads_no_more_at_once_than_the_quota_gives_in_ten_seconds(wire: KafkaWire) -> None:
    small = batch("x" * 2000)
    for _ in range(10):
        wire.call(produce_request(small, topic=TOPIC), 9)
    limit(wire, FETCHED, 500)
    assert fetched(wire.call(fetch_request(fetch_partition(0), topic=TOPIC), 12)) == [5000]


@pytest.mark.parametrize("version", [9, 12])
def test_a_request_that_took_too_much_time_is_answered_and_its_client_quiet_for_a_second_at_most(
    broker: BlockingBroker, wire: KafkaWire, version: int
) -> None:
    limit(wire, PERCENT, 1e-9)
    assert wire.call(METADATA, version).throttle_time_ms == 1000
    wire.send(METADATA, version)
    assert not is_answered(wire)
    broker.clock.advance(1)
    assert wire.receive().throttle_time_ms == 1000


def test_the_wait_of_a_long_poll_is_no_time_that_counts(broker: BlockingBroker, wire: KafkaWire) -> None:
    """Four seconds of a second's hundred percent would be far above it."""
    limit(wire, PERCENT, 10)
    wire.send(fetch_request(fetch_partition(0), topic=TOPIC, max_wait_ms=100_000, min_bytes=1), 12)
    while not is_answered(wire):
        """Moved again: a wait that had not begun when the clock was moved ends with a later move."""
        broker.clock.advance(100)
    assert wire.receive().throttle_time_ms == 0


def test_an_address_that_connects_too_often_is_not_served(broker: BlockingBroker, wire: KafkaWire) -> None:
    limit(wire, CONNECTIONS, 1, [("ip", None)])
    connections = [KafkaWire.connect(broker.kafka) for _ in range(12)]
    try:
        for each in connections[:10]:
            each.call(METADATA, 9)
        for each in connections[10:]:
            each.send(METADATA, 9)
        broker.clock.advance(1)
        assert all(each.is_closed_by_server() for each in connections[10:])
        wire.call(METADATA, 9)
    finally:
        for each in connections:
            each.close()
    broker.clock.advance(12)
    with KafkaWire.connect(broker.kafka) as later:
        later.call(METADATA, 9)


async def test_a_stop_does_not_wait_for_who_is_quiet(fast_path: Path) -> None:
    async with kafka_server(fast_path) as kafka:
        await kafka.broker.topics.create(TOPIC, 1)
        async with kafka.connected() as client:
            await client.call(altering((MINE, [(PRODUCED, 1)])), 1)
            await produced(client, KILOBYTES)
            await client.send(METADATA, 9, expects_answer=False)
            with trio.fail_after(30):
                kafka.listener.stop(25.0)
                assert await client.is_closed_by_server()


async def test_a_produce_that_has_expired_is_charged_once(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.server.loop.reactor.CHECK_S", 0.01)
    gate = GateFileSystem()
    async with kafka_server(fast_path, fs=gate) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC, 1)
        await client.call(altering((MINE, [(PRODUCED, 100)])), 1)
        counted = kafka.broker.security.quotas.statistics.throttled
        with gate.hold("write", f"{TOPIC}-0/00000000000000000000.log"):
            answer = await client.call(produce_request(KILOBYTES, topic=TOPIC, timeout_ms=0), 9)
            assert answer.throttle_time_ms > 0
            assert counted == {PRODUCED: 1}
        partition = TopicPartition(TOPIC, 0)
        await until(lambda: kafka.broker.reader.snapshot(partition).log_end_offset == 1)
        await trio.testing.wait_all_tasks_blocked()
        assert counted == {PRODUCED: 1}


def test_who_changes_too_many_partitions_is_refused_until_they_are_paid_for(broker: BlockingBroker, wire: KafkaWire) -> None:
    limit(wire, MUTATIONS, 0.1)
    made, *others = mutations(is_strict=True)
    assert mutated(wire.call(*made)) == ["NONE"]
    for body, version in others:
        with KafkaWire.connect(broker.kafka) as another:
            answer = another.call(body, version)
            assert mutated(answer) == ["THROTTLING_QUOTA_EXCEEDED"]
            assert 0 < answer.throttle_time_ms <= 9_000
    for body, version in others[1:]:
        broker.clock.advance(60)
        assert mutated(wire.call(body, version)) == ["NONE"]


def test_who_does_not_know_the_error_is_told_to_be_quiet_and_served(broker: BlockingBroker, wire: KafkaWire) -> None:
    limit(wire, MUTATIONS, 0.1)
    for body, version in mutations(is_strict=False):
        answer = wire.call(body, version)
        assert mutated(answer) == ["NONE"]
        assert answer.throttle_time_ms >= 8_000
        broker.clock.advance(answer.throttle_time_ms / 1000)


def test_a_quota_holds_at_every_node_after_a_crash_and_in_a_fork() -> None:
    kafka = Address("127.0.0.1", 0)
    with triolog.blocking.open(MEMORY, kafka=kafka, nodes=2, topics={TOPIC: 1}) as broker:
        nodes = broker.call_now(lambda: broker._target.life.nodes)
        first, second = (Address(*each[1:]) for each in nodes.addresses.values())
        with KafkaWire.connect(first) as client:
            limit(client, PRODUCED, 100)
        leader = second if nodes.leader_of(TOPIC, 0) == 2 else first
        for address in (leader, leader):
            with KafkaWire.connect(address) as client:
                assert client.call(produce_request(KILOBYTES, topic=TOPIC), 9).throttle_time_ms > 0
            broker.crash()
            broker.restart()
        with broker.fork() as fork:
            forked = fork.call_now(lambda: fork._target.life.nodes)
            node = forked.addresses[forked.leader_of(TOPIC, 0)]
            with KafkaWire.connect(Address(*node[1:])) as client:
                assert client.call(produce_request(KILOBYTES, topic=TOPIC), 9).throttle_time_ms > 0
