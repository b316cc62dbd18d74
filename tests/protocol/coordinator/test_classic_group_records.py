"""What consumers tell each other: bytes that Apache Kafka 4.1.0's generated classes wrote, later versions, damage.

The record of a classic group: bytes that Apache Kafka 4.1.0's generated classes wrote, damage.
"""

from __future__ import annotations

import struct

import attrs
import pytest
from triolog.protocol.coordinator import classic_group_records
from triolog.protocol.errors import InvalidRecordError, RemoteProtocolError

SUBSCRIPTION = classic_group_records.ConsumerProtocolSubscription(
    topics=["orders", "réturns"],
    user_data=b"\x09\x08",
    owned_partitions=[classic_group_records.ConsumerPartitions(topic="orders", partitions=[0, 2])],
    generation_id=5,
    rack_id="a",
)
ASSIGNMENT = classic_group_records.ConsumerProtocolAssignment(
    assigned_partitions=[classic_group_records.ConsumerPartitions(topic="orders", partitions=[0, 1, 2])], user_data=b"\x07"
)
TOPICS = "0000000200066f7264657273000872c3a97475726e73000000020908"
OWNED = "0000000100066f7264657273000000020000000000000002"
SUBSCRIPTIONS = [
    ("0000" + TOPICS, attrs.evolve(SUBSCRIPTION, owned_partitions=[], generation_id=-1, rack_id=None)),
    ("0001" + TOPICS + OWNED, attrs.evolve(SUBSCRIPTION, generation_id=-1, rack_id=None)),
    ("0002" + TOPICS + OWNED + "00000005", attrs.evolve(SUBSCRIPTION, rack_id=None)),
    ("0003" + TOPICS + OWNED + "00000005" + "000161", SUBSCRIPTION),
]
NOTHING = classic_group_records.ConsumerProtocolSubscription(topics=[], owned_partitions=[])
NOTHINGS = [
    "000000000000ffffffff",
    "000100000000ffffffff00000000",
    "000200000000ffffffff00000000ffffffff",
    "000300000000ffffffff00000000ffffffffffff",
]
ASSIGNED = "0000000100066f7264657273000000030000000000000001000000020000000107"


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_have_the_bytes_that_kafka_writes(version: int) -> None:
    data, expected = SUBSCRIPTIONS[version]
    assert classic_group_records.encode_consumer_protocol(SUBSCRIPTION, version).hex() == data
    assert classic_group_records.decode_subscription(bytes.fromhex(data)) == expected
    assert classic_group_records.subscribed_topics(bytes.fromhex(data)) == ["orders", "réturns"]
    assert classic_group_records.encode_consumer_protocol(NOTHING, version).hex() == NOTHINGS[version]
    assert classic_group_records.decode_subscription(bytes.fromhex(NOTHINGS[version])) == NOTHING


@pytest.mark.parametrize("version", range(4))
def test_assignments_have_the_bytes_that_kafka_writes(version: int) -> None:
    data = f"{version:04x}{ASSIGNED}"
    assert classic_group_records.encode_consumer_protocol(ASSIGNMENT, version).hex() == data
    assert classic_group_records.decode_assignment(bytes.fromhex(data)) == ASSIGNMENT
    nothing = bytes.fromhex(f"{version:04x}00000000ffffffff")
    assert classic_group_records.decode_assignment(nothing) == classic_group_records.decode_assignment(b"")


def test_a_later_version_is_read_as_the_highest_one_known() -> None:
    data = bytes.fromhex("0009" + SUBSCRIPTIONS[3][0][4:]) + b"what nobody knows yet"
    assert classic_group_records.decode_subscription(data) == SUBSCRIPTION
    assert classic_group_records.decode_assignment(bytes.fromhex(f"0009{ASSIGNED}") + b"more") == ASSIGNMENT


def test_topics_are_known_although_the_rest_cannot_be_read() -> None:
    data = bytes.fromhex("0001" + TOPICS + "7fffffff")
    with pytest.raises(RemoteProtocolError):
        classic_group_records.decode_subscription(data)
    assert classic_group_records.subscribed_topics(data) == ["orders", "réturns"]


def test_a_subscription_cut_anywhere_or_of_a_negative_version_is_refused() -> None:
    whole = bytes.fromhex(SUBSCRIPTIONS[3][0])
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            classic_group_records.decode_subscription(whole[:size])
    with pytest.raises(RemoteProtocolError, match="version -1"):
        classic_group_records.decode_subscription(b"\xff\xff" + bytes(8))


