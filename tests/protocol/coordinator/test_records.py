"""Records of `__consumer_offsets` and `__transaction_state`: bytes that Apache Kafka 4.1.0's generated classes wrote; and of
`__stage_commits`: round trips. Damage of all. Partition by name, against values of Kafka's own classes.
`fuzzing/test_replay.py` writes and reads again what the same decoders have read."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator import offsets, stage_commits, transactions
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.records.partitioners import coordinator_partition, java_hash
from triolog.protocol.types import TopicPartition

COMMIT_KEY = "0001000567726f75700005746f70696300000007"
GROUP_KEY = "0002000567726f7570"
OFFSET, TIMESTAMP = 1234567890123, 1700000000000


def test_keys_of_groups_have_the_bytes_that_kafka_writes() -> None:
    key = offsets.OffsetCommitKey("group", TopicPartition("topic", 7))
    assert key.encode().hex() == COMMIT_KEY
    assert offsets.decode_offsets_key(bytes.fromhex(COMMIT_KEY)) == key
    assert offsets.GroupMetadataKey("group").encode().hex() == GROUP_KEY
    assert offsets.decode_offsets_key(bytes.fromhex(GROUP_KEY)) == offsets.GroupMetadataKey("group")
    assert offsets.decode_offsets_key(bytes.fromhex("0003000567726f7570")) is None, "another kind is left alone"


TOPIC_ID_FIELD = "010010" + "ab" * 16
"""One tagged field: tag 0, 16 bytes."""
WITH_TOPIC_ID = offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP, 5, topic_id=bytes.fromhex("ab" * 16))


def test_the_value_of_an_offset_has_the_bytes_that_kafka_writes() -> None:
    value = offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP, leader_epoch=5)
    assert value.encode().hex() == "00030000011f71fb04cb0000000500056dc3a974610000018bcfe56800"
    expiring = value._replace(expire_timestamp=1700000000999)
    assert expiring.encode().hex() == "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfe56be7"
    assert WITH_TOPIC_ID.encode().hex() == "00040000011f71fb04cb00000005066dc3a974610000018bcfe56800" + TOPIC_ID_FIELD


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("00000000011f71fb04cb00056dc3a974610000018bcfe56800", offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP)),
        (
            "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfe56be7",
            offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP, expire_timestamp=1700000000999),
        ),
        ("00020000011f71fb04cb00056dc3a974610000018bcfe56800", offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP)),
        ("00030000011f71fb04cb0000000500056dc3a974610000018bcfe56800", offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP, 5)),
        ("00040000011f71fb04cb00000005066dc3a974610000018bcfe5680000", offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP, 5)),
        ("00040000011f71fb04cb00000005066dc3a974610000018bcfe56800" + TOPIC_ID_FIELD, WITH_TOPIC_ID),
        ("00040000011f71fb04cb00000005066dc3a974610000018bcfe56800020102cdef" + TOPIC_ID_FIELD[2:], WITH_TOPIC_ID),
    ],
    ids=["v0", "v1", "v2", "v3", "v4", "v4 with a topic id", "v4 with an unknown field"],
)
def test_every_version_of_the_value_of_an_offset_is_read(data: str, expected: offsets.OffsetCommitValue) -> None:
    assert offsets.decode_offset_commit_value(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("0005", "version 5"),
        ("ffff", "version -1"),
        ("00030000011f71fb04cb00000005ffff0000018bcfe56800", "metadata has a length of -1"),
        ("00030000011f71fb04cb00000005fffe0000018bcfe56800", "length of -2"),
        ("00030000011f71fb04cb000000050002c3280000018bcfe56800", "not UTF-8"),
        ("00040000011f71fb04cb00000005010000018bcfe56800010002abcd", "ends too early"),
    ],
)
def test_the_value_of_an_offset_that_makes_no_sense_is_refused(data: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        offsets.decode_offset_commit_value(bytes.fromhex(data))


def test_a_string_that_is_too_long_is_not_written() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        offsets.GroupMetadataKey("a" * 32768).encode()


TRANSACTION_KEY = "000000056d6f766572"
EMPTY = transactions.TransactionLogValue(producer_id=1000, producer_epoch=2, timeout_ms=60000, last_update_ms=1700000000000)
ONGOING = transactions.TransactionLogValue(
    producer_id=1000,
    producer_epoch=2,
    timeout_ms=60000,
    state=transactions.TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("a", 0)}),
    last_update_ms=1700000000001,
    start_ms=1700000000000,
)
TAGGED = attrs.evolve(
    ONGOING,
    state=transactions.TransactionState.COMPLETE_COMMIT,
    partitions=frozenset(),
    previous_producer_id=999,
    next_producer_id=1001,
    client_version=2,
)
EMPTY_V0 = "000000000000000003e800020000ea6000ffffffff0000018bcfe56800ffffffffffffffff"
ONGOING_V0 = (
    "000000000000000003e800020000ea60010000000200016100000002000000000000000300016200000001000000010000018bcfe56801"
    "0000018bcfe56800"
)
EMPTY_V1 = "000100000000000003e800020000ea6000000000018bcfe56800ffffffffffffffff00"
ONGOING_V1 = "000100000000000003e800020000ea60010302610300000000000000030002620200000001000000018bcfe568010000018bcfe5680000"
TAGGED_V1 = (
    "000100000000000003e800020000ea6004010000018bcfe568010000018bcfe5680003000800000000000003e7010800000000000003e902020002"
)


def test_the_key_of_a_transaction_has_the_bytes_that_kafka_writes() -> None:
    assert transactions.encode_transaction_key("mover").hex() == TRANSACTION_KEY
    assert transactions.decode_transaction_key(bytes.fromhex(TRANSACTION_KEY)) == "mover"
    assert transactions.decode_transaction_key(bytes.fromhex("0001aabb")) is None, "another kind is left alone"


@pytest.mark.parametrize(("value", "data"), [(EMPTY, EMPTY_V0), (ONGOING, ONGOING_V0), (TAGGED, TAGGED_V1)])
def test_the_value_of_a_transaction_has_the_bytes_that_kafka_writes(value: transactions.TransactionLogValue, data: str) -> None:
    assert value.encode().hex() == data


WRITTEN = [(EMPTY_V0, EMPTY), (ONGOING_V0, ONGOING), (EMPTY_V1, EMPTY), (ONGOING_V1, ONGOING), (TAGGED_V1, TAGGED)]


@pytest.mark.parametrize(("data", "expected"), WRITTEN)
def test_both_versions_of_the_value_of_a_transaction_are_read(data: str, expected: transactions.TransactionLogValue) -> None:
    assert transactions.decode_transaction_value(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("0002", "version 2"),
        (EMPTY_V0.replace("ea6000", "ea6006", 1), "state is 6"),
        (EMPTY_V0.replace("ffffffff", "7fffffff", 1), "claims 2147483647 elements"),
    ],
)
def test_the_value_of_a_transaction_that_makes_no_sense_is_refused_before_anything_is_allocated(data: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        transactions.decode_transaction_value(bytes.fromhex(data))


int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
committed_files = st.builds(
    stage_commits.CommittedFile,
    task=texts,
    size_bytes=int64s,
    crc=st.integers(0, 2**32 - 1),
    records_count=st.integers(0, 2**31 - 1),
)
partitions = st.builds(
    stage_commits.StageCommitPartition,
    topic_partition=st.builds(TopicPartition, texts, st.integers(0, 2**31 - 1)),
    topic_id=st.uuids(),
    start_offset=int64s,
    files=st.lists(committed_files, max_size=3).map(tuple),
    base_offset=int64s,
    end_offset=int64s,
)
values = st.builds(
    stage_commits.StageCommitValue,
    version=int64s,
    state=st.sampled_from(stage_commits.StageCommitState),
    producer_id=int64s,
    producer_epoch=st.integers(-1, 2**15 - 1),
    update_ms=int64s,
    partitions=st.lists(partitions, max_size=3).map(tuple),
)
SMALL = stage_commits.StageCommitValue(
    version=7,
    state=stage_commits.StageCommitState.DECIDED,
    producer_id=1000,
    producer_epoch=2,
    update_ms=1,
    partitions=(
        stage_commits.StageCommitPartition(
            topic_partition=TopicPartition("a", 3),
            topic_id=uuid.UUID(int=5),
            start_offset=11,
            files=(stage_commits.CommittedFile(task="0.1", size_bytes=70, crc=9, records_count=2),),
        ),
    ),
)


@given(application=texts, value=values)
def test_stage_commits_round_trip(application: str, value: stage_commits.StageCommitValue) -> None:
    assert stage_commits.decode_stage_commit_key(stage_commits.encode_stage_commit_key(application)) == application
    assert stage_commits.decode_stage_commit_value(value.encode()) == value


def test_the_value_of_a_stage_commit_lies_as_the_table_says() -> None:
    expected = (
        "0000" "0000000000000007" "01" "00000000000003e8" "0002" "0000000000000001" "00000001"
        "0001" "61" "00000000000000000000000000000005" "00000003" "000000000000000b" "ffffffffffffffff" "ffffffffffffffff"
        "00000001" "0003" "302e31" "0000000000000046" "00000009" "0000000000000002"
    )  # fmt: skip
    assert SMALL.encode().hex() == expected
    assert SMALL.partitions[0].records_count == 2
    assert (SMALL.is_done, attrs.evolve(SMALL, state=stage_commits.StageCommitState.DONE).is_done) == (False, True)


def test_keys_of_a_later_kind_of_stage_commits_are_passed_over_and_values_of_a_later_version_are_refused() -> None:
    assert stage_commits.decode_stage_commit_key(b"\0\1whatever") is None
    with pytest.raises(InvalidRecordError, match="a stage commit has version 1, 0 to 0 are known"):
        stage_commits.decode_stage_commit_value(b"\0\1")
    with pytest.raises(InvalidRecordError, match="a stage commit has state 9, 1 to 2 are known"):
        stage_commits.decode_stage_commit_value(SMALL.encode()[:10] + b"\x09" + SMALL.encode()[11:])


@pytest.mark.parametrize(
    ("decode", "whole"),
    [
        *((offsets.decode_offsets_key, bytes.fromhex(data)) for data in (COMMIT_KEY, GROUP_KEY)),
        *(
            (offsets.decode_offset_commit_value, bytes.fromhex(data))
            for data in (
                "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfe56be7",
                "00030000011f71fb04cb0000000500056dc3a974610000018bcfe56800",
                "00040000011f71fb04cb00000005066dc3a974610000018bcfe56800010002abcd",
            )
        ),
        *((transactions.decode_transaction_value, bytes.fromhex(data)) for data, _ in WRITTEN),
        (stage_commits.decode_stage_commit_value, SMALL.encode()),
    ],
)
def test_what_is_cut_anywhere_is_refused(decode: Callable[[bytes], object], whole: bytes) -> None:
    for size in range(len(whole)):
        with pytest.raises(InvalidRecordError):
            decode(whole[:size])


def test_what_is_too_long_or_announces_more_than_it_has_is_refused() -> None:
    for key in (COMMIT_KEY, GROUP_KEY):
        with pytest.raises(InvalidRecordError, match="ends at position"):
            offsets.decode_offsets_key(bytes.fromhex(key) + b"\0")
    for written, _ in WRITTEN:
        with pytest.raises(InvalidRecordError):
            transactions.decode_transaction_value(bytes.fromhex(written) + b"\0")
    data = SMALL.encode()
    with pytest.raises(InvalidRecordError, match="claims 2147483647 elements"):
        stage_commits.decode_stage_commit_value(data[:29] + b"\x7f\xff\xff\xff" + data[33:])


@pytest.mark.parametrize(
    ("name", "hash_code", "of_fifty"),
    [
        ("", 0, 0),
        ("group", 98629247, 47),
        ("mover", 104087233, 33),
        ("Käse", 2457099, 49),
        ("\N{ROCKET}rocket", -1579737481, 31),
        ("polygenelubricants", -2147483648, 0),
        ("a-rather-long-transactional-id-0123456789", -888652077, 27),
    ],
)
def test_a_name_belongs_to_the_partition_where_kafka_looks(name: str, hash_code: int, of_fifty: int) -> None:
    assert java_hash(name) == hash_code
    assert coordinator_partition(name, 50) == of_fifty


@given(st.text(), st.integers(1, 10_000))
def test_every_name_has_a_partition(name: str, partitions: int) -> None:
    assert 0 <= coordinator_partition(name, partitions) < partitions


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1000, 32_767])
def test_the_hash_of_a_long_name_is_that_of_its_units(size: int) -> None:
    name = "".join(chr(40 + number % 20_000) for number in range(size))
    expected = 0
    for unit in name:
        expected = (31 * expected + ord(unit)) % 2**32
    assert java_hash(name) % 2**32 == expected


def test_the_hash_of_a_long_name_is_no_work_of_python_for_each_character() -> None:
    lines = 0

    def trace(_frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        java_hash("x" * 32_767)
    finally:
        sys.settrace(before)
    assert 0 < lines < 1000
