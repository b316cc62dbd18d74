"""ListOffsets: what each version knows, and the first record of a time. OffsetForLeaderEpoch: where an epoch ends."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.kafka.session import KafkaSession

from tests.support.brokers import actor_of
from tests.support.kafka_server import TOPIC, KafkaServer, batch, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer

VERSIONS = range(12)
PARTITION = TopicPartition(TOPIC, 0)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def asking(*asked: tuple[int, int], topic: str = TOPIC, isolation_level: int = 0, **fields: Any) -> Any:
    """(partition, timestamp) of one topic."""
    partitions = [{"partition_index": number, "timestamp": timestamp, **fields} for number, timestamp in asked]
    return ask(
        "ListOffsets",
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": partitions}],
        timeout_ms=1000,
    )


async def found(client: KafkaStream, timestamp: int, version: int = 11, **fields: Any) -> Any:
    """The answer about the first partition."""
    answer = await client.call(asking((0, timestamp), **fields), version)
    [partition] = answer.topics[0].partitions
    return partition


async def three_times(client: KafkaStream) -> None:
    """Records of 100, 200 and 300 ms behind the start, each in a batch of its own."""
    for late in (100, 200, 300):
        await produced(client, batch("x", timestamp=START_MS + late))


async def test_a_hundred_partitions_are_answered_in_the_turn_that_asks(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("wide", partitions=100)
    for number in range(100):
        await kafka.broker.writer.append(TopicPartition("wide", number), batch("x", timestamp=START_MS + number))
    asked = asking(*((number, START_MS + number) for number in range(100)), topic="wide")
    later = asking(*((number, START_MS + number + (number == 50)) for number in range(100)), topic="wide")
    works: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaSession, "work_on", lambda self, work, **_: works.append(work))
        answer = await client.call(asked, 10)
        missed = await client.call(later, 10)
    assert works == []
    rows = [(each.partition_index, each.timestamp, each.offset, each.error_code) for each in answer.topics[0].partitions]
    assert rows == [(number, START_MS + number, 0, 0) for number in range(100)]
    assert [each.offset for each in missed.topics[0].partitions] == [0] * 50 + [-1] + [0] * 49


async def test_both_ends_of_the_log(kafka: KafkaServer, client: KafkaStream) -> None:
    await three_times(client)
    await kafka.broker.logs.delete_records(PARTITION, 1)
    for version in VERSIONS:
        for timestamp, offset in ((LATEST, 3), (EARLIEST, 1)):
            partition = await found(client, timestamp, version)
            assert partition.error_code == 0, version
            if version == 0:
                assert partition.old_style_offsets == [offset]
            else:
                assert (partition.offset, partition.timestamp, partition.old_style_offsets) == (offset, -1, []), version
                assert partition.leader_epoch == (0 if version >= 4 else -1), version


async def test_a_time_is_answered_with_the_first_record_at_or_behind_it(client: KafkaStream) -> None:
    """None is no error."""
    await three_times(client)
    times = {0: START_MS + 100, 1: START_MS + 200, 2: START_MS + 300, -1: -1}
    for version in VERSIONS[1:]:
        for late, offset in ((0, 0), (100, 0), (101, 1), (150, 1), (200, 1), (250, 2), (300, 2), (301, -1)):
            partition = await found(client, START_MS + late, version)
            assert (late, partition.error_code, partition.offset, partition.timestamp) == (late, 0, offset, times[offset])
            assert partition.leader_epoch == (0 if version >= 4 and offset >= 0 else -1), version


@pytest.mark.parametrize(
    ("timestamp", "first", "offset"),
    [
        *[(MAX_TIMESTAMP, 7, 2), (EARLIEST_LOCAL, 8, 0), (LATEST_TIERED, 9, -1), (PENDING_UPLOAD, 11, -1)],
        *[(unknown, 99, -1) for unknown in (-7, -8, -(2**63))],
    ],
)
async def test_special_timestamps_have_first_versions(client: KafkaStream, timestamp: int, first: int, offset: int) -> None:
    await three_times(client)
    answers = [await found(client, timestamp, version) for version in VERSIONS]
    expected = [(ErrorCode.UNSUPPORTED_VERSION, -1) if version < first else (0, offset) for version in VERSIONS]
    assert [(partition.error_code, partition.offset) for partition in answers] == expected


async def test_the_largest_timestamp_comes_with_its_first_record(client: KafkaStream) -> None:
    assert ((await found(client, MAX_TIMESTAMP)).offset, (await found(client, MAX_TIMESTAMP)).timestamp) == (-1, -1)
    for late in (100, 300, 300, 200):
        await produced(client, batch("x", timestamp=START_MS + late))
    partition = await found(client, MAX_TIMESTAMP)
    assert (partition.offset, partition.timestamp) == (1, START_MS + 300)


async def test_readers_of_committed_records_do_not_see_an_open_transaction(kafka: KafkaServer, client: KafkaStream) -> None:
    await produced(client, batch("x"))
    producer = await TransactionalProducer.start(kafka.broker)
    await producer.produce(PARTITION, "open")
    await produced(client, batch("y", timestamp=START_MS + 100))
    for version in VERSIONS[2:]:
        for isolation_level, end, of_time in ((1, 1, -1), (0, 3, 2)):
            asked = {"version": version, "isolation_level": isolation_level}
            assert (await found(client, LATEST, **asked)).offset == end, asked
            assert (await found(client, START_MS + 100, **asked)).offset == of_time, asked


async def test_a_partition_that_is_named_twice_is_refused_and_the_others_are_not(client: KafkaStream) -> None:
    for version in VERSIONS:
        answer = await client.call(asking((0, LATEST), (1, LATEST), (0, EARLIEST)), version)
        errors = [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]
        assert errors == [(0, ErrorCode.INVALID_REQUEST), (1, 0), (0, ErrorCode.INVALID_REQUEST)], version


async def test_what_is_not_there_is_unknown_whatever_is_asked(kafka: KafkaServer, client: KafkaStream) -> None:
    actor_of(kafka.broker).take_offline("the test says so")
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD, 0):
        for topic, number in (("missing", 0), (TOPIC, 3), (TOPIC, -1)):
            answer = await client.call(asking((number, timestamp), topic=topic), 11)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, timestamp
        assert (await found(client, timestamp)).error_code == ErrorCode.KAFKA_STORAGE_ERROR, timestamp


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)], ids=str
)
async def test_a_leader_epoch_is_compared_where_the_version_has_one(client: KafkaStream, epoch: int, error: int) -> None:
    codes = [(await found(client, LATEST, version, current_leader_epoch=epoch)).error_code for version in VERSIONS]
    assert codes == [error if version >= 4 else 0 for version in VERSIONS]


async def end_of(
    client: KafkaStream, epoch: int, *, version: int = 4, topic: str = TOPIC, partition: int = 0, current: int = -1
) -> Any:
    asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    topics = [{"topic": topic, "partitions": [asked]}]
    answer = await client.call(ask("OffsetForLeaderEpoch", replica_id=-1, topics=topics), version)
    assert answer.topics[0].topic == topic
    [found] = answer.topics[0].partitions
    assert found.partition == partition
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_epoch_ends_at_the_high_watermark_and_one_that_never_was_nowhere(client: KafkaStream, version: int) -> None:
    await produced(client, batch("a", "b"))
    for epoch, end in ((0, (0, 2)), (1, (-1, -1)), (100, (-1, -1)), (-1, (-1, -1))):
        found = await end_of(client, epoch, version=version)
        assert (found.error_code, (found.leader_epoch, found.end_offset)) == (0, end), epoch
    for current, error in ((-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)):
        found = await end_of(client, 0, version=version, current=current)
        assert (found.error_code, found.end_offset) == (error, -1 if error else 2), current


async def test_an_epoch_of_what_is_not_there_is_unknown(client: KafkaStream) -> None:
    for topic, partition in (("missing", 0), (TOPIC, 9)):
        found = await end_of(client, 0, topic=topic, partition=partition, current=0)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
