"""Records of groups whose assignments the server makes, and of share groups' states: bytes that Kafka's classes wrote (4.1.0
for consumer groups, else 4.3.1), and damage. Of classic groups, and what their consumers tell each other: bytes of Kafka 4.1.0,
later versions, damage. `fuzzing/test_replay.py` feeds the same decoders with anything else."""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.coordinator import classic_group_records
from triolog.protocol.coordinator import consumer_group_records as consumer
from triolog.protocol.coordinator import share_group_records as share
from triolog.protocol.coordinator import streams_group_records as streams
from triolog.protocol.coordinator.offsets import GroupMetadataKey
from triolog.protocol.errors import InvalidRecordError, RemoteProtocolError

Row = tuple[Any, str, Any, str]
"""A key and its bytes, a value and its bytes."""

TOPIC_ID: Final = bytes(range(16))
SHARE_TOPIC_ID: Final = bytes(range(1, 17))
MEMBER: Final = {"group_id": "group", "member_id": "member"}
G: Final = {"group_id": "g"}
M: Final = {"group_id": "g", "member_id": "m"}
STANDBY: Final = streams.StreamsGroupCurrentTaskIds(subtopology_id="1", partitions=[1])

CONSUMER: Final[list[Row]] = [
    (
        consumer.ConsumerGroupMetadataKey(group_id="group"),
        "0003000567726f7570",
        consumer.ConsumerGroupMetadataValue(epoch=7, metadata_hash=-2),
        "000000000007010008fffffffffffffffe",
    ),
    (
        consumer.ConsumerGroupMetadataKey(group_id="group"),
        "0003000567726f7570",
        consumer.ConsumerGroupMetadataValue(epoch=7),
        "00000000000700",
    ),
    (
        consumer.ConsumerGroupPartitionMetadataKey(group_id="group"),
        "0004000567726f7570",
        consumer.ConsumerGroupPartitionMetadataValue(
            topics=[
                consumer.ConsumerGroupTopicMetadata(
                    topic_id=TOPIC_ID,
                    topic_name="topic",
                    num_partitions=2,
                    partition_metadata=[consumer.ConsumerGroupPartitionRacks(partition=1, racks=["rack"])],
                )
            ]
        ),
        "000002000102030405060708090a0b0c0d0e0f06746f70696300000002020000000102057261636b000000",
    ),
    (
        consumer.ConsumerGroupMemberMetadataKey(**MEMBER),
        "0005000567726f757000066d656d626572",
        consumer.ConsumerGroupMemberMetadataValue(
            instance_id="instance",
            rack_id="rack",
            client_id="client",
            client_host="/127.0.0.1",
            subscribed_topic_names=["a", "b"],
            subscribed_topic_regex="a.*",
            rebalance_timeout_ms=300_000,
            server_assignor="uniform",
            classic_member_metadata=consumer.ConsumerGroupClassicMemberMetadata(
                session_timeout_ms=45_000,
                supported_protocols=[consumer.ConsumerGroupClassicProtocol(name="range", metadata=b"\1\2\3")],
            ),
        ),
        "000009696e7374616e6365057261636b07636c69656e740b2f3132372e302e302e31030261026204612e2a000493e008756e69666f726d010012010000"
        "afc8020672616e6765040102030000",
    ),
    (
        consumer.ConsumerGroupMemberMetadataKey(**MEMBER),
        "0005000567726f757000066d656d626572",
        consumer.ConsumerGroupMemberMetadataValue(client_id="client", client_host="/127.0.0.1", subscribed_topic_names=[]),
        "0000000007636c69656e740b2f3132372e302e302e310100ffffffff0000",
    ),
    (
        consumer.ConsumerGroupTargetAssignmentMetadataKey(group_id="group"),
        "0006000567726f7570",
        consumer.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=9),
        "00000000000900",
    ),
    (
        consumer.ConsumerGroupTargetAssignmentMemberKey(**MEMBER),
        "0007000567726f757000066d656d626572",
        consumer.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[consumer.ConsumerGroupTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 2])]
        ),
        "000002000102030405060708090a0b0c0d0e0f0300000000000000020000",
    ),
    (
        consumer.ConsumerGroupCurrentMemberAssignmentKey(**MEMBER),
        "0008000567726f757000066d656d626572",
        consumer.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=1,
            assigned_partitions=[
                consumer.ConsumerGroupCurrentPartitions(topic_id=TOPIC_ID, partitions=[0], assignment_epochs=[2])
            ],
            partitions_pending_revocation=[consumer.ConsumerGroupCurrentPartitions(topic_id=TOPIC_ID, partitions=[1, 2])],
        ),
        "000000000005000000040102000102030405060708090a0b0c0d0e0f0200000000"
        "0100050200000002"
        "02000102030405060708090a0b0c0d0e0f0300000001000000020000",
    ),
    (
        consumer.ConsumerGroupRegularExpressionKey(group_id="group", regular_expression="a.*"),
        "0010000567726f75700003612e2a",
        consumer.ConsumerGroupRegularExpressionValue(topics=["a", "ab"], version=12, timestamp=1_700_000_000_000),
        "0000030261036162000000000000000c0000018bcfe5680000",
    ),
]

