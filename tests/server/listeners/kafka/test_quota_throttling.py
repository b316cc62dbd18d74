"""What a client that is above its quota gets, and when it is read from again. Time is the broker's clock, which tests move."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support.brokers import until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_quotas import CONNECTIONS, FETCHED, MUTATIONS, PERCENT, PRODUCED, Parts, altering, mutated, mutations
from tests.support.kafka_server import batch, fetch_partition, fetch_request, kafka_server, produce_request, produced
from tests.support.kafka_wire import CLIENT_ID, KafkaWire, ask, frame

TOPIC = "topic"
MINE: Parts = [("client-id", CLIENT_ID)]
METADATA = ask("Metadata", topics=None, include_cluster_authorized_operations=False, include_topic_authorized_operations=False)
KILOBYTES = batch("x" * 20_000)


@pytest.fixture
def client(broker: BlockingBroker) -> Iterator[KafkaWire]:
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
def test_a_produce_above_the_quota_is_stored_and_its_client_told_for_how_long(client: KafkaWire, version: int) -> None:
    limit(client, PRODUCED, 100)
    body = produce_request(KILOBYTES, topic=TOPIC)
    answer = client.call(body, version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms == throttled_ms(len(frame(body, version, 0)) - 4, 100)


@pytest.mark.parametrize("acks", [-1, 0])
def test_nothing_more_is_taken_from_it_until_the_time_is_over(broker: BlockingBroker, client: KafkaWire, acks: int) -> None:
    """Both requests are there at once, so that one that is not muted takes both in one turn."""
    limit(client, PRODUCED, 100)
    body = produce_request(KILOBYTES, topic=TOPIC, acks=acks)
    client.send_raw(frame(body, 9, 1) + frame(METADATA, 9, 2))
    if acks:
        client.receive_frame()
    while not broker.requests.find("Produce", answered=True):
        """Asked again: with acks 0 nobody says that it was taken."""
    with KafkaWire.connect(broker.kafka) as other:
        other.call(METADATA, 9)
        broker.clock.advance(100)
        other.call(METADATA, 9)
        assert len(broker.requests.find("Metadata")) == 2
        assert not is_answered(client)
    broker.clock.advance(200)
    assert client.receive_frame()


def one_batch(offset: int, **fields: Any) -> Any:
    return fetch_request(fetch_partition(offset, max_bytes=1), topic=TOPIC, **fields)


def fetch(client: KafkaWire, offset: int, **fields: Any) -> Any:
    return client.call(one_batch(offset, **fields), 12)


def fetched(answer: Any) -> list[int]:
    return [len(each.records) for topic in answer.responses for each in topic.partitions]


def test_a_fetch_above_the_quota_has_no_records_until_the_time_is_over(broker: BlockingBroker, client: KafkaWire) -> None:
    for _ in range(3):
        client.call(produce_request(KILOBYTES, topic=TOPIC), 9)
    limit(client, FETCHED, 3000)
    first = fetch(client, 0)
    assert (fetched(first), first.throttle_time_ms) == ([len(KILOBYTES)], 0)
    second = fetch(client, 1)
    assert (fetched(second), second.error_code, second.session_id) == ([], 0, 0)
    assert 0 < second.throttle_time_ms <= throttled_ms(2 * len(KILOBYTES), 3000)
    client.send(one_batch(1), 12)
    broker.clock.advance(12)
    third = client.receive()
    assert (fetched(third), third.throttle_time_ms) == ([len(KILOBYTES)], 0)


def test_a_fetch_session_goes_on_behind_a_throttled_answer(broker: BlockingBroker, client: KafkaWire) -> None:
    client.call(produce_request(KILOBYTES, topic=TOPIC), 9)
    limit(client, FETCHED, 3000)
    opened = fetch(client, 0, session_epoch=0)
    assert opened.session_id
    client.call(produce_request(KILOBYTES, topic=TOPIC), 9)
    answer = fetch(client, 1, session_id=opened.session_id, session_epoch=1)
    assert (fetched(answer), answer.session_id, answer.error_code) == ([], opened.session_id, 0)
    assert answer.throttle_time_ms > 0
    client.send(one_batch(1, session_id=opened.session_id, session_epoch=2), 12)
    broker.clock.advance(12)
    answer = client.receive()
    assert (fetched(answer), answer.session_id, answer.throttle_time_ms) == ([len(KILOBYTES)], opened.session_id, 0)


def test_a_fetch_reads_no_more_at_once_than_the_quota_gives_in_ten_seconds(client: KafkaWire) -> None:
    small = batch("x" * 2000)
    for _ in range(10):
        client.call(produce_request(small, topic=TOPIC), 9)
    limit(client, FETCHED, 500)
    assert fetched(client.call(fetch_request(fetch_partition(0), topic=TOPIC), 12)) == [5000]


@pytest.mark.parametrize("version", [9, 12])
def test_a_request_that_took_too_much_time_is_answered_and_its_client_quiet_for_a_second_at_most(
    broker: BlockingBroker, client: KafkaWire, version: int
) -> None:
    limit(client, PERCENT, 1e-9)
    assert client.call(METADATA, version).throttle_time_ms == 1000
    client.send(METADATA, version)
    assert not is_answered(client)
    broker.clock.advance(1)
    assert client.receive().throttle_time_ms == 1000


def test_the_wait_of_a_long_poll_is_no_time_that_counts(broker: BlockingBroker, client: KafkaWire) -> None:
    """Four seconds of a second's hundred percent would be far above it."""
    limit(client, PERCENT, 10)
    client.send(fetch_request(fetch_partition(0), topic=TOPIC, max_wait_ms=100_000, min_bytes=1), 12)
    while not is_answered(client):
        """Moved again: a wait that had not begun when the clock was moved ends with a later move."""
        broker.clock.advance(100)
    assert client.receive().throttle_time_ms == 0


