"""Records of `__consumer_offsets`: bytes that Apache Kafka 4.1.0's generated classes wrote, damage.

`fuzzing/test_replay.py` writes and reads again what the same decoders have read."""

from __future__ import annotations

import pytest
from triolog.protocol.coordinator import offsets
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.types import TopicPartition

COMMIT_KEY = "0001000567726f75700005746f70696300000007"
GROUP_KEY = "0002000567726f7570"
OFFSET, TIMESTAMP = 1234567890123, 1700000000000


def test_keys_have_the_bytes_that_kafka_writes() -> None:
    key = offsets.OffsetCommitKey("group", TopicPartition("topic", 7))
    assert key.encode().hex() == COMMIT_KEY
    assert offsets.decode_offsets_key(bytes.fromhex(COMMIT_KEY)) == key
    assert offsets.GroupMetadataKey("group").encode().hex() == GROUP_KEY
    assert offsets.decode_offsets_key(bytes.fromhex(GROUP_KEY)) == offsets.GroupMetadataKey("group")
    assert offsets.decode_offsets_key(bytes.fromhex("0003000567726f7570")) is None, "another kind is left alone"


TOPIC_ID_FIELD = "010010" + "ab" * 16
"""One tagged field: tag 0, 16 bytes."""
WITH_TOPIC_ID = offsets.OffsetCommitValue(OFFSET, "méta", TIMESTAMP, 5, topic_id=bytes.fromhex("ab" * 16))


def test_the_value_has_the_bytes_that_kafka_writes() -> None:
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
def test_every_version_of_the_value_is_read(data: str, expected: offsets.OffsetCommitValue) -> None:
    assert offsets.decode_offset_commit_value(bytes.fromhex(data)) == expected


@pytest.mark.parametrize("data", [COMMIT_KEY, GROUP_KEY])
def test_a_key_cut_anywhere_is_refused(data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(InvalidRecordError):
            offsets.decode_offsets_key(whole[:size])
    with pytest.raises(InvalidRecordError, match="ends at position"):
        offsets.decode_offsets_key(whole + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfe56be7",
        "00030000011f71fb04cb0000000500056dc3a974610000018bcfe56800",
        "00040000011f71fb04cb00000005066dc3a974610000018bcfe56800010002abcd",
    ],
)
def test_a_value_cut_anywhere_is_refused(data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(InvalidRecordError):
            offsets.decode_offset_commit_value(whole[:size])


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
def test_a_value_that_makes_no_sense_is_refused(data: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        offsets.decode_offset_commit_value(bytes.fromhex(data))


def test_a_string_that_is_too_long_is_not_written() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        offsets.GroupMetadataKey("a" * 32768).encode()