SHARE: Final[list[Row]] = [
    (
        share.ShareGroupMemberMetadataKey(**M),
        "000a00016700016d",
        share.ShareGroupMemberMetadataValue(rack_id="r", client_id="c", client_host="/h", subscribed_topic_names=["a", "b"]),
        "000002720263032f68030261026200",
    ),
    (
        share.ShareGroupMemberMetadataKey(**M),
        "000a00016700016d",
        share.ShareGroupMemberMetadataValue(client_id="c", client_host="/h", subscribed_topic_names=[]),
        "0000000263032f680100",
    ),
    (
        share.ShareGroupMetadataKey(**G),
        "000b000167",
        share.ShareGroupMetadataValue(epoch=7, metadata_hash=-5),
        "000000000007fffffffffffffffb00",
    ),
    (
        share.ShareGroupTargetAssignmentMetadataKey(**G),
        "000c000167",
        share.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=7),
        "00000000000700",
    ),
    (
        share.ShareGroupTargetAssignmentMetadataKey(**G),
        "000c000167",
        share.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp=1_700_000_000_000),
        "0000000000070100080000018bcfe56800",
    ),
    (
        share.ShareGroupTargetAssignmentMemberKey(**M),
        "000d00016700016d",
        share.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[consumer.ConsumerGroupTopicPartitions(topic_id=SHARE_TOPIC_ID, partitions=[0, 2])]
        ),
        "0000020102030405060708090a0b0c0d0e0f100300000000000000020000",
    ),
    (
        share.ShareGroupCurrentMemberAssignmentKey(**M),
        "000e00016700016d",
        share.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=0,
            assigned_partitions=[consumer.ConsumerGroupTopicPartitions(topic_id=SHARE_TOPIC_ID, partitions=[1])],
        ),
        "0000000000070000000600020102030405060708090a0b0c0d0e0f1002000000010000",
    ),
    (
        share.ShareGroupStatePartitionMetadataKey(**G),
        "000f000167",
        share.ShareGroupStatePartitionMetadataValue(
            initializing_topics=[share.ShareGroupTopicPartitionsInfo(topic_id=SHARE_TOPIC_ID, topic_name="a", partitions=[0])],
            initialized_topics=[
                share.ShareGroupTopicPartitionsInfo(topic_id=SHARE_TOPIC_ID, topic_name="b", partitions=[1, 2])
            ],
            deleting_topics=[share.ShareGroupTopicInfo(topic_id=SHARE_TOPIC_ID, topic_name="c")],
        ),
        "0000020102030405060708090a0b0c0d0e0f100261020000000000020102030405060708090a0b0c0d0e0f1002620300000001000000020002010203"
        "0405060708090a0b0c0d0e0f1002630000",
    ),
]

