"""Directories that Apache Kafka 4.1.0 wrote, read from their files alone, are what its consumers were given."""

from __future__ import annotations

import base64
import functools
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.records.columnar.schema import COLUMNS
from triolog.protocol.types import TopicPartition
from triolog.tools.segments.segment_damage import ReadMode
from triolog.tools.segments.segment_log import PartitionLog, read_logs
from triolog.tools.segments.segment_reader import SegmentRead, read_split
from triolog.tools.segments.segment_times import first_offset_at
from triolog.tools.segments.segment_transactions import committed_range
from triolog.tools.segments.splits import LogRange, SplitLimits, plan_splits

from tests.support.golden import GOLDEN

EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
ALL: Final = [
    TopicPartition(topic, int(partition)) for topic, answers in EXPECTED.items() for partition in answers["partitions"]
]
STATES: Final = ("clean", "unclean")
SIZES: Final = (1 << 26, 600)
"""Of splits: whole segments, and small ones."""

TXN: Final = TopicPartition("txn", 0)
COMPACTED: Final = TopicPartition("compacted", 0)
LAST_MARKER: Final = 204
BEHIND_THE_OPEN_TRANSACTION: Final = frozenset(range(199, 204))
"""Hidden from committed reads until the transaction was ended, which was between Kafka's answers and the copies."""

SEGMENTS: Final = SegmentRead(columns=COLUMNS, mode=ReadMode.FAILFAST)


@functools.cache
def golden_log(directory: Path, partition: TopicPartition) -> PartitionLog:
    [log] = [log for log in read_logs([str(directory)]) if log.topic_partition == partition]
    return log


def described_records(
    log: PartitionLog, *, committed: bool, split_bytes: int = 1 << 26, read: SegmentRead = SEGMENTS
) -> list[list[Any]]:
    """Every record of a log, in the form of expected.json."""
    low, high = log.log_start_offset, log.end_offset
    wanted = committed_range(log, low, high) if committed else LogRange(log=log, low=low, high=high)
    found = []
    for split in plan_splits([wanted], SplitLimits(split_bytes=split_bytes)):
        for batch in read_split(split, read):
            for row in batch.to_pylist():
                assert (row["topic"], row["partition"]) == log.topic_partition
                found.append(
                    [
                        row["offset"],
                        ["CreateTime", "LogAppendTime"][row["timestampType"]],
                        round(row["timestamp"].timestamp() * 1000),
                        as_text(row["key"]),
                        as_text(row["value"]),
                        [[header["key"], as_text(header["value"])] for header in row["headers"] or ()],
                    ]
                )
    return found


def as_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def answers_of(partition: TopicPartition) -> dict[str, Any]:
    answers: dict[str, Any] = EXPECTED[partition.topic]["partitions"][str(partition.partition)]
    return answers


def expected_records(partition: TopicPartition, *, committed: bool) -> list[list[Any]]:
    answers = answers_of(partition)
    hidden = set(answers.get("not_in_read_committed", ())) if committed else set()
    hidden -= BEHIND_THE_OPEN_TRANSACTION if partition == TXN else set()
    return [record for record in answers["records"] if record[0] not in hidden]


@pytest.mark.merge
def test_every_record_is_read_as_kafka_read_it() -> None:
    for state, partition, committed, split_bytes in product(STATES, ALL, (False, True), SIZES):
        log = golden_log(GOLDEN / state, partition)
        found = described_records(log, committed=committed, split_bytes=split_bytes)
        assert found == expected_records(partition, committed=committed), (state, partition, committed, split_bytes)


def test_the_log_starts_and_ends_where_kafka_said() -> None:
    for state, partition in product(STATES, ALL):
        log = golden_log(GOLDEN / state, partition)
        answers = answers_of(partition)["read_uncommitted"]
        latest = LAST_MARKER + 1 if partition == TXN else answers["latest"][0]
        assert (log.log_start_offset, log.end_offset) == (answers["earliest"][0], latest), (state, partition)


@pytest.mark.merge
def test_every_offset_by_time_is_what_kafka_answered() -> None:
    for state, partition in product(STATES, ALL):
        log = golden_log(GOLDEN / state, partition)
        for timestamp, offset, _ in answers_of(partition)["read_uncommitted"]["offsets_for_times"]:
            found = first_offset_at(log, timestamp)
            if partition == COMPACTED:
                # Kafka answers no lookup by time on its compacted log.
                assert offset == -1
                records = answers_of(partition)["records"]
                offset = next((record[0] for record in records if record[2] >= timestamp), -1)
            if partition == TXN and offset == -1:
                assert found in (None, LAST_MARKER), (state, partition, timestamp)
                continue
            assert (-1 if found is None else found) == offset, (state, partition, timestamp)


@pytest.mark.parametrize("state", STATES)
def test_without_whole_transaction_indexes_the_markers_tell_what_was_aborted(tmp_path: Path, state: str) -> None:
    for is_cut in (True, False):
        directory = tmp_path / str(is_cut) / str(TXN)
        shutil.copytree(GOLDEN / state / str(TXN), directory, copy_function=shutil.copyfile)
        indexes = list(directory.glob("*.txnindex"))
        assert indexes
        for index in indexes:
            if is_cut:
                index.write_bytes(index.read_bytes()[:-1])
            else:
                index.unlink()
        for split_bytes in SIZES:
            found = described_records(golden_log(directory, TXN), committed=True, split_bytes=split_bytes)
            assert found == expected_records(TXN, committed=True), (is_cut, split_bytes)
