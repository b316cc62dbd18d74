"""Fetch: bytes as they lie in the log, waits that end when they should, and what a consumer is told instead of records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.listeners.kafka import fetch

from tests.support.brokers import actor_of, until
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_of, fetch_partition, fetch_request, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.transactions import TransactionalProducer

VERSIONS = range(4, 19)
FIRST_WITH_IDS = 13
FIRST_WITH_SESSIONS = 7
PARTITION = TopicPartition(TOPIC, 0)
PARKED_MS = 120_000


async def fetched(client: KafkaStream, *partitions: Any, version: int = 12, **fields: Any) -> Any:
    """The answer about the only partition."""
    answer = await client.call(fetch_request(*partitions, **fields), version)
    assert answer.error_code == 0
    [partition] = answer.responses[0].partitions
    return partition


def values_of(records: bytes) -> list[bytes | None]:
    return [record.value for header, data in iter_batches(records) for record in iter_records(data, header)]


@asynccontextmanager
async def parked(kafka: KafkaServer, request: Any, version: int = 12) -> AsyncIterator[list[Any]]:
    """A fetch that waits when the block begins and is answered when it ends; its answer is in the list then."""
    answers: list[Any] = []
    async with kafka.connected() as client:
        await client.send(request, version)
        await until(lambda: any(len(actor_of(kafka.broker, each).waiters) for each in _partitions(kafka)))
        yield answers
        answers.append(await client.receive())


def _partitions(kafka: KafkaServer) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(3) if TOPIC in kafka.broker.topics.names()]


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_come_as_they_were_stored(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await produced(client, batch("0", "1"), partition=2)
    await produced(client, batch("2"), partition=2)
    request = fetch_request(fetch_partition(1, partition=2), topic_id=kafka.topic_id())
    answer = await client.call(request, version)
    assert (answer.error_code, answer.session_id, answer.throttle_time_ms) == (0, 0, 0)
    [topic] = answer.responses
    assert (topic.topic, topic.topic_id) == (("", kafka.topic_id()) if version >= FIRST_WITH_IDS else (TOPIC, bytes(16)))
    [partition] = topic.partitions
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (2, 0, 3)
    assert partition.last_stable_offset == 3
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert (partition.preferred_read_replica, partition.aborted_transactions) == (-1, None)
    assert values_of(partition.records) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_one_partition_is_told_as_among_others(
    kafka: KafkaServer, client: KafkaStream, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is written from its numbers; here it is the same, byte for byte, as the one from the message's objects. In a
    session that is told what is new, too."""
    await produced(client, batch("0", "1"))

    async def frames() -> list[bytes]:
        found = []
        for offset in (0, 1, 2, 99):
            request = fetch_request(fetch_partition(offset), topic_id=kafka.topic_id())
            await client.send(request, version, expects_answer=False)
            found.append((await client.receive_frame())[4:])
        opened = await client.call(
            fetch_request(fetch_partition(0), topic_id=kafka.topic_id(), session_epoch=0), max(version, FIRST_WITH_SESSIONS)
        )
        for epoch, offset in enumerate((0, 2, 2), 1):
            session = {"session_id": opened.session_id, "session_epoch": epoch, "topic_id": kafka.topic_id()}
            request = fetch_request(fetch_partition(offset), **session)
            await client.send(request, max(version, FIRST_WITH_SESSIONS), expects_answer=False)
            found.append((await client.receive_frame())[4:].replace(opened.session_id.to_bytes(4), b"session"))
        return found

    single = await frames()
    monkeypatch.setattr(fetch._Fetch, "single", lambda *_: None)
    assert single == await frames()


async def test_no_records_are_empty_and_never_null(kafka: KafkaServer, client: KafkaStream) -> None:
    """librdkafka fails on null (KAFKA-18646). So for the end of the log, for errors, and for partitions without room."""
    await produced(client, batch("x"), partition=1)
    asked = [
        fetch_partition(0),
        fetch_partition(5, partition=0),
        fetch_partition(0, partition=1),
        fetch_partition(0, partition=1, max_bytes=0),
        fetch_partition(0, partition=77),
    ]
    for version in VERSIONS:
        for each in asked:
            answer = await client.call(fetch_request(each, topic_id=kafka.topic_id()), version)
            assert answer.responses[0].partitions[0].records is not None, version


