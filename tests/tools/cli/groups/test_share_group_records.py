"""Share groups and their members in words, as `__consumer_offsets` has them."""

from __future__ import annotations

import uuid

import pytest
from triolog.protocol.coordinator import share_group_records as records
from triolog.protocol.coordinator.consumer_group_records import ConsumerGroupTopicPartitions
from triolog.protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS
from triolog.server.storage.disk.checkpoints import encode_uuid

from .test_group_records import words

TOPIC_ID = uuid.UUID(int=5)
ASSIGNED = [ConsumerGroupTopicPartitions(topic_id=TOPIC_ID.bytes, partitions=[0, 2])]
PLACES = f"{encode_uuid(TOPIC_ID)}-0, {encode_uuid(TOPIC_ID)}-2"
MEMBER = {"group_id": "g", "member_id": "m"}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            records.ShareGroupMemberMetadataKey(**MEMBER),
            records.ShareGroupMemberMetadataValue(client_id="app", client_host="/10.0.0.7", subscribed_topic_names=["t", "u"]),
            "share group g: member m of client app at /10.0.0.7, subscribed to t, u",
        ),
        (records.ShareGroupMemberMetadataKey(**MEMBER), None, "share group g: member m gone"),
        (
            records.ShareGroupMetadataKey(group_id="g"),
            records.ShareGroupMetadataValue(epoch=3, metadata_hash=1),
            "share group g: epoch 3",
        ),
        (records.ShareGroupMetadataKey(group_id="g"), None, "share group g: gone"),
        (
            records.ShareGroupTargetAssignmentMetadataKey(group_id="g"),
            records.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=3),
            "share group g: target assignment epoch 3",
        ),
        (
            records.ShareGroupTargetAssignmentMemberKey(**MEMBER),
            records.ShareGroupTargetAssignmentMemberValue(topic_partitions=ASSIGNED),
            f"share group g: member m is to have {PLACES}",
        ),
        (
            records.ShareGroupCurrentMemberAssignmentKey(**MEMBER),
            records.ShareGroupCurrentMemberAssignmentValue(
                member_epoch=3, previous_member_epoch=2, state=0, assigned_partitions=ASSIGNED
            ),
            f"share group g: assignment of member m at epoch 3, has {PLACES}",
        ),
        (
            records.ShareGroupStatePartitionMetadataKey(group_id="g"),
            records.ShareGroupStatePartitionMetadataValue(
                initializing_topics=[],
                initialized_topics=[
                    records.ShareGroupTopicPartitionsInfo(topic_id=TOPIC_ID.bytes, topic_name="t", partitions=[0, 1])
                ],
                deleting_topics=[records.ShareGroupTopicInfo(topic_id=TOPIC_ID.bytes, topic_name="u")],
            ),
            "share group g: share states of t-0, t-1; being made of nothing; being deleted of u",
        ),
    ],
)
def test_a_share_group(key: records.ShareGroupKey, value: records.ShareGroupValue | None, told: str) -> None:
    assert words(*SHARE_GROUP_RECORDS.encode((key, value))) == told