STREAMS: Final[list[Row]] = [
    (
        streams.StreamsGroupMetadataKey(**G),
        "0011000167",
        streams.StreamsGroupMetadataValue(epoch=7, metadata_hash=-5),
        "000000000007fffffffffffffffb00",
    ),
    (
        streams.StreamsGroupMetadataKey(**G),
        "0011000167",
        streams.StreamsGroupMetadataValue(
            epoch=7,
            metadata_hash=-5,
            validated_topology_epoch=2,
            last_assignment_configs=[streams.StreamsGroupKeyValue(key="num.standby.replicas", value="1")],
        ),
        "000000000007fffffffffffffffb02000400000002011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    (
        streams.StreamsGroupMemberMetadataKey(**M),
        "001300016700016d",
        streams.StreamsGroupMemberMetadataValue(
            instance_id="i",
            rack_id="r",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            topology_epoch=1,
            process_id="p",
            user_endpoint=streams.StreamsGroupEndpoint(host="e", port=65_535),
            client_tags=[streams.StreamsGroupKeyValue(key="k", value="v")],
        ),
        "0000026902720263032f680000ea60000000010270010265ffff0002026b02760000",
    ),
    (
        streams.StreamsGroupMemberMetadataKey(**M),
        "001300016700016d",
        streams.StreamsGroupMemberMetadataValue(
            client_id="c", client_host="/h", topology_epoch=0, process_id="p", client_tags=[]
        ),
        "000000000263032f68ffffffff000000000270ff0100",
    ),
    (
        streams.StreamsGroupTargetAssignmentMetadataKey(**G),
        "0014000167",
        streams.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=7),
        "00000000000700",
    ),
    (
        streams.StreamsGroupTargetAssignmentMetadataKey(**G),
        "0014000167",
        streams.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp=1_700_000_000_000),
        "0000000000070100080000018bcfe56800",
    ),
    (
        streams.StreamsGroupTargetAssignmentMemberKey(**M),
        "001500016700016d",
        streams.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=[streams.StreamsGroupTaskIds(subtopology_id="0", partitions=[0, 2])],
            standby_tasks=[streams.StreamsGroupTaskIds(subtopology_id="1", partitions=[1])],
            warmup_tasks=[],
        ),
        "0000020230030000000000000002000202310200000001000100",
    ),
    (
        streams.StreamsGroupCurrentMemberAssignmentKey(**M),
        "001600016700016d",
        streams.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=2,
            active_tasks=[streams.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[0, 2], assignment_epochs=[5, 6])],
            standby_tasks=[STANDBY],
            warmup_tasks=[],
            active_tasks_pending_revocation=[
                streams.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[1], assignment_epochs=[4])
            ],
            standby_tasks_pending_revocation=[],
            warmup_tasks_pending_revocation=[],
        ),
        "00000000000700000006020202300300000000000000020100090300000005000000060202310200000001000102023002000000010100050200000004"
        "010100",
    ),
    (
        streams.StreamsGroupTopologyKey(**G),
        "0017000167",
        streams.StreamsGroupTopologyValue(
            epoch=3,
            subtopologies=[
                streams.StreamsGroupSubtopology(
                    subtopology_id="0",
                    source_topics=["s"],
                    source_topic_regex=[],
                    state_changelog_topics=[
                        streams.StreamsGroupTopicInfo(
                            name="c",
                            partitions=0,
                            replication_factor=1,
                            topic_configs=[streams.StreamsGroupKeyValue(key="k", value="v")],
                        )
                    ],
                    repartition_sink_topics=["x"],
                    repartition_source_topics=[
                        streams.StreamsGroupTopicInfo(name="r", partitions=4, replication_factor=0, topic_configs=[])
                    ],
                    copartition_groups=[
                        streams.StreamsGroupCopartitionGroup(
                            source_topics=[0], source_topic_regex=[], repartition_source_topics=[0]
                        )
                    ],
                )
            ],
        ),
        "0000000000030202300202730102026300000000000102026b0276000002027802027200000004000001000202000001020000000000",
    ),
]