async def test_a_full_answer_has_exactly_the_partitions_asked_for(kafka: KafkaServer, client: KafkaStream) -> None:
    """In their order; one that is named twice counts once, as its last mention says."""
    await kafka.broker.topics.create("other")
    await produced(client, batch("x"))
    topics = [
        {"topic": "other", "topic_id": bytes(16), "partitions": [fetch_partition()]},
        {"topic": TOPIC, "topic_id": bytes(16), "partitions": [fetch_partition(partition=number) for number in (2, 9, 0)]},
        {"topic": TOPIC, "topic_id": bytes(16), "partitions": [fetch_partition(1)]},
        {"topic": "missing", "topic_id": bytes(16), "partitions": [fetch_partition()]},
    ]
    answer = await client.call(fetch_of(topics), 12)
    found = [
        (topic.topic, each.partition_index, each.error_code, bytes(each.records))
        for topic in answer.responses
        for each in topic.partitions
    ]
    assert found == [("other", 0, 0, b""), (TOPIC, 2, 0, b""), (TOPIC, 9, 3, b""), (TOPIC, 0, 0, b""), ("missing", 0, 3, b"")]


async def test_an_offset_out_of_range_comes_without_watermarks_as_from_kafka(kafka: KafkaServer, client: KafkaStream) -> None:
    for number in range(5):
        await produced(client, batch(f"{number}"))
    await kafka.broker.logs.delete_records(PARTITION, 3)
    for offset in (-1, 2, 6):
        partition = await fetched(client, fetch_partition(offset), max_wait_ms=PARKED_MS)
        assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (partition.log_start_offset, partition.last_stable_offset, partition.high_watermark) == (-1, -1, -1)
        assert partition.records == b""


async def test_a_partition_that_is_offline_is_an_error(kafka: KafkaServer, client: KafkaStream) -> None:
    actor_of(kafka.broker).take_offline("the test says so")
    assert (await fetched(client, fetch_partition(), max_wait_ms=PARKED_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_below_version_10_zstd_is_refused_only_where_the_topic_says_it(kafka: KafkaServer, client: KafkaStream) -> None:
    """As Kafka does: a batch that a producer sent in zstd is served to everybody."""
    await produced(client, batch("x", compression_type=CompressionType.ZSTD))
    for version in (4, 9, 10):
        assert values_of((await fetched(client, fetch_partition(), version=version)).records) == [b"x"]
    await kafka.broker.topics.alter_configs(TOPIC, {"compression.type": "zstd"})
    for version in (4, 9):
        refused = await fetched(client, fetch_partition(), version=version)
        assert (refused.error_code, refused.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")
    assert (await fetched(client, fetch_partition(), version=10)).error_code == 0


@pytest.mark.parametrize("version", [12, 15])
async def test_replicas_cannot_fetch(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    partition = await fetched(
        client,
        fetch_partition(),
        version=version,
        topic_id=kafka.topic_id(),
        replica_id=2,
        replica_state={"replica_id": 2, "replica_epoch": 0},
    )
    assert partition.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("field", ["partition", "request"])
async def test_negative_limits_are_refused(client: KafkaStream, field: str) -> None:
    limits = {"max_bytes": -1} if field == "request" else {}
    partition = await fetched(client, fetch_partition(max_bytes=-1 if field == "partition" else 100), **limits)
    assert partition.error_code == ErrorCode.INVALID_REQUEST


async def test_one_answer_has_a_limit_whatever_is_asked_for(client: KafkaStream) -> None:
    for _ in range(70):
        await produced(client, batch(b"x" * 1_000_000))
    partition = await fetched(client, fetch_partition())
    assert 50_000_000 < len(partition.records) < 60_000_000


async def test_a_fetch_waits_for_the_first_byte_or_the_end_of_its_records(kafka: KafkaServer, client: KafkaStream) -> None:
    async with parked(kafka, fetch_request(fetch_partition(), max_wait_ms=PARKED_MS)) as answers:
        await produced(client, batch("woken"))
    assert values_of(answers[0].responses[0].partitions[0].records) == [b"woken"]
    await produced(client, batch("x"))
    async with parked(kafka, fetch_request(fetch_partition(0), max_wait_ms=PARKED_MS, min_bytes=10_000)) as answers:
        await kafka.broker.logs.delete_records(PARTITION, -1)
    assert answers[0].responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_nobody_waits_who_does_not_want_to_or_asks_for_nothing(client: KafkaStream) -> None:
    for max_wait_ms in (0, -1):
        assert (await fetched(client, fetch_partition(), max_wait_ms=max_wait_ms)).records == b"", max_wait_ms
    answer = await client.call(fetch_request(), 12)
    assert (answer.error_code, answer.responses) == (0, [])


async def test_a_full_answer_is_enough_however_much_is_wanted(client: KafkaStream) -> None:
    """Kafka: the fewest bytes are never more than the most."""
    for _ in range(3):
        await produced(client, batch(b"x" * 1000))
    partition = await fetched(client, fetch_partition(), max_wait_ms=PARKED_MS, min_bytes=1_000_000, max_bytes=1500)
    assert len(partition.records) == 1500


async def test_what_lies_in_an_older_segment_is_answered_at_once(kafka: KafkaServer, client: KafkaStream) -> None:
    """A read ends with its segment, so waiting would not make it longer (Kafka: DelayedFetch)."""
    await kafka.broker.topics.create("rolled", 1, {"segment.bytes": "2000"})
    for _ in range(5):
        await produced(client, batch(b"x" * 1500), topic="rolled")
    partition = await fetched(client, fetch_partition(), topic="rolled", max_wait_ms=PARKED_MS, min_bytes=5000)
    assert values_of(partition.records) == [b"x" * 1500]


async def test_only_readers_of_committed_records_wait_for_the_transaction(kafka: KafkaServer, client: KafkaStream) -> None:
    producer = await TransactionalProducer.start(kafka.broker)
    await produced(client, batch("before"))
    await producer.produce(PARTITION, "in it")
    partition = await fetched(client, fetch_partition(), isolation_level=1)
    assert values_of(partition.records) == [b"before"]
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 2)
    assert values_of((await fetched(client, fetch_partition())).records) == [b"before", b"in it"]
    request = fetch_request(fetch_partition(1), max_wait_ms=PARKED_MS, isolation_level=1)
    async with parked(kafka, request) as answers:
        await producer.commit()
    [woken] = answers[0].responses[0].partitions
    headers = [header for header, _ in iter_batches(woken.records)]
    assert [header.is_control for header in headers] == [False, True]
    assert woken.aborted_transactions == []


@pytest.mark.parametrize("version", [4, 12, 17])
async def test_aborts_are_named_to_readers_of_committed_records(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    """In the order of their first offsets; others are told null."""
    first = await TransactionalProducer.start(kafka.broker, "first")
    second = await TransactionalProducer.start(kafka.broker, "second")
    await first.produce(PARTITION, "a")
    await second.produce(PARTITION, "b")
    await second.abort()
    await first.abort()
    asked = {"version": version, "topic_id": kafka.topic_id()}
    partition = await fetched(client, fetch_partition(), isolation_level=1, **asked)
    assert [(each.producer_id, each.first_offset) for each in partition.aborted_transactions] == [
        (first.producer_id, 0),
        (second.producer_id, 1),
    ]
    assert (await fetched(client, fetch_partition(), **asked)).aborted_transactions is None
    marker = [header for header, _ in iter_batches(partition.records) if header.is_control]
    assert len(marker) == 2


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)], ids=str
)
async def test_a_leader_epoch_is_compared(client: KafkaStream, epoch: int, error: int) -> None:
    await produced(client, batch("x"))
    partition = await fetched(client, fetch_partition(current_leader_epoch=epoch), max_wait_ms=PARKED_MS)
    assert partition.error_code == error
    assert bool(partition.records) is (error == 0)


async def test_a_reader_goes_on_behind_the_same_epoch_and_not_behind_one_that_never_was(client: KafkaStream) -> None:
    await produced(client, batch("x"))
    partition = await fetched(client, fetch_partition(0, last_fetched_epoch=0))
    assert (partition.error_code, partition.diverging_epoch.epoch) == (0, -1)
    assert values_of(partition.records) == [b"x"]
    partition = await fetched(client, fetch_partition(0, last_fetched_epoch=7), max_wait_ms=PARKED_MS)
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1), "as in Kafka"


