"""Produce: what is stored and answered in every version, and what a producer is told that may not or cannot."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.records import ProducePartition, ProduceRequest, ProduceTopic
from triolog.protocol.limits import MIB
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.broker import PendingProduce
from triolog.server.storage.log.prepare import MAX_RECORD_ERRORS

from tests.support.brokers import values_from
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, produce_request, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.logs import START_MS
from tests.support.record_batches import patched

VERSIONS = range(3, 14)
FIRST_WITH_IDS = 13


async def answered(client: KafkaStream, request: ProduceRequest, version: int = 9) -> Any:
    """The answer about the only partition."""
    answer = await client.call(request, version)
    [partition] = answer.responses[0].partition_responses
    return partition


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_are_stored_and_their_offset_is_answered(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    for number, acks in enumerate((-1, 1, -1)):
        request = produce_request(batch(f"{number}", "x"), partition=1, acks=acks, topic_id=kafka.topic_id())
        answer = await client.call(request, version)
        [topic] = answer.responses
        assert (topic.topic_id, topic.name) == ((kafka.topic_id(), "") if version >= FIRST_WITH_IDS else (bytes(16), TOPIC))
        [partition] = topic.partition_responses
        assert (partition.index, partition.error_code, partition.base_offset) == (1, 0, 2 * number)
        assert partition.log_append_time_ms == -1
        assert partition.log_start_offset == (0 if version >= 5 else -1)
        assert (partition.record_errors, partition.error_message) == ([], None)
        assert partition.current_leader.leader_id == -1
    stored = await values_from(kafka.broker, TopicPartition(TOPIC, 1))
    assert stored == [b"0", b"x", b"1", b"x", b"2", b"x"]


async def test_several_topics_and_partitions_are_answered_in_the_order_asked(kafka: KafkaServer, client: KafkaStream) -> None:
    """An error of one does not keep the others from being stored."""
    await kafka.broker.topics.create("other")
    parts = [ProducePartition(index=number, records=batch("x")) for number in (2, 0, 9)]
    topics = [
        ProduceTopic(name=TOPIC, topic_id=bytes(16), partition_data=parts),
        ProduceTopic(name="missing", topic_id=bytes(16), partition_data=parts[:1]),
        ProduceTopic(name="other", topic_id=bytes(16), partition_data=[parts[1]]),
    ]
    answer = await client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    found = [(topic.name, each.index, each.error_code) for topic in answer.responses for each in topic.partition_responses]
    assert found == [(TOPIC, 2, 0), (TOPIC, 0, 0), (TOPIC, 9, 3), ("missing", 2, 3), ("other", 0, 0)]


async def test_partitions_around_one_that_takes_a_longer_look_are_stored(kafka: KafkaServer, client: KafkaStream) -> None:
    parts = [ProducePartition(index=index, records=batch("x" * size)) for index, size in ((0, 1), (1, 200_000), (2, 1), (9, 1))]
    topic = ProduceTopic(name=TOPIC, topic_id=bytes(16), partition_data=parts)
    answer = await client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)
    found = [(each.index, each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]
    assert found == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_a_partition_that_is_named_twice_gets_both(kafka: KafkaServer, client: KafkaStream) -> None:
    parts = [ProducePartition(index=0, records=batch(value)) for value in ("first", "second")]
    topic = ProduceTopic(name=TOPIC, topic_id=bytes(16), partition_data=parts)
    answer = await client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)
    assert [each.base_offset for each in answer.responses[0].partition_responses] == [0, 1]
    assert await values_from(kafka.broker) == [b"first", b"second"]


@pytest.mark.parametrize("topics", [[], [ProduceTopic(name=TOPIC, topic_id=bytes(16), partition_data=[])]])
async def test_a_request_without_partitions_is_answered(client: KafkaStream, topics: list[ProduceTopic]) -> None:
    answer = await client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    assert [topic.partition_responses for topic in answer.responses] == [[] for _ in topics]


async def test_the_leader_epoch_in_a_batch_is_not_looked_at(client: KafkaStream) -> None:
    """Clients write what they like; it lies before what the CRC covers."""
    for number, epoch in enumerate((-1, 0, 7)):
        assert await produced(client, patched(batch("x"), partition_leader_epoch=epoch)) == number


async def test_log_append_time_is_answered(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    partition = await answered(client, produce_request(batch("x", timestamp=1), topic="stamped"))
    assert partition.log_append_time_ms == START_MS


async def test_acks_that_mean_nothing_are_refused(kafka: KafkaServer, client: KafkaStream) -> None:
    for acks in (2, -2, 32767):
        request = produce_request(batch("x"), acks=acks, topic_id=kafka.topic_id())
        errors = {version: (await answered(client, request, version)).error_code for version in VERSIONS}
        assert errors == dict.fromkeys(VERSIONS, ErrorCode.INVALID_REQUIRED_ACKS), acks
    assert await values_from(kafka.broker) == []


async def test_errors_are_told_as_far_as_the_version_goes(kafka: KafkaServer, client: KafkaStream) -> None:
    request = produce_request(batch("x"), partition=-1, topic_id=kafka.topic_id())
    for version in VERSIONS:
        partition = await answered(client, request, version)
        assert (partition.error_code, partition.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert (partition.log_append_time_ms, partition.log_start_offset) == (-1, -1)
        assert bool(partition.error_message) is (version >= 8), version


async def test_a_topic_id_of_nothing_and_of_what_was_deleted_is_unknown(kafka: KafkaServer, client: KafkaStream) -> None:
    """A topic that is made again has another id: what was meant for the old one does not land there."""
    before = kafka.topic_id()
    await kafka.broker.topics.delete(TOPIC)
    await kafka.broker.topics.create(TOPIC)
    for topic_id in (before, bytes(16), b"\x07" * 16):
        partition = await answered(client, produce_request(batch("x"), topic_id=topic_id), 13)
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert await values_from(kafka.broker) == []


REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (batch("1") + batch("2"), ErrorCode.INVALID_RECORD),
    "count": (patched(batch("x"), last_offset_delta=5), ErrorCode.INVALID_RECORD),
    "base offset": (patched(batch("x"), base_offset=1), ErrorCode.INVALID_RECORD),
    "control": (patched(batch("x"), attributes=0x20), ErrorCode.INVALID_RECORD),
    "magic 1": (patched(batch("x"), magic=1), ErrorCode.INVALID_RECORD),
    "magic 0": (patched(batch("x"), magic=0), ErrorCode.INVALID_RECORD),
    "cut": (batch("x")[:-1], ErrorCode.INVALID_RECORD),
    "garbage behind": (batch("x") + b"\0", ErrorCode.CORRUPT_MESSAGE),
    "crc": (batch("x")[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    "codec 5": (patched(batch("x"), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no gzip": (patched(batch("x"), attributes=1), ErrorCode.CORRUPT_MESSAGE),
    "large": (batch(b"x" * (MIB + 100)), ErrorCode.MESSAGE_TOO_LARGE),
    "future": (batch("x", timestamp=START_MS + 2 * 3_600_000), ErrorCode.INVALID_TIMESTAMP),
}


async def test_records_that_cannot_be_stored_are_refused(kafka: KafkaServer, client: KafkaStream) -> None:
    for name, (records, error) in REFUSED.items():
        partition = await answered(client, produce_request(records))
        assert partition.error_code == error, (name, partition.error_message)
        assert partition.error_message, name
    assert await values_from(kafka.broker) == []


@pytest.mark.parametrize("stored_as", ["producer", "lz4"])
async def test_zstd_is_refused_before_version_7_by_any_topic(kafka: KafkaServer, client: KafkaStream, stored_as: str) -> None:
    await kafka.broker.topics.alter_configs(TOPIC, {"compression.type": stored_as})
    request = produce_request(batch("x", compression_type=CompressionType.ZSTD))
    assert (await answered(client, request, 6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await answered(client, request, 7)).error_code == 0


def _numbered(sequence: int, *, epoch: int = 0) -> bytes:
    return batch("x", producer_id=7, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize("version", [9, 13])
async def test_a_transactional_batch_names_its_transaction(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    transactional = batch("x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce_request(transactional, topic_id=kafka.topic_id())
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await answered(client, request, version)).error_code == error
    assert await values_from(kafka.broker) == []


async def test_what_is_not_transactional_is_appended_under_a_transactional_id_too(client: KafkaStream) -> None:
    partition = await answered(client, produce_request(_numbered(0), transactional_id="mover"))
    assert (partition.error_code, partition.base_offset) == (0, 0)


async def test_what_a_log_refuses_comes_with_its_start(client: KafkaStream) -> None:
    """As in Kafka; what is found out before is not the log's."""
    await produced(client, _numbered(0, epoch=1))
    for epoch, error in ((1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (0, ErrorCode.INVALID_PRODUCER_EPOCH)):
        refused = await answered(client, produce_request(_numbered(7, epoch=epoch)))
        assert (refused.error_code, refused.log_start_offset) == (error, 0)
    assert (await answered(client, produce_request(batch("x")[:-1]))).log_start_offset == -1


async def test_a_duplicate_has_the_offset_and_the_time_of_what_is_stored(kafka: KafkaServer, client: KafkaStream) -> None:
    await produced(client, _numbered(0))
    partition = await answered(client, produce_request(_numbered(0)))
    assert (partition.error_code, partition.base_offset, partition.log_append_time_ms) == (0, 0, START_MS)
    assert await values_from(kafka.broker) == [b"x"]


async def test_that_there_is_no_such_partition_is_said_before_what_else_is_wrong(client: KafkaStream) -> None:
    for records, acks in ((batch("x"), 7), (None, 1), (batch("x")[:-1], 1), (of_length(14), 1), (of_length(20), 1)):
        request = produce_request(records, partition=99, acks=acks)
        assert (await answered(client, request)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for unreadable in (patched(batch("x"), magic=3), of_length(13), of_length(-1)):
        assert (await answered(client, produce_request(unreadable, partition=99))).error_code == ErrorCode.CORRUPT_MESSAGE
        unknown = produce_request(unreadable, topic_id=b"made up by test:")
        assert (await answered(client, unknown, 13)).error_code == ErrorCode.CORRUPT_MESSAGE


def of_length(length: int) -> bytes:
    """A batch that says it has so many bytes behind its length."""
    whole = batch("x")
    return whole[:8] + length.to_bytes(4, "big", signed=True) + whole[12:]


async def test_a_timeout_of_0_is_no_reason_to_say_that_it_took_too_long(client: KafkaStream) -> None:
    """On one broker nothing is waited for but the device."""
    for number in range(30):
        partition = await answered(client, produce_request(batch("x"), timeout_ms=(0, -1, -(2**31))[number % 3]))
        assert (partition.error_code, partition.base_offset) == (0, number)


@pytest.mark.parametrize(
    "producer",
    [
        {"producer_id": -(2**63)},
        {"producer_id": -2, "producer_epoch": 5, "base_sequence": 3},
        {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
    ],
)
async def test_a_batch_of_odd_producers_is_repacked(kafka: KafkaServer, client: KafkaStream, producer: dict[str, int]) -> None:
    """An id below 0 is none, and an epoch below 0 is one like others, as without `compression.type`."""
    await kafka.broker.topics.create("packed", 1, {"compression.type": "zstd"})
    answer = await client.call(produce_request(patched(batch("x"), **producer), topic="packed"), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_records_that_are_stored_are_not_kept_in_memory(client: KafkaStream) -> None:
    """A pending request has its records; one that is answered must not keep them until its timeout is looked at."""
    for _ in range(10):
        await produced(client, batch("x"))
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, PendingProduce)]


async def test_batches_of_every_codec_are_stored_as_they_come_but_for_offset_and_epoch(client: KafkaStream) -> None:
    for number, codec in enumerate(CompressionType):
        data = batch(b"a" * 10_000, compression_type=codec)
        assert await produced(client, data) == number
        fetched = (await client.call(fetch_request(fetch_partition(number)), 12)).responses[0].partitions[0].records
        assert fetched[16:] == data[16:], codec


async def test_internal_topics_are_not_written_by_clients(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.offsets.commit("group", [(TopicPartition(TOPIC, 0), 1, None)])
    refused = await answered(client, produce_request(batch("x"), topic="__consumer_offsets"))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_small_batch_that_expands_beyond_the_limit_is_refused(client: KafkaStream) -> None:
    """What it becomes is bounded while it is unpacked, not afterwards."""
    bomb = batch(bytes(65 * MIB), compression_type=CompressionType.ZSTD)
    assert len(bomb) < 100_000
    assert (await answered(client, produce_request(bomb))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await produced(client, batch("x")) == 0


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12, 13])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
async def test_refused_records_of_a_batch_are_named_so_that_the_others_can_be_sent_again(
    kafka: KafkaServer, client: KafkaStream, version: int, codec: CompressionType
) -> None:
    if version < 7 and codec is CompressionType.ZSTD:
        return
    await kafka.broker.topics.create("kept", configs={"cleanup.policy": "compact", "message.timestamp.after.max.ms": "1000"})
    records = [(START_MS, None if index in (3, 7) else b"key", b"v", ()) for index in range(10)]
    records[8] = (START_MS + 3_600_000, b"key", b"v", ())
    request = produce_request(build_batch(records, compression_type=codec), topic="kept", topic_id=kafka.topic_id("kept"))
    partition = await answered(client, request, version)
    assert partition.error_code == ErrorCode.INVALID_RECORD, "that of the first one"
    if version < 8:
        assert partition.record_errors == []
        return
    assert [each.batch_index for each in partition.record_errors] == [3, 7, 8]
    no_key, late = partition.record_errors[0], partition.record_errors[2]
    assert "has no key" in no_key.batch_index_error_message
    assert "message.timestamp.after.max.ms=1000" in late.batch_index_error_message
    assert "3 of 10 records are refused: 3, 7, 8" in partition.error_message
    assert await values_from(kafka.broker, TopicPartition("kept", 0)) == []


async def test_named_records_of_a_refused_batch_are_limited(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("kept", configs={"cleanup.policy": "compact"})
    request = produce_request(batch(*["v"] * (MAX_RECORD_ERRORS + 5)), topic="kept")
    partition = await answered(client, request)
    assert [each.batch_index for each in partition.record_errors] == list(range(MAX_RECORD_ERRORS))
