"""Records of share groups: bytes that Apache Kafka 4.3.1's GroupCoordinatorRecordSerde wrote, round trips, damage."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator import share_group_records as records
from triolog.protocol.coordinator.consumer_group_records import ConsumerGroupTopicPartitions
from triolog.protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS, ShareGroupKey, ShareGroupValue
from triolog.protocol.errors import InvalidRecordError

TOPIC_ID: Final = bytes(range(1, 17))
GROUP: Final = {"group_id": "g"}
MEMBER: Final = {"group_id": "g", "member_id": "m"}

WRITTEN: Final[list[tuple[ShareGroupKey, str, ShareGroupValue, str]]] = [
    (
        records.ShareGroupMemberMetadataKey(**MEMBER),
        "000a00016700016d",
        records.ShareGroupMemberMetadataValue(rack_id="r", client_id="c", client_host="/h", subscribed_topic_names=["a", "b"]),
        "000002720263032f68030261026200",
    ),
    (
        records.ShareGroupMemberMetadataKey(**MEMBER),
        "000a00016700016d",
        records.ShareGroupMemberMetadataValue(client_id="c", client_host="/h", subscribed_topic_names=[]),
        "0000000263032f680100",
    ),
    (
        records.ShareGroupMetadataKey(**GROUP),
        "000b000167",
        records.ShareGroupMetadataValue(epoch=7, metadata_hash=-5),
        "000000000007fffffffffffffffb00",
    ),
    (
        records.ShareGroupTargetAssignmentMetadataKey(**GROUP),
        "000c000167",
        records.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=7),
        "00000000000700",
    ),
    (
        records.ShareGroupTargetAssignmentMetadataKey(**GROUP),
        "000c000167",
        records.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp=1_700_000_000_000),
        "0000000000070100080000018bcfe56800",
    ),
    (
        records.ShareGroupTargetAssignmentMemberKey(**MEMBER),
        "000d00016700016d",
        records.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[ConsumerGroupTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 2])]
        ),
        "0000020102030405060708090a0b0c0d0e0f100300000000000000020000",
    ),
    (
        records.ShareGroupCurrentMemberAssignmentKey(**MEMBER),
        "000e00016700016d",
        records.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=0,
            assigned_partitions=[ConsumerGroupTopicPartitions(topic_id=TOPIC_ID, partitions=[1])],
        ),
        "0000000000070000000600020102030405060708090a0b0c0d0e0f1002000000010000",
    ),
    (
        records.ShareGroupStatePartitionMetadataKey(**GROUP),
        "000f000167",
        records.ShareGroupStatePartitionMetadataValue(
            initializing_topics=[records.ShareGroupTopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="a", partitions=[0])],
            initialized_topics=[records.ShareGroupTopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="b", partitions=[1, 2])],
            deleting_topics=[records.ShareGroupTopicInfo(topic_id=TOPIC_ID, topic_name="c")],
        ),
        "0000020102030405060708090a0b0c0d0e0f100261020000000000020102030405060708090a0b0c0d0e0f1002620300000001000000020002010203"
        "0405060708090a0b0c0d0e0f1002630000",
    ),
]
IDS: Final = [f"{type(value).__name__}-{number}" for number, (_, _, value, _) in enumerate(WRITTEN)]


@pytest.mark.parametrize(("key", "key_bytes", "value", "value_bytes"), WRITTEN, ids=IDS)
def test_records_are_those_that_kafka_writes(
    key: ShareGroupKey, key_bytes: str, value: ShareGroupValue, value_bytes: str
) -> None:
    assert SHARE_GROUP_RECORDS.encode((key, value)) == (bytes.fromhex(key_bytes), bytes.fromhex(value_bytes))
    assert SHARE_GROUP_RECORDS.decode_key(bytes.fromhex(key_bytes)) == key
    assert SHARE_GROUP_RECORDS.decode_value(key, bytes.fromhex(value_bytes)) == value


def test_what_takes_away_has_no_value() -> None:
    assert SHARE_GROUP_RECORDS.encode((WRITTEN[2][0], None)) == (bytes.fromhex("000b000167"), None)


@pytest.mark.parametrize("version", [3, 9, 16, 17])
def test_keys_of_other_kinds_are_left_alone(version: int) -> None:
    assert SHARE_GROUP_RECORDS.decode_key(version.to_bytes(2) + b"whatever another kind of group writes") is None


@pytest.mark.parametrize(("key", "key_bytes", "value", "value_bytes"), WRITTEN, ids=IDS)
def test_a_value_that_is_cut_or_longer_is_refused(
    key: ShareGroupKey, key_bytes: str, value: ShareGroupValue, value_bytes: str
) -> None:
    data = bytes.fromhex(value_bytes)
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError):
            SHARE_GROUP_RECORDS.decode_value(key, data[:size])
    with pytest.raises(InvalidRecordError, match="ends at position"):
        SHARE_GROUP_RECORDS.decode_value(key, data + b"\0")


@given(st.sampled_from([key for key, *_ in WRITTEN]), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(key: ShareGroupKey, data: bytes) -> None:
    try:
        value = SHARE_GROUP_RECORDS.decode_value(key, b"\0\0" + data)
    except InvalidRecordError:
        return
    assert SHARE_GROUP_RECORDS.decode_value(key, SHARE_GROUP_RECORDS.encode_value(value)) == value
