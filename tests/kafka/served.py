"""What a broker serves of a partition, as plain values: asked with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import confluent_kafka
import triolog
from confluent_kafka.admin import AdminClient, OffsetSpec
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address

DEADLINE_S: Final = 60.0
POLL_S: Final = 1.0
NOT_YET: Final = frozenset(
    {
        confluent_kafka.KafkaError.UNKNOWN_LEADER_EPOCH,
        confluent_kafka.KafkaError.FENCED_LEADER_EPOCH,
        confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
ISOLATIONS: Final = ("read_uncommitted", "read_committed")

KEPT: Final = {"retention.ms": "-1"}
"""What is asked about is years old."""

PlainRecord = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value, headers."""


@attrs.frozen(kw_only=True)
class Served:
    """One partition under one isolation level."""

    earliest: int
    latest: int
    max_timestamp_offset: int
    records: tuple[PlainRecord, ...]
    lookups: Mapping[int, int]
    """Timestamp -> offset of the first record at or after it, -1 for none."""


Answers = dict[tuple[TopicPartition, str], Served]
"""By partition and isolation level."""

Questions = Mapping[TopicPartition, Sequence[int]]
"""Timestamps to look up."""


def served(address: str, questions: Questions) -> Answers:
    """Ask a broker for everything. Every CRC is checked."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    answers: Answers = {}
    for isolation in ISOLATIONS:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "round-trip",
                "log_level": 0,  # the broker that it knows is killed in some tests
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "check.crcs": True,
                "auto.offset.reset": "error",
            }
        )
        try:
            for partition, found in _consume(consumer, admin, isolation, questions).items():
                answers[partition, isolation] = found
        finally:
            consumer.close()
    return answers


def _consume(
    consumer: confluent_kafka.Consumer, admin: AdminClient, isolation: str, questions: Questions
) -> dict[TopicPartition, Served]:
    earliest = _list_offsets(admin, questions, OffsetSpec.earliest(), isolation)
    latest = _list_offsets(admin, questions, OffsetSpec.latest(), isolation)
    largest = _list_offsets(admin, questions, OffsetSpec.max_timestamp(), isolation)
    lookups = _look_up(consumer, questions)
    records = _records(consumer, earliest)
    return {
        partition: Served(
            earliest=earliest[partition],
            latest=latest[partition],
            max_timestamp_offset=largest[partition],
            records=tuple(records[partition]),
            lookups=lookups[partition],
        )
        for partition in questions
    }


def _list_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation: str
) -> dict[TopicPartition, int]:
    """A broker that has just started may not have taken over every partition yet."""
    asked = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
    level = getattr(confluent_kafka.IsolationLevel, isolation.upper())
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=DEADLINE_S)
        try:
            return {TopicPartition(each.topic, each.partition): answer.result().offset for each, answer in answers.items()}
        except confluent_kafka.KafkaException as exc:
            if exc.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise


def _records(
    consumer: confluent_kafka.Consumer, starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[PlainRecord]]:
    """Every record from the start of each partition to where the isolation level lets it be read."""
    found: dict[TopicPartition, list[PlainRecord]] = {partition: [] for partition in starts}
    consumer.assign([confluent_kafka.TopicPartition(*partition, offset) for partition, offset in starts.items()])
    unfinished = set(starts)
    while unfinished:
        messages = consumer.consume(num_messages=10_000, timeout=POLL_S)
        for message in messages:
            partition = TopicPartition(message.topic(), message.partition())
            error = message.error()
            if error is None:
                headers = tuple((key, value) for key, value in message.headers() or ())
                _, timestamp = message.timestamp()
                found[partition].append((message.offset(), timestamp, message.key(), message.value(), headers))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                unfinished.discard(partition)
            else:
                raise AssertionError(f"{partition}: {error}")
    return found


def _look_up(consumer: confluent_kafka.Consumer, questions: Questions) -> dict[TopicPartition, dict[int, int]]:
    """One timestamp of every partition in each request. The consumer must not fetch: answers would wait behind its polls."""
    found: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in questions}
    for turn in range(max(map(len, questions.values()))):
        asked = [
            confluent_kafka.TopicPartition(*partition, timestamps[turn])
            for partition, timestamps in questions.items()
            if turn < len(timestamps)
        ]
        for answer in consumer.offsets_for_times(asked, timeout=DEADLINE_S):
            assert answer.error is None, answer.error
            partition = TopicPartition(answer.topic, answer.partition)
            found[partition][questions[partition][turn]] = answer.offset
    return found


def served_by_triolog(directory: Path, questions: Questions) -> Answers:
    """Start a broker on a log directory, ask it for everything and stop it in order."""
    listener = Address("127.0.0.1", 0)
    with triolog.blocking.open(directory, settings={"cleaner_enable": False}, kafka=listener, config=KEPT) as broker:
        return served(broker.bootstrap_servers, questions)