FIRST = classic_group_records.MemberMetadata(
    member_id="client-1",
    group_instance_id="instance",
    client_id="client",
    client_host="/127.0.0.1",
    rebalance_timeout=300_000,
    session_timeout=45_000,
    subscription=b"\1\2\3",
    assignment=b"\4\5",
)
SECOND = classic_group_records.MemberMetadata(
    member_id="client-2",
    client_id="",
    client_host="/::1",
    rebalance_timeout=60_000,
    session_timeout=6_000,
    subscription=b"",
    assignment=b"",
)
GROUP = classic_group_records.GroupMetadataValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="client-1",
    current_state_timestamp=1700000000000,
    members=[FIRST, SECOND],
)
EMPTY = classic_group_records.GroupMetadataValue(
    protocol_type="", generation=0, current_state_timestamp=1700000000000, members=[]
)

WRITTEN = {
    0: "00000008636f6e73756d657200000007000572616e67650008636c69656e742d31000000020008636c69656e742d310006636c69656e74000a2f31"
    "32372e302e302e310000afc8000000030102030000000204050008636c69656e742d32000000042f3a3a31000017700000000000000000",
    1: "00010008636f6e73756d657200000007000572616e67650008636c69656e742d31000000020008636c69656e742d310006636c69656e74000a2f31"
    "32372e302e302e31000493e00000afc8000000030102030000000204050008636c69656e742d32000000042f3a3a310000ea60000017700000000000"
    "000000",
    2: "00020008636f6e73756d657200000007000572616e67650008636c69656e742d310000018bcfe56800000000020008636c69656e742d310006636c"
    "69656e74000a2f3132372e302e302e31000493e00000afc8000000030102030000000204050008636c69656e742d32000000042f3a3a310000ea6000"
    "0017700000000000000000",
    3: "00030008636f6e73756d657200000007000572616e67650008636c69656e742d310000018bcfe56800000000020008636c69656e742d310008696e"
    "7374616e63650006636c69656e74000a2f3132372e302e302e31000493e00000afc8000000030102030000000204050008636c69656e742d32ffff00"
    "0000042f3a3a310000ea60000017700000000000000000",
    4: "000409636f6e73756d6572000000070672616e676509636c69656e742d310000018bcfe568000309636c69656e742d3109696e7374616e63650763"
    "6c69656e740b2f3132372e302e302e31000493e00000afc8040102030304050009636c69656e742d320001052f3a3a310000ea600000177001010000",
}
WRITTEN_EMPTY = {
    0: "0000000000000000ffffffff00000000",
    1: "0001000000000000ffffffff00000000",
    2: "0002000000000000ffffffff0000018bcfe5680000000000",
    3: "0003000000000000ffffffff0000018bcfe5680000000000",
    4: "0004010000000000000000018bcfe568000100",
}


def as_version(value: classic_group_records.GroupMetadataValue, version: int) -> classic_group_records.GroupMetadataValue:
    """What is left of it in a version."""
    timestamp = value.current_state_timestamp if version >= 2 else classic_group_records.NO_TIMESTAMP
    members = [
        attrs.evolve(
            each,
            group_instance_id=each.group_instance_id if version >= 3 else None,
            rebalance_timeout=each.rebalance_timeout if version >= 1 else classic_group_records.NO_TIMEOUT,
        )
        for each in value.members
    ]
    return attrs.evolve(value, current_state_timestamp=timestamp, members=members)


def test_the_value_has_the_bytes_that_kafka_writes() -> None:
    assert GROUP.encode().hex() == WRITTEN[3]
    assert EMPTY.encode().hex() == WRITTEN_EMPTY[3]


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_the_value_is_read(version: int) -> None:
    assert classic_group_records.decode_group_metadata_value(bytes.fromhex(WRITTEN[version])) == as_version(GROUP, version)
    assert classic_group_records.decode_group_metadata_value(memoryview(bytes.fromhex(WRITTEN_EMPTY[version]))) == as_version(
        EMPTY, version
    )


@pytest.mark.parametrize("version", range(5))
def test_a_value_cut_anywhere_is_refused(version: int) -> None:
    whole = bytes.fromhex(WRITTEN[version])
    for size in range(len(whole)):
        with pytest.raises(InvalidRecordError):
            classic_group_records.decode_group_metadata_value(whole[:size])
    with pytest.raises(InvalidRecordError, match="ends at position"):
        classic_group_records.decode_group_metadata_value(whole + b"\0")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("0005", "version 5, 0 to 4 are known"),
        ("ffff", "version -1"),
        ("0003ffff00000000ffffffff0000018bcfe5680000000000", "protocol_type has a length of -1"),
        ("0003000000000000ffffffff0000018bcfe568007fffffff", "claims 2147483647 elements"),
        ("00030002c32800000000ffffffff0000018bcfe5680000000000", "not UTF-8"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(data: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        classic_group_records.decode_group_metadata_value(bytes.fromhex(data))


def test_a_text_that_is_too_long_is_not_written() -> None:
    with pytest.raises(struct.error):
        attrs.evolve(GROUP, leader="a" * 32768).encode()
