"""Records of groups whose assignments the server makes: bytes that Apache Kafka 4.1.0's generated classes wrote, round
trips, damage."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator import consumer_group_records as records
from triolog.protocol.coordinator.consumer_group_records import (
    CONSUMER_GROUP_RECORDS,
    ConsumerGroupKey,
    ConsumerGroupValue,
)
from triolog.protocol.coordinator.offsets import GroupMetadataKey
from triolog.protocol.errors import InvalidRecordError

TOPIC_ID: Final = bytes(range(16))
MEMBER: Final = {"group_id": "group", "member_id": "member"}

KEYS: Final[list[tuple[ConsumerGroupKey, str]]] = [
    (records.ConsumerGroupMetadataKey(group_id="group"), "0003000567726f7570"),
    (records.ConsumerGroupPartitionMetadataKey(group_id="group"), "0004000567726f7570"),
    (records.ConsumerGroupMemberMetadataKey(**MEMBER), "0005000567726f757000066d656d626572"),
    (records.ConsumerGroupTargetAssignmentMetadataKey(group_id="group"), "0006000567726f7570"),
    (records.ConsumerGroupTargetAssignmentMemberKey(**MEMBER), "0007000567726f757000066d656d626572"),
    (records.ConsumerGroupCurrentMemberAssignmentKey(**MEMBER), "0008000567726f757000066d656d626572"),
    (
        records.ConsumerGroupRegularExpressionKey(group_id="group", regular_expression="a.*"),
        "0010000567726f75700003612e2a",
    ),
]

VALUES: Final[list[tuple[ConsumerGroupKey, ConsumerGroupValue, str]]] = [
    (KEYS[0][0], records.ConsumerGroupMetadataValue(epoch=7, metadata_hash=-2), "000000000007010008fffffffffffffffe"),
    (KEYS[0][0], records.ConsumerGroupMetadataValue(epoch=7), "00000000000700"),
    (
        KEYS[1][0],
        records.ConsumerGroupPartitionMetadataValue(
            topics=[
                records.ConsumerGroupTopicMetadata(
                    topic_id=TOPIC_ID,
                    topic_name="topic",
                    num_partitions=2,
                    partition_metadata=[records.ConsumerGroupPartitionRacks(partition=1, racks=["rack"])],
                )
            ]
        ),
        "000002000102030405060708090a0b0c0d0e0f06746f70696300000002020000000102057261636b000000",
    ),
    (
        KEYS[2][0],
        records.ConsumerGroupMemberMetadataValue(
            instance_id="instance",
            rack_id="rack",
            client_id="client",
            client_host="/127.0.0.1",
            subscribed_topic_names=["a", "b"],
            subscribed_topic_regex="a.*",
            rebalance_timeout_ms=300_000,
            server_assignor="uniform",
            classic_member_metadata=records.ConsumerGroupClassicMemberMetadata(
                session_timeout_ms=45_000,
                supported_protocols=[records.ConsumerGroupClassicProtocol(name="range", metadata=b"\1\2\3")],
            ),
        ),
        "000009696e7374616e6365057261636b07636c69656e740b2f3132372e302e302e31030261026204612e2a000493e008756e69666f726d010012010000"
        "afc8020672616e6765040102030000",
    ),
    (
        KEYS[2][0],
        records.ConsumerGroupMemberMetadataValue(client_id="client", client_host="/127.0.0.1", subscribed_topic_names=[]),
        "0000000007636c69656e740b2f3132372e302e302e310100ffffffff0000",
    ),
    (KEYS[3][0], records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=9), "00000000000900"),
    (
        KEYS[4][0],
        records.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[records.ConsumerGroupTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 2])]
        ),
        "000002000102030405060708090a0b0c0d0e0f0300000000000000020000",
    ),
    (
        KEYS[5][0],
        records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=1,
            assigned_partitions=[
                records.ConsumerGroupCurrentPartitions(topic_id=TOPIC_ID, partitions=[0], assignment_epochs=[2])
            ],
            partitions_pending_revocation=[records.ConsumerGroupCurrentPartitions(topic_id=TOPIC_ID, partitions=[1, 2])],
        ),
        "000000000005000000040102000102030405060708090a0b0c0d0e0f0200000000"
        "0100050200000002"
        "02000102030405060708090a0b0c0d0e0f0300000001000000020000",
    ),
    (
        KEYS[6][0],
        records.ConsumerGroupRegularExpressionValue(topics=["a", "ab"], version=12, timestamp=1_700_000_000_000),
        "0000030261036162000000000000000c0000018bcfe5680000",
    ),
]


@pytest.mark.parametrize(("key", "written"), KEYS, ids=lambda each: type(each).__name__)
def test_keys_are_those_that_kafka_writes(key: ConsumerGroupKey, written: str) -> None:
    assert CONSUMER_GROUP_RECORDS.encode_key(key).hex() == written
    assert CONSUMER_GROUP_RECORDS.decode_key(bytes.fromhex(written)) == key


@pytest.mark.parametrize(("key", "value", "written"), VALUES, ids=lambda each: type(each).__name__)
def test_values_are_those_that_kafka_writes(key: ConsumerGroupKey, value: ConsumerGroupValue, written: str) -> None:
    assert CONSUMER_GROUP_RECORDS.encode_value(value).hex() == written
    assert CONSUMER_GROUP_RECORDS.decode_value(key, bytes.fromhex(written)) == value


def test_keys_of_other_kinds_are_left_alone() -> None:
    assert CONSUMER_GROUP_RECORDS.decode_key(GroupMetadataKey("group").encode()) is None
    assert CONSUMER_GROUP_RECORDS.decode_key(b"\x00\x0bwhatever a share group writes") is None


@pytest.mark.parametrize(("key", "value", "written"), VALUES, ids=lambda each: type(each).__name__)
def test_a_value_that_is_cut_or_longer_is_refused(key: ConsumerGroupKey, value: ConsumerGroupValue, written: str) -> None:
    data = bytes.fromhex(written)
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError):
            CONSUMER_GROUP_RECORDS.decode_value(key, data[:size])
    with pytest.raises(InvalidRecordError, match="ends at position"):
        CONSUMER_GROUP_RECORDS.decode_value(key, data + b"\0")


def test_a_value_of_a_newer_program_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="newer program"):
        CONSUMER_GROUP_RECORDS.decode_value(KEYS[0][0], b"\0\1" + bytes.fromhex(VALUES[0][2])[2:])


@given(st.sampled_from([key for key, _ in KEYS]), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(key: ConsumerGroupKey, data: bytes) -> None:
    try:
        value = CONSUMER_GROUP_RECORDS.decode_value(key, b"\0\0" + data)
    except InvalidRecordError:
        return
    assert CONSUMER_GROUP_RECORDS.decode_value(key, CONSUMER_GROUP_RECORDS.encode_value(value)) == value


@given(st.binary(max_size=80))
def test_any_key_is_read_passed_over_or_refused(data: bytes) -> None:
    try:
        key = CONSUMER_GROUP_RECORDS.decode_key(data)
    except InvalidRecordError:
        return
    assert key is None or CONSUMER_GROUP_RECORDS.encode_key(key) == data


def test_a_member_of_which_kafka_says_that_it_speaks_no_classic_protocol() -> None:
    """As brokers of Kafka write it: the tagged field is there and empty."""
    [(key, value, written)] = [each for each in VALUES if each[2].endswith("ffffffff0000")]
    said = bytes.fromhex(written[:-2] + "01000100")
    assert CONSUMER_GROUP_RECORDS.decode_value(key, said) == value
