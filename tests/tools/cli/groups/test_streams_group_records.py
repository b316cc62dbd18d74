"""Streams groups and their members in words, as `__consumer_offsets` has them."""

from __future__ import annotations

import pytest
from triolog.protocol.coordinator import streams_group_records as records
from triolog.protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS

from .test_group_records import words

MEMBER = {"group_id": "g", "member_id": "m"}
TASKS = [records.StreamsGroupTaskIds(subtopology_id="0", partitions=[0, 2])]
HELD = [records.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[0], assignment_epochs=[3])]
TOPIC = records.StreamsGroupTopicInfo(name="c", partitions=0, replication_factor=0, topic_configs=[])


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            records.StreamsGroupMemberMetadataKey(**MEMBER),
            records.StreamsGroupMemberMetadataValue(
                client_id="app", client_host="/10.0.0.7", topology_epoch=1, process_id="p", client_tags=[]
            ),
            "Streams group g: member m of client app at /10.0.0.7, process p, topology epoch 1",
        ),
        (records.StreamsGroupMemberMetadataKey(**MEMBER), None, "Streams group g: member m gone"),
        (
            records.StreamsGroupMetadataKey(group_id="g"),
            records.StreamsGroupMetadataValue(epoch=3, metadata_hash=1),
            "Streams group g: epoch 3",
        ),
        (
            records.StreamsGroupTargetAssignmentMetadataKey(group_id="g"),
            records.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=3),
            "Streams group g: target assignment epoch 3",
        ),
        (
            records.StreamsGroupTargetAssignmentMemberKey(**MEMBER),
            records.StreamsGroupTargetAssignmentMemberValue(active_tasks=TASKS, standby_tasks=[], warmup_tasks=[]),
            "Streams group g: member m is to have 0_0, 0_2 active, nothing standby",
        ),
        (
            records.StreamsGroupCurrentMemberAssignmentKey(**MEMBER),
            records.StreamsGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                state=1,
                active_tasks=HELD,
                standby_tasks=[],
                warmup_tasks=[],
                active_tasks_pending_revocation=[],
                standby_tasks_pending_revocation=HELD,
                warmup_tasks_pending_revocation=[],
            ),
            "Streams group g: tasks of member m at epoch 3: 0_0 active, nothing standby; to be given up: nothing active, 0_0 "
            "standby",
        ),
        (
            records.StreamsGroupTopologyKey(group_id="g"),
            records.StreamsGroupTopologyValue(
                epoch=1,
                subtopologies=[
                    records.StreamsGroupSubtopology(
                        subtopology_id="0",
                        source_topics=["t"],
                        source_topic_regex=[],
                        state_changelog_topics=[TOPIC],
                        repartition_sink_topics=[],
                        repartition_source_topics=[],
                        copartition_groups=[],
                    )
                ],
            ),
            "Streams group g: topology epoch 1: 0 reads t, has c",
        ),
        (records.StreamsGroupTopologyKey(group_id="g"), None, "Streams group g: topology gone"),
    ],
)
def test_a_streams_group(key: records.StreamsGroupKey, value: records.StreamsGroupValue | None, told: str) -> None:
    assert words(*STREAMS_GROUP_RECORDS.encode((key, value))) == told
