"""ListOffsets: what each version knows, and the first record of a time. OffsetForLeaderEpoch: where an epoch ends. Offsets of
groups over the wire, in every version: committed, fetched, deleted, and in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.kafka.door import NO_TOPIC_ID
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


GROUP = "group"

Found = tuple[int, int, str | None, int]
"""(offset, leader epoch, metadata, error code)."""


def committing(
    offset: int,
    *,
    partition: int = 0,
    topic: str = TOPIC,
    topic_id: bytes = NO_TOPIC_ID,
    generation: int = -1,
    metadata: str | None = "note",
) -> Any:
    part = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": 7,
        "committed_metadata": metadata,
    }
    return ask(
        "OffsetCommit",
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        topics=[{"name": topic, "topic_id": topic_id, "partitions": [part]}],
    )


async def commit_code(client: KafkaStream, request: Any, version: int = 8) -> int:
    [topic] = (await client.call(request, version)).topics
    [partition] = topic.partitions
    return partition.error_code


def fetching(
    version: int, partitions: Sequence[int] | None, *, group: str = GROUP, topic_id: bytes = NO_TOPIC_ID, stable: bool = False
) -> Any:
    one = several = None
    if partitions is not None:
        several = [{"name": TOPIC, "topic_id": topic_id, "partition_indexes": list(partitions)}]
        one = [{"name": TOPIC, "partition_indexes": list(partitions)}]
    return ask(
        "OffsetFetch",
        group_id=group,
        topics=one if version < 8 else [],
        groups=[] if version < 8 else [{"group_id": group, "topics": several}],
        require_stable=stable,
    )


async def fetched(client: KafkaStream, version: int, request: Any) -> tuple[int, dict[int, Found]]:
    """(error code of the group, what was found by partition)."""
    answer = await client.call(request, version)
    group = answer if version < 8 else answer.groups[0]
    found = {
        each.partition_index: (each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    }
    return group.error_code, found


async def test_offsets_are_committed_in_every_version(kafka: KafkaServer, client: KafkaStream) -> None:
    for version in range(2, 11):
        topic_id = kafka.topic_id() if version >= 10 else NO_TOPIC_ID
        assert await commit_code(client, committing(version, topic_id=topic_id), version) == 0
        expected = {0: (version, 7 if version >= 6 else -1, "note", 0)}
        assert await fetched(client, 8, fetching(8, [0])) == (0, expected)


async def test_offsets_are_fetched_in_every_version_and_strangers_have_none(kafka: KafkaServer, client: KafkaStream) -> None:
    await commit_code(client, committing(5))
    for version in range(1, 11):
        topic_id = kafka.topic_id() if version >= 10 else NO_TOPIC_ID
        found, nothing = (5, 7 if version >= 5 else -1, "note", 0), (-1, -1, "", 0)
        request = fetching(version, [0, 1], topic_id=topic_id)
        assert await fetched(client, version, request) == (0, {0: found, 1: nothing}), version
        if version >= 2:
            assert await fetched(client, version, fetching(version, None)) == (0, {0: found}), version
        unknown = fetching(version, [0], group="unknown", topic_id=topic_id)
        assert await fetched(client, version, unknown) == (0, {0: nothing}), version


@pytest.mark.parametrize("topic_id", [b"x" * 16, NO_TOPIC_ID], ids=["unknown", "zero"])
async def test_a_topic_id_that_is_gone_is_said(client: KafkaStream, topic_id: bytes) -> None:
    assert await commit_code(client, committing(5, topic_id=topic_id), 10) == ErrorCode.UNKNOWN_TOPIC_ID
    code, found = await fetched(client, 10, fetching(10, [0], topic_id=topic_id))
    assert (code, found[0][3]) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
@pytest.mark.parametrize("retention_ms", [1000, 2**63 - 1, -1])
async def test_offset_goes_when_the_retention_of_its_commit_is_over(
    kafka: KafkaServer, client: KafkaStream, version: int, retention_ms: int
) -> None:
    """Clients before Kafka 2.1 send it; from version 5 on there is none."""
    assert await commit_code(client, attrs.evolve(committing(5), retention_time_ms=retention_ms), version) == 0
    [stored] = kafka.broker.offsets.committed(GROUP)
    assert stored.value is not None
    is_asked_for = version < 5 and retention_ms != -1
    now_ms = stored.value.commit_timestamp
    assert stored.value.expire_timestamp == (min(now_ms + retention_ms, 2**63 - 1) if is_asked_for else -1)


async def test_a_commit_that_is_refused_says_why(client: KafkaStream) -> None:
    for fields, code in (
        ({"topic": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 5000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
    ):
        assert await commit_code(client, committing(5, **fields)) == code, fields
        assert await fetched(client, 8, fetching(8, None)) == (0, {}), fields


async def test_several_groups_are_fetched_at_once(client: KafkaStream) -> None:
    await commit_code(client, committing(5))
    groups = [{"group_id": name, "topics": None} for name in (GROUP, "unknown", "")]
    answer = await client.call(ask("OffsetFetch", group_id="", topics=[], groups=groups, require_stable=False), 8)
    assert [(group.group_id, len(group.topics)) for group in answer.groups] == [(GROUP, 1), ("unknown", 0), ("", 0)]


async def test_deleted_offsets_are_gone_and_others_stay(client: KafkaStream) -> None:
    for number in range(3):
        await commit_code(client, committing(5, partition=number))
    partitions = [{"partition_index": number} for number in (0, 2, 9)]
    request = ask("OffsetDelete", group_id=GROUP, topics=[{"name": TOPIC, "partitions": partitions}])
    [topic] = (await client.call(request, 0)).topics
    assert [each.error_code for each in topic.partitions] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert list((await fetched(client, 8, fetching(8, None)))[1]) == [1]
    unknown = ask("OffsetDelete", group_id="unknown", topics=[])
    assert (await client.call(unknown, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def started(client: KafkaStream) -> dict[str, Any]:
    """Of a transaction, as its requests name it."""
    answer = await client.call(ask("InitProducerId", transactional_id="mover", transaction_timeout_ms=60_000), 4)
    return {"transactional_id": "mover", "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def in_transaction(producer: dict[str, Any], offset: int, topic_id: bytes = NO_TOPIC_ID) -> Any:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
    topics = [{"name": TOPIC, "topic_id": topic_id, "partitions": [part]}]
    return ask("TxnOffsetCommit", **producer, group_id=GROUP, topics=topics)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(7))
async def test_offsets_count_with_the_commit(kafka: KafkaServer, client: KafkaStream, version: int, commit: bool) -> None:
    producer = await started(client)
    topic_id = kafka.topic_id()
    if version < 5:
        refused = (await client.call(in_transaction(producer, 9), version)).topics[0].partitions[0]
        expected = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE
        assert refused.error_code == expected
        joining = ask("AddOffsetsToTxn", **producer, group_id=GROUP)
        assert (await client.call(joining, min(version, 3))).error_code == 0
    [topic] = (await client.call(in_transaction(producer, 9, topic_id), version)).topics
    assert topic.partitions[0].error_code == 0
    assert (topic.name, topic.topic_id) == ((TOPIC, NO_TOPIC_ID) if version < 6 else ("", topic_id))
    assert await fetched(client, 7, fetching(7, [0])) == (0, {0: (-1, -1, "", 0)})
    stable = await fetched(client, 7, fetching(7, [0], stable=True))
    assert stable == (0, {0: (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)})
    ending = ask("EndTxn", **producer, committed=commit)
    assert (await client.call(ending, 5 if version >= 5 else 3)).error_code == 0
    assert await fetched(client, 7, fetching(7, [0], stable=True)) == (0, {0: (9 if commit else -1, -1, "", 0)})


async def test_what_only_a_transaction_has_committed_is_not_among_all_offsets(client: KafkaStream) -> None:
    await client.call(in_transaction(await started(client), 9), 5)
    assert await fetched(client, 7, fetching(7, None)) == (0, {})


@pytest.mark.parametrize("topic_id", [bytes(15) + b"x", NO_TOPIC_ID], ids=["unknown", "zero"])
async def test_a_commit_in_a_transaction_of_a_topic_id_that_nobody_has_is_told_so(client: KafkaStream, topic_id: bytes) -> None:
    [topic] = (await client.call(in_transaction(await started(client), 9, topic_id), 6)).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_producer_that_was_replaced_commits_no_offsets(client: KafkaStream) -> None:
    old = await started(client)
    await started(client)
    [topic] = (await client.call(in_transaction(old, 9), 5)).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