async def test_a_reader_that_read_further_than_the_log_is_told_where_it_ends(client: KafkaStream) -> None:
    """The end of a log was lost: what the reader has behind it is nobody's (KIP-595)."""
    await produced(client, batch("x"))
    partition = await fetched(client, fetch_partition(5, last_fetched_epoch=0), max_wait_ms=PARKED_MS)
    assert partition.error_code == 0
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 1)
    assert (partition.records, partition.high_watermark) == (b"", 1)


@pytest.mark.parametrize("version", VERSIONS[9:])
async def test_an_id_of_nothing_or_of_what_is_gone_is_unknown(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    before = kafka.topic_id()
    await kafka.broker.topics.delete(TOPIC)
    await kafka.broker.topics.create(TOPIC)
    await produced(client, batch("of the new one"))
    for topic_id in (before, bytes(16), b"\x07" * 16):
        partition = await fetched(client, fetch_partition(), version=version, topic_id=topic_id, max_wait_ms=PARKED_MS)
        assert (partition.error_code, partition.records) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


async def test_a_topic_that_is_made_again_during_a_wait_is_not_read_under_the_old_id(kafka: KafkaServer) -> None:
    request = fetch_request(fetch_partition(), topic_id=kafka.topic_id(), max_wait_ms=PARKED_MS)
    async with parked(kafka, request, version=17) as answers:
        await kafka.broker.topics.delete(TOPIC)
        await kafka.broker.topics.create(TOPIC)
    [partition] = answers[0].responses[0].partitions
    assert partition.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
