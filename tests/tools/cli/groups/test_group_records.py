"""Groups and their members in words, as `__consumer_offsets` has them."""

from __future__ import annotations

import uuid

import pytest
from triolog.protocol.coordinator import consumer_group_records as records
from triolog.protocol.coordinator.consumer_protocol import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from triolog.protocol.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC, GroupMetadataKey
from triolog.protocol.records.batch import parse_header
from triolog.protocol.types import Record
from triolog.server.groups.consumer_member import MemberState
from triolog.server.storage.disk.checkpoints import encode_uuid
from triolog.tools.cli.dump.coordinator_records import record_in_words

from tests.support.logs import START_MS, batch

HEADER = parse_header(batch(START_MS))
TOPIC_ID = uuid.UUID(int=5)
ASSIGNED = [records.ConsumerGroupTopicPartitions(topic_id=TOPIC_ID.bytes, partitions=[0, 2])]
HELD = [records.ConsumerGroupCurrentPartitions(topic_id=TOPIC_ID.bytes, partitions=[0, 2], assignment_epochs=[2, 3])]
PLACES = f"{encode_uuid(TOPIC_ID)}-0, {encode_uuid(TOPIC_ID)}-2"


def words(key: bytes, value: bytes | None) -> str | None:
    return record_in_words(OFFSETS_TOPIC, HEADER, Record(0, START_MS, key, value))


def member(name: str, assignment: bytes, instance: str | None = None) -> MemberMetadata:
    return MemberMetadata(
        member_id=name,
        group_instance_id=instance,
        client_id="app",
        client_host="/10.0.0.7",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"",
        assignment=assignment,
    )


def group(*members: MemberMetadata, protocol_type: str = "consumer") -> bytes:
    value = GroupMetadataValue(
        protocol_type=protocol_type, generation=4, protocol="range", leader="m1", current_state_timestamp=9, members=[*members]
    )
    return value.encode()


def test_a_classic_group_has_its_members_with_what_they_read() -> None:
    parts = [ConsumerPartitions(topic="flights", partitions=[0, 3])]
    assignment = encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=parts), 1)
    assert words(GroupMetadataKey("readers").encode(), group(member("m1", assignment), member("m2", b"", "rack-2"))) == (
        "group readers: generation 4, consumer protocol range, 2 members"
        "; m1 of client app at /10.0.0.7, leads, has flights-0, flights-3"
        "; m2 of client app at /10.0.0.7, instance rack-2, has nothing"
    )


@pytest.mark.parametrize(("protocol_type", "assignment"), [("connect", b"abc"), ("consumer", b"\0")])
def test_what_is_not_understood_of_an_assignment_is_counted(protocol_type: str, assignment: bytes) -> None:
    told = words(GroupMetadataKey("workers").encode(), group(member("m1", assignment), protocol_type=protocol_type))
    assert told is not None
    assert told.endswith(f"leads, has {len(assignment)} bytes of assignment")


def test_a_group_without_members_says_so() -> None:
    value = GroupMetadataValue(protocol_type="", generation=5, protocol=None, leader=None, members=[])
    assert words(GroupMetadataKey("readers").encode(), value.encode()) == (
        "group readers: generation 5, no protocol -, 0 members"
    )


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            records.ConsumerGroupMetadataKey(group_id="g"),
            records.ConsumerGroupMetadataValue(epoch=3),
            "group g: epoch 3",
        ),
        (records.ConsumerGroupMetadataKey(group_id="g"), None, "group g: gone"),
        (
            records.ConsumerGroupPartitionMetadataKey(group_id="g"),
            records.ConsumerGroupPartitionMetadataValue(
                topics=[
                    records.ConsumerGroupTopicMetadata(
                        topic_id=TOPIC_ID.bytes, topic_name="flights", num_partitions=4, partition_metadata=[]
                    )
                ]
            ),
            "group g: topics flights (4 partitions)",
        ),
        (
            records.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
            records.ConsumerGroupMemberMetadataValue(
                client_id="app",
                client_host="/10.0.0.7",
                instance_id="one",
                subscribed_topic_names=["flights", "weather"],
                subscribed_topic_regex="x.*",
            ),
            "group g: member m of client app at /10.0.0.7, instance one, subscribed to flights, weather, expression 'x.*'",
        ),
        (records.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), None, "group g: member m gone"),
        (
            records.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3),
            "group g: target assignment epoch 3",
        ),
        (
            records.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
            records.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=ASSIGNED),
            f"group g: member m is to have {PLACES}",
        ),
        (
            records.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            records.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned_partitions=[],
                partitions_pending_revocation=HELD,
            ),
            f"group g: assignment of member m unrevoked_partitions at epoch 3, has nothing, gives up {PLACES}",
        ),
        (
            records.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="x.*"),
            records.ConsumerGroupRegularExpressionValue(topics=["xa", "xb"], version=1, timestamp=2),
            "group g: expression 'x.*' matches xa, xb",
        ),
    ],
)
def test_a_group_whose_assignments_the_server_makes(
    key: records.ConsumerGroupKey, value: records.ConsumerGroupValue | None, told: str
) -> None:
    data = None if value is None else records.CONSUMER_GROUP_RECORDS.encode_value(value)
    assert words(records.CONSUMER_GROUP_RECORDS.encode_key(key), data) == told


def test_one_that_cannot_be_read_says_so() -> None:
    key = records.CONSUMER_GROUP_RECORDS.encode_key(records.ConsumerGroupMetadataKey(group_id="g"))
    assert (words(key, b"\0\0\0") or "").startswith("cannot be read: ")
