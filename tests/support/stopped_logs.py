"""A log directory as a stopped server leaves it, written through the log itself: for tools that look inside."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Final

import attrs
from triolog.protocol.types import Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.offline.findings import Finding, Observer, Severity
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, encode_topics
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.log.prepare import prepare_marker

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

TOPIC: Final = "flights"
TOPIC_ID: Final = uuid.UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)
CONFIGS: Final = {"segment.bytes": "1500", "index.interval.bytes": "150"}
BATCHES: Final = 48


@attrs.frozen(kw_only=True)
class StoppedLogs:
    """Where the directory is, and what was written into it."""

    path: Path
    records: dict[TopicPartition, list[Record]]

    def partition(self, number: int = 0) -> Path:
        return self.path / f"{TOPIC}-{number}"


@attrs.define(eq=False)
class Seen(Observer):
    """An observer that keeps what is found."""

    findings: list[Finding] = attrs.field(factory=list)
    begun: list[tuple[TopicPartition, int]] = attrs.field(factory=list)
    done_bytes: int = 0
    done_records: int = 0

    def begin(self, topic_partition: TopicPartition, log_bytes: int) -> None:
        self.begun.append((topic_partition, log_bytes))

    def advance(self, log_bytes: int, records: int) -> None:
        self.done_bytes += log_bytes
        self.done_records += records

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)

    @property
    def damages(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.DAMAGE]

    @property
    def remarks(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.REMARK]


def write_stopped_logs(path: Path, *, partitions: int = 1, seed: int = 7) -> StoppedLogs:
    """Partitions of several segments: plain, idempotent and transactional batches, commits and aborts; stopped in order."""
    records: dict[TopicPartition, list[Record]] = {}
    ends: dict[TopicPartition, int] = {}
    for number in range(partitions):
        partition = TopicPartition(TOPIC, number)
        directory = path / str(partition)
        directory.mkdir(parents=True)
        (directory / checkpoints.PARTITION_METADATA_FILE).write_bytes(checkpoints.encode_partition_metadata(TOPIC_ID))
        driven = open_driven(directory, topic_partition=partition, config=LogConfig().overlay(CONFIGS))
        fill_log(driven, random.Random(seed + number))
        records[partition], ends[partition] = driven.records(), driven.log.log_end_offset
        driven.close()
    topic = Topic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions, configs=CONFIGS)
    (path / TOPICS_FILE).write_bytes(encode_topics(1, [topic]))
    for name in (checkpoints.RECOVERY_POINT_FILE, checkpoints.HIGH_WATERMARK_FILE):
        (path / name).write_bytes(checkpoints.encode_offsets(ends))
    (path / checkpoints.LOG_START_FILE).write_bytes(checkpoints.encode_offsets({}))
    identity = checkpoints.encode_meta_properties(cluster_id="cluster", node_id=1, directory_id=uuid.UUID(int=1000))
    (path / checkpoints.META_PROPERTIES_FILE).write_bytes(identity)
    (path / checkpoints.CLEAN_SHUTDOWN_FILE).write_bytes(checkpoints.encode_clean_shutdown())
    return StoppedLogs(path=path, records=records)


def fill_log(driven: DrivenLog, rng: random.Random) -> None:
    """Producer 1 is idempotent; 2 and 3 work in transactions, which end in turns; the last one stays open."""
    sequences = {1: 0, 2: 0, 3: 0}
    is_open = {2: False, 3: False}
    for number in range(BATCHES):
        producer = rng.choice([0, 0, 1, 2, 3])
        times = [START_MS + 1000 * number + rng.randrange(5000) for _ in range(rng.randrange(1, 5))]
        value = rng.randbytes(rng.randrange(10, 60))
        if producer == 0:
            driven.append(batch(*times, value=value, key=b"key"))
            continue
        transactional = producer > 1
        if transactional and is_open[producer] and rng.random() < 0.5:
            end = prepare_marker(
                producer_id=producer,
                producer_epoch=0,
                commit=rng.random() < 0.5,
                coordinator_epoch=0,
                now_ms=START_MS + 1000 * number,
            )
            driven.append_group([end])
            is_open[producer] = False
            continue
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
        driven.append(batch(*times, value=value, is_transactional=transactional, **options))
        sequences[producer] += len(times)
        if transactional:
            is_open[producer] = True
