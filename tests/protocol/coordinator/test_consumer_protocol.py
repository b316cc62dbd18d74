"""What consumers tell each other: bytes that Apache Kafka 4.1.0's generated classes wrote, later versions, damage."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.coordinator import classic_group_records
from triolog.protocol.errors import RemoteProtocolError

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
