"""Records of Streams groups: bytes that Apache Kafka 4.3.1's GroupCoordinatorRecordSerde wrote, round trips, damage."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator import streams_group_records as records
from triolog.protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS, StreamsGroupKey, StreamsGroupValue
from triolog.protocol.errors import InvalidRecordError

GROUP: Final = {"group_id": "g"}
MEMBER: Final = {"group_id": "g", "member_id": "m"}
STANDBY: Final = records.StreamsGroupCurrentTaskIds(subtopology_id="1", partitions=[1])

WRITTEN: Final[list[tuple[StreamsGroupKey, str, StreamsGroupValue, str]]] = [
    (
        records.StreamsGroupMetadataKey(**GROUP),
        "0011000167",
        records.StreamsGroupMetadataValue(epoch=7, metadata_hash=-5),
        "000000000007fffffffffffffffb00",
    ),
    (
        records.StreamsGroupMetadataKey(**GROUP),
        "0011000167",
        records.StreamsGroupMetadataValue(
            epoch=7,
            metadata_hash=-5,
            validated_topology_epoch=2,
            last_assignment_configs=[records.StreamsGroupKeyValue(key="num.standby.replicas", value="1")],
        ),
        "000000000007fffffffffffffffb02000400000002011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    (
        records.StreamsGroupMemberMetadataKey(**MEMBER),
        "001300016700016d",
        records.StreamsGroupMemberMetadataValue(
            instance_id="i",
            rack_id="r",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            topology_epoch=1,
            process_id="p",
            user_endpoint=records.StreamsGroupEndpoint(host="e", port=65_535),
            client_tags=[records.StreamsGroupKeyValue(key="k", value="v")],
        ),
        "0000026902720263032f680000ea60000000010270010265ffff0002026b02760000",
    ),
    (
        records.StreamsGroupMemberMetadataKey(**MEMBER),
        "001300016700016d",
        records.StreamsGroupMemberMetadataValue(
            client_id="c", client_host="/h", topology_epoch=0, process_id="p", client_tags=[]
        ),
        "000000000263032f68ffffffff000000000270ff0100",
    ),
    (
        records.StreamsGroupTargetAssignmentMetadataKey(**GROUP),
        "0014000167",
        records.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=7),
        "00000000000700",
    ),
    (
        records.StreamsGroupTargetAssignmentMetadataKey(**GROUP),
        "0014000167",
        records.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp=1_700_000_000_000),
        "0000000000070100080000018bcfe56800",
    ),
    (
        records.StreamsGroupTargetAssignmentMemberKey(**MEMBER),
        "001500016700016d",
        records.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=[records.StreamsGroupTaskIds(subtopology_id="0", partitions=[0, 2])],
            standby_tasks=[records.StreamsGroupTaskIds(subtopology_id="1", partitions=[1])],
            warmup_tasks=[],
        ),
        "0000020230030000000000000002000202310200000001000100",
    ),
    (
        records.StreamsGroupCurrentMemberAssignmentKey(**MEMBER),
        "001600016700016d",
        records.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=2,
            active_tasks=[records.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[0, 2], assignment_epochs=[5, 6])],
            standby_tasks=[STANDBY],
            warmup_tasks=[],
            active_tasks_pending_revocation=[
                records.StreamsGroupCurrentTaskIds(subtopology_id="0", partitions=[1], assignment_epochs=[4])
            ],
            standby_tasks_pending_revocation=[],
            warmup_tasks_pending_revocation=[],
        ),
        "00000000000700000006020202300300000000000000020100090300000005000000060202310200000001000102023002000000010100050200000004"
        "010100",
    ),
    (
        records.StreamsGroupTopologyKey(**GROUP),
        "0017000167",
        records.StreamsGroupTopologyValue(
            epoch=3,
            subtopologies=[
                records.StreamsGroupSubtopology(
                    subtopology_id="0",
                    source_topics=["s"],
                    source_topic_regex=[],
                    state_changelog_topics=[
                        records.StreamsGroupTopicInfo(
                            name="c",
                            partitions=0,
                            replication_factor=1,
                            topic_configs=[records.StreamsGroupKeyValue(key="k", value="v")],
                        )
                    ],
                    repartition_sink_topics=["x"],
                    repartition_source_topics=[
                        records.StreamsGroupTopicInfo(name="r", partitions=4, replication_factor=0, topic_configs=[])
                    ],
                    copartition_groups=[
                        records.StreamsGroupCopartitionGroup(
                            source_topics=[0], source_topic_regex=[], repartition_source_topics=[0]
                        )
                    ],
                )
            ],
        ),
        "0000000000030202300202730102026300000000000102026b0276000002027802027200000004000001000202000001020000000000",
    ),
]
IDS: Final = [f"{type(value).__name__}-{number}" for number, (_, _, value, _) in enumerate(WRITTEN)]


@pytest.mark.parametrize(("key", "key_bytes", "value", "value_bytes"), WRITTEN, ids=IDS)
def test_records_are_those_that_kafka_writes(
    key: StreamsGroupKey, key_bytes: str, value: StreamsGroupValue, value_bytes: str
) -> None:
    assert STREAMS_GROUP_RECORDS.encode((key, value)) == (bytes.fromhex(key_bytes), bytes.fromhex(value_bytes))
    assert STREAMS_GROUP_RECORDS.decode_key(bytes.fromhex(key_bytes)) == key
    assert STREAMS_GROUP_RECORDS.decode_value(key, bytes.fromhex(value_bytes)) == value


def test_what_takes_away_has_no_value() -> None:
    assert STREAMS_GROUP_RECORDS.encode((WRITTEN[0][0], None)) == (bytes.fromhex("0011000167"), None)


@pytest.mark.parametrize("version", [3, 15, 16, 18, 24])
def test_keys_of_other_kinds_are_left_alone(version: int) -> None:
    assert STREAMS_GROUP_RECORDS.decode_key(version.to_bytes(2) + b"whatever another kind of group writes") is None


@pytest.mark.parametrize(("key", "key_bytes", "value", "value_bytes"), WRITTEN, ids=IDS)
def test_a_value_that_is_cut_or_longer_is_refused(
    key: StreamsGroupKey, key_bytes: str, value: StreamsGroupValue, value_bytes: str
) -> None:
    data = bytes.fromhex(value_bytes)
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError):
            STREAMS_GROUP_RECORDS.decode_value(key, data[:size])
    with pytest.raises(InvalidRecordError, match="ends at position"):
        STREAMS_GROUP_RECORDS.decode_value(key, data + b"\0")


@given(st.sampled_from([key for key, *_ in WRITTEN]), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(key: StreamsGroupKey, data: bytes) -> None:
    try:
        value = STREAMS_GROUP_RECORDS.decode_value(key, b"\0\0" + data)
    except InvalidRecordError:
        return
    assert STREAMS_GROUP_RECORDS.decode_value(key, STREAMS_GROUP_RECORDS.encode_value(value)) == value
