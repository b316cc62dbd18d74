"""Records of the server's own topics in words."""

from __future__ import annotations

import uuid
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from triolog.protocol.coordinator.offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from triolog.protocol.coordinator.stage_commits import (
    CommittedFile,
    StageCommitPartition,
    StageCommitState,
    StageCommitValue,
    encode_stage_commit_key,
)
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState, encode_transaction_key
from triolog.protocol.records.batch import parse_header
from triolog.protocol.types import Record, TopicPartition
from triolog.tools.cli.dump.coordinator_records import record_in_words, topic_of
from triolog.tools.cli.main import main

from tests.support.logs import START_MS, batch, open_driven

PLACE = TopicPartition("flights", 3)
COMMIT_KEY = OffsetCommitKey("readers", PLACE).encode()
STATE = TransactionLogValue(
    producer_id=7,
    producer_epoch=2,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({PLACE}),
    last_update_ms=START_MS,
)

SHARE = StageCommitPartition(
    topic_partition=TopicPartition("flights", 3),
    topic_id=uuid.UUID(int=5),
    start_offset=11,
    files=(CommittedFile(task="0", size_bytes=70, crc=9, records_count=2),),
)
COMMIT = StageCommitValue(
    version=7, state=StageCommitState.DECIDED, producer_id=1000, producer_epoch=2, update_ms=1, partitions=(SHARE,)
)
DONE = attrs.evolve(
    COMMIT, state=StageCommitState.DONE, partitions=(attrs.evolve(SHARE, files=(), base_offset=11, end_offset=13),)
)


@pytest.mark.parametrize(
    ("topic", "key", "value", "words"),
    [
        (
            "__consumer_offsets",
            COMMIT_KEY,
            OffsetCommitValue(42, "half way", START_MS).encode(),
            "group readers: flights-3 at offset 42 'half way'",
        ),
        ("__consumer_offsets", COMMIT_KEY, None, "group readers: the offset of flights-3 is taken back"),
        ("__consumer_offsets", GroupMetadataKey("readers").encode(), None, "group readers: gone"),
        ("__consumer_offsets", b"\0\x09abc", b"", "a record of a newer kind of group"),
        (
            "__transaction_state",
            encode_transaction_key("mover"),
            STATE.encode(),
            "transactional id mover: ongoing, producer 7 epoch 2, timeout 60000 ms, partitions flights-3",
        ),
        ("__transaction_state", encode_transaction_key("mover"), None, "transactional id mover: gone"),
        (
            "__stage_commits",
            encode_stage_commit_key("query"),
            COMMIT.encode(),
            "application query: version 7 decided, producer 1000 epoch 2, flights-3 from 11 on, 2 records",
        ),
        (
            "__stage_commits",
            encode_stage_commit_key("query"),
            DONE.encode(),
            "application query: version 7 done, producer 1000 epoch 2, flights-3 11 to 12",
        ),
        ("__stage_commits", encode_stage_commit_key("query"), None, "application query: gone"),
        ("__stage_commits", b"\0\1abc", b"", "a record of a newer kind"),
        ("flights", b"key", b"value", None),
    ],
)
def test_a_record_is_put_into_words(topic: str, key: bytes, value: bytes | None, words: str | None) -> None:
    header = parse_header(batch(START_MS))
    assert record_in_words(topic, header, Record(0, START_MS, key, value)) == words


def test_a_record_that_cannot_be_read_says_so() -> None:
    header = parse_header(batch(START_MS))
    words = record_in_words("__consumer_offsets", header, Record(0, START_MS, b"\0\1\0\7ab", b""))
    assert words.startswith("cannot be read: ")


def test_the_topic_is_told_from_the_directory() -> None:
    assert topic_of("__consumer_offsets-49") == "__consumer_offsets"
    assert topic_of("flights-0") is None


def test_dump_shows_committed_offsets_in_words(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    driven = open_driven(directory, topic_partition=TopicPartition("__consumer_offsets", 0))
    driven.append(batch(START_MS, key=COMMIT_KEY, value=OffsetCommitValue(42, "", START_MS).encode()))
    driven.close()
    log = directory / "00000000000000000000.log"
    text = CliRunner().invoke(main, ["dump", "--records", str(log)]).stdout
    assert "[group readers: flights-3 at offset 42]" in text