P: Final = {"group_id": "group", "topic_id": TOPIC_ID, "partition": 3}
SNAPSHOT: Final = share.ShareSnapshotKey(**P)  # type: ignore[arg-type]
SNAPSHOT_KEY: Final = "0000000567726f7570000102030405060708090a0b0c0d0e0f00000003"
SHARE_STATES: Final[list[Row]] = [
    (
        SNAPSHOT,
        SNAPSHOT_KEY,
        share.ShareSnapshotValue(
            snapshot_epoch=2,
            state_epoch=5,
            leader_epoch=1,
            start_offset=100,
            delivery_complete_count=7,
            create_timestamp=11,
            write_timestamp=12,
            state_batches=[share.ShareStateBatch(first_offset=101, last_offset=107, delivery_state=2, delivery_count=1)],
        ),
        "00000000000200000005000000010000000000000064000000000000000b000000000000000c020000000000000065000000000000006b020001"
        "0001000400000007",
    ),
    (
        SNAPSHOT,
        SNAPSHOT_KEY,
        share.ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=0,
            leader_epoch=0,
            start_offset=-1,
            create_timestamp=11,
            write_timestamp=12,
            state_batches=[],
        ),
        "0000000000000000000000000000ffffffffffffffff000000000000000b000000000000000c0100",
    ),
    (
        share.ShareUpdateKey(**P),  # type: ignore[arg-type]
        "0001000567726f7570000102030405060708090a0b0c0d0e0f00000003",
        share.ShareUpdateValue(
            snapshot_epoch=2,
            leader_epoch=1,
            start_offset=-1,
            delivery_complete_count=0,
            state_batches=[share.ShareStateBatch(first_offset=1, last_offset=1, delivery_state=4, delivery_count=5)],
        ),
        "00000000000200000001ffffffffffffffff02000000000000000100000000000000010400050001000400000000",
    ),
]


class _ShareStates:
    """As RecordKinds are."""

    decode_key = staticmethod(share.SHARE_STATE_RECORDS.decode_key)
    decode_value = staticmethod(share.SHARE_STATE_RECORDS.decode_value)

    def encode(self, record: tuple[Any, Any]) -> tuple[bytes, bytes | None]:
        key, value = record
        return share.SHARE_STATE_RECORDS.encode_key(key), None if value is None else share.SHARE_STATE_RECORDS.encode_value(
            value
        )


KINDS: Final[dict[str, tuple[Any, list[Row]]]] = {
    "consumer": (consumer.CONSUMER_GROUP_RECORDS, CONSUMER),
    "share": (share.SHARE_GROUP_RECORDS, SHARE),
    "share states": (_ShareStates(), SHARE_STATES),
    "streams": (streams.STREAMS_GROUP_RECORDS, STREAMS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_those_that_kafka_writes(kind: str) -> None:
    kinds, rows = KINDS[kind]
    for key, key_bytes, value, value_bytes in rows:
        assert kinds.encode((key, value)) == (bytes.fromhex(key_bytes), bytes.fromhex(value_bytes)), value
        assert kinds.decode_key(bytes.fromhex(key_bytes)) == key
        assert kinds.decode_value(key, bytes.fromhex(value_bytes)) == value
        assert kinds.encode((key, None)) == (bytes.fromhex(key_bytes), None), "a tombstone"


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_cut_or_longer_or_of_a_newer_program_is_refused(kind: str) -> None:
    kinds, rows = KINDS[kind]
    for key, _, _, value_bytes in rows:
        data = bytes.fromhex(value_bytes)
        for size in range(len(data)):
            with pytest.raises(InvalidRecordError):
                kinds.decode_value(key, data[:size])
        with pytest.raises(InvalidRecordError, match="ends at position"):
            kinds.decode_value(key, data + b"\0")
        with pytest.raises(InvalidRecordError, match="newer program"):
            kinds.decode_value(key, b"\0\1" + data[2:])


@pytest.mark.parametrize(
    ("kind", "versions"),
    [("consumer", (0, 2, 9, 10, 11, 17)), ("share", (3, 9, 16, 17)), ("share states", (2,)), ("streams", (3, 15, 16, 18, 24))],
)
def test_keys_of_other_kinds_are_left_alone(kind: str, versions: tuple[int, ...]) -> None:
    kinds, _ = KINDS[kind]
    for version in versions:
        assert kinds.decode_key(version.to_bytes(2) + b"whatever another kind of group writes") is None, version
    assert kinds.decode_key(GroupMetadataKey("group").encode()) is None


def test_a_member_of_which_kafka_says_that_it_speaks_no_classic_protocol() -> None:
    """As brokers of Kafka write it: the tagged field is there and empty."""
    [(key, _, value, written)] = [row for row in CONSUMER if row[3].endswith("ffffffff0000")]
    said = bytes.fromhex(written[:-2] + "01000100")
    assert consumer.CONSUMER_GROUP_RECORDS.decode_value(key, said) == value


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