def test_an_address_that_connects_too_often_is_not_served(broker: BlockingBroker, client: KafkaWire) -> None:
    limit(client, CONNECTIONS, 1, [("ip", None)])
    connections = [KafkaWire.connect(broker.kafka) for _ in range(12)]
    try:
        for each in connections[:10]:
            each.call(METADATA, 9)
        for each in connections[10:]:
            each.send(METADATA, 9)
        broker.clock.advance(1)
        assert all(each.is_closed_by_server() for each in connections[10:])
        client.call(METADATA, 9)
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


async def test_a_produce_that_has_expired_is_charged_once(fast_path: Path) -> None:
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


def test_who_changes_too_many_partitions_is_refused_until_they_are_paid_for(broker: BlockingBroker, client: KafkaWire) -> None:
    limit(client, MUTATIONS, 0.1)
    made, *others = mutations(is_strict=True)
    assert mutated(client.call(*made)) == ["NONE"]
    for body, version in others:
        with KafkaWire.connect(broker.kafka) as another:
            answer = another.call(body, version)
            assert mutated(answer) == ["THROTTLING_QUOTA_EXCEEDED"]
            assert 0 < answer.throttle_time_ms <= 9_000
    for body, version in others[1:]:
        broker.clock.advance(60)
        assert mutated(client.call(body, version)) == ["NONE"]


def test_who_does_not_know_the_error_is_told_to_be_quiet_and_served(broker: BlockingBroker, client: KafkaWire) -> None:
    limit(client, MUTATIONS, 0.1)
    for body, version in mutations(is_strict=False):
        answer = client.call(body, version)
        assert mutated(answer) == ["NONE"]
        assert answer.throttle_time_ms >= 8_000
        broker.clock.advance(answer.throttle_time_ms / 1000)


def test_a_quota_holds_at_every_node_after_a_crash_and_in_a_fork() -> None:
    kafka = Address("127.0.0.1", 0)
    with BlockingBroker(MEMORY, native=None, kafka=kafka, nodes=2, topics={TOPIC: 1}) as broker:
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
