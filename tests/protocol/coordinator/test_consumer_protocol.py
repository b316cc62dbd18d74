"""What consumers tell each other: bytes that Apache Kafka 4.1.0's generated classes wrote, later versions, damage."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.coordinator import consumer_protocol
from triolog.protocol.errors import RemoteProtocolError

SUBSCRIPTION = consumer_protocol.ConsumerProtocolSubscription(
    topics=["orders", "réturns"],
    user_data=b"\x09\x08",
    owned_partitions=[consumer_protocol.ConsumerPartitions(topic="orders", partitions=[0, 2])],
    generation_id=5,
    rack_id="a",
)
ASSIGNMENT = consumer_protocol.ConsumerProtocolAssignment(
    assigned_partitions=[consumer_protocol.ConsumerPartitions(topic="orders", partitions=[0, 1, 2])], user_data=b"\x07"
)
TOPICS = "0000000200066f7264657273000872c3a97475726e73000000020908"
OWNED = "0000000100066f7264657273000000020000000000000002"
SUBSCRIPTIONS = [
    ("0000" + TOPICS, attrs.evolve(SUBSCRIPTION, owned_partitions=[], generation_id=-1, rack_id=None)),
    ("0001" + TOPICS + OWNED, attrs.evolve(SUBSCRIPTION, generation_id=-1, rack_id=None)),
    ("0002" + TOPICS + OWNED + "00000005", attrs.evolve(SUBSCRIPTION, rack_id=None)),
    ("0003" + TOPICS + OWNED + "00000005" + "000161", SUBSCRIPTION),
]
NOTHING = consumer_protocol.ConsumerProtocolSubscription(topics=[], owned_partitions=[])
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
    assert consumer_protocol.encode_consumer_protocol(SUBSCRIPTION, version).hex() == data
    assert consumer_protocol.decode_subscription(bytes.fromhex(data)) == expected
    assert consumer_protocol.subscribed_topics(bytes.fromhex(data)) == ["orders", "réturns"]
    assert consumer_protocol.encode_consumer_protocol(NOTHING, version).hex() == NOTHINGS[version]
    assert consumer_protocol.decode_subscription(bytes.fromhex(NOTHINGS[version])) == NOTHING


@pytest.mark.parametrize("version", range(4))
def test_assignments_have_the_bytes_that_kafka_writes(version: int) -> None:
    data = f"{version:04x}{ASSIGNED}"
    assert consumer_protocol.encode_consumer_protocol(ASSIGNMENT, version).hex() == data
    assert consumer_protocol.decode_assignment(bytes.fromhex(data)) == ASSIGNMENT
    nothing = bytes.fromhex(f"{version:04x}00000000ffffffff")
    assert consumer_protocol.decode_assignment(nothing) == consumer_protocol.decode_assignment(b"")


def test_a_later_version_is_read_as_the_highest_one_known() -> None:
    data = bytes.fromhex("0009" + SUBSCRIPTIONS[3][0][4:]) + b"what nobody knows yet"
    assert consumer_protocol.decode_subscription(data) == SUBSCRIPTION
    assert consumer_protocol.decode_assignment(bytes.fromhex(f"0009{ASSIGNED}") + b"more") == ASSIGNMENT


def test_topics_are_known_although_the_rest_cannot_be_read() -> None:
    data = bytes.fromhex("0001" + TOPICS + "7fffffff")
    with pytest.raises(RemoteProtocolError):
        consumer_protocol.decode_subscription(data)
    assert consumer_protocol.subscribed_topics(data) == ["orders", "réturns"]


def test_a_subscription_cut_anywhere_or_of_a_negative_version_is_refused() -> None:
    whole = bytes.fromhex(SUBSCRIPTIONS[3][0])
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            consumer_protocol.decode_subscription(whole[:size])
    with pytest.raises(RemoteProtocolError, match="version -1"):
        consumer_protocol.decode_subscription(b"\xff\xff" + bytes(8))
