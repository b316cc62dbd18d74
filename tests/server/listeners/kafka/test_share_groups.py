"""Share groups (KIP-932) over the wire. Codes and messages are those of Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MIN

from tests.support.kafka_server import TOPIC, KafkaServer, batch, produce_request
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

GROUP = "group"
MEMBER = "member-1"
JOIN = ask("ShareGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC])
BEAT = ask("ShareGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=2)
LEAVE = ask("ShareGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=-1)
DESCRIBE = ask("ShareGroupDescribe", group_ids=[GROUP], include_authorized_operations=False)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"lenient": True, "group_share_heartbeat_interval_ms": 100, "group_share_max_size": 2}


def assigned(assignment: Any) -> dict[bytes, list[int]]:
    return {each.topic_id: each.partitions for each in assignment.topic_partitions}


async def refused(client: KafkaStream, **changes: Any) -> tuple[int, str]:
    answer = await client.call(with_changes(JOIN, **changes), 1)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (None, 0, 0, None)
    return answer.error_code, answer.error_message


def with_changes(request: Any, **changes: Any) -> Any:
    fields = {name: getattr(request, name) for name in ("group_id", "member_id", "member_epoch", "subscribed_topic_names")}
    return ask("ShareGroupHeartbeat", **{**fields, **changes})


async def offsets(client: KafkaStream, *topics: tuple[str, list[int]], group: str = GROUP, version: int = 1) -> Any:
    asked = [{"topic_name": name, "partitions": numbers} for name, numbers in topics]
    request = ask("DescribeShareGroupOffsets", groups=[{"group_id": group, "topics": asked if topics else None}])
    (answer,) = (await client.call(request, version)).groups
    return answer


async def altered(client: KafkaStream, *topics: tuple[str, dict[int, int]], group: str = GROUP) -> Any:
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": n, "start_offset": at} for n, at in each.items()]}
        for name, each in topics
    ]
    return await client.call(ask("AlterShareGroupOffsets", group_id=group, topics=asked), 0)


async def deleted(client: KafkaStream, *topics: str, group: str = GROUP) -> Any:
    asked = [{"topic_name": name} for name in topics]
    return await client.call(ask("DeleteShareGroupOffsets", group_id=group, topics=asked), 0)


def shown(group: Any) -> dict[str, dict[int, tuple[int, int, int]]]:
    """(start offset, lag, error) by partition and topic."""
    return {
        topic.topic_name: {each.partition_index: (each.start_offset, each.lag, each.error_code) for each in topic.partitions}
        for topic in group.topics
    }


async def test_a_member_joins_beats_and_leaves(kafka: KafkaServer, client: KafkaStream) -> None:
    answer = await client.call(JOIN, 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, MEMBER, 2, 100)
    assert assigned(answer.assignment) == {}
    answer = await client.call(BEAT, 1)
    assert (answer.member_epoch, assigned(answer.assignment)) == (3, {kafka.topic_id(): [0, 1, 2]})
    answer = await client.call(with_changes(BEAT, member_epoch=3), 1)
    assert (answer.member_epoch, answer.assignment) == (3, None)
    answer = await client.call(LEAVE, 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, MEMBER, -1, 0)


async def test_what_is_wrong_with_a_heartbeat(client: KafkaStream) -> None:
    invalid, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND
    assert await refused(client, group_id="") == (invalid, "GroupId can't be empty.")
    assert await refused(client, rack_id="") == (invalid, "RackId can't be empty.")
    assert await refused(client, member_epoch=-2) == (invalid, "MemberEpoch is invalid.")
    assert await refused(client, subscribed_topic_names=None) == (invalid, "SubscribedTopicNames must be set in first request.")
    assert (await refused(client, member_id=""))[0] == (await refused(client, member_id="m" * 37))[0] == invalid
    assert await refused(client, member_epoch=3) == (unknown, "Share group group not found.")
    assert await refused(client, member_epoch=-1) == (unknown, "Group group not found.")
    for name in "ab":
        await client.call(with_changes(JOIN, member_id=name), 1)
    assert await refused(client) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 2 members.",
    )
    assert (await refused(client, member_id="a", member_epoch=9))[0] == ErrorCode.FENCED_MEMBER_EPOCH
    assert await refused(client, member_id="c", member_epoch=-1) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member c is not a member of group group.",
    )


@pytest.mark.parametrize("settings", [{"group_share_heartbeat_interval_ms": 100}])
async def test_a_strict_server_asks_for_no_more_heartbeats_than_kafka_does(client: KafkaStream) -> None:
    assert (await client.call(JOIN, 1)).heartbeat_interval_ms == 5_000


async def test_groups_are_described_and_listed(kafka: KafkaServer, client: KafkaStream) -> None:
    await client.call(with_changes(JOIN, rack_id="rack", subscribed_topic_names=[TOPIC, "later"]), 1)
    await client.call(BEAT, 1)
    asked = ask("ShareGroupDescribe", group_ids=[GROUP, "unknown", "", GROUP], include_authorized_operations=True)
    group, unknown, nameless = (await client.call(asked, 1)).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 3, 3)
    assert (group.assignor_name, group.authorized_operations > 0) == ("simple", True)
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == (MEMBER, "rack", 3)
    assert (member.client_id, member.client_host) == ("kafka-wire", "/127.0.0.1")
    assert member.subscribed_topic_names == ["later", TOPIC]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (kafka.topic_id(), TOPIC, [0, 1, 2])
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found.")
    assert (unknown.group_state, unknown.authorized_operations) == ("", INT32_MIN)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    (group,) = (await client.call(ask("ListGroups", states_filter=["stable"], types_filter=["Share"]), 5)).groups
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (GROUP, "share", "Stable", "share")
    await client.call(LEAVE, 1)
    (group,) = (await client.call(DESCRIBE, 1)).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.members) == ("Empty", 4, 3, [])


async def test_offsets_are_altered_described_and_deleted(kafka: KafkaServer, client: KafkaStream) -> None:
    await client.call(produce_request(batch("a", "b", "c")), 9)
    answer = await altered(client, (TOPIC, {0: 1, 1: 0, 7: 1}), ("nowhere", {0: 1}))
    assert (answer.error_code, answer.error_message) == (0, None)
    codes = [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in answer.responses]
    assert codes == [[(0, 0), (1, 0), (7, 3)], [(0, 3)]]
    assert [topic.topic_id for topic in answer.responses] == [kafka.topic_id(), bytes(16)]
    group = await offsets(client)
    assert (group.group_id, group.error_code, shown(group)) == (GROUP, 0, {TOPIC: {0: (1, 2, 0), 1: (0, 0, 0)}})
    assert shown(await offsets(client, version=0)) == {TOPIC: {0: (1, -1, 0), 1: (0, -1, 0)}}, "lag came with version 1"
    group = await offsets(client, (TOPIC, [0, 2, 9]), ("nowhere", [0]))
    assert shown(group) == {TOPIC: {0: (1, 2, 0), 2: (-1, -1, 0), 9: (-1, -1, 0)}, "nowhere": {0: (-1, -1, 0)}}
    assert [topic.topic_id for topic in group.topics] == [kafka.topic_id(), bytes(16)]
    answer = await deleted(client, TOPIC, "nowhere")
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [(TOPIC, 0), ("nowhere", 3)]
    assert (await offsets(client)).topics == []
    (again,) = (await deleted(client, TOPIC)).responses
    assert (again.error_code, again.error_message) == (3, "There is no offset information to delete.")
    assert again.topic_id == bytes(16)


async def test_whole_requests_are_refused_on_top(client: KafkaStream) -> None:
    await client.call(JOIN, 1)
    for answer in (await altered(client, (TOPIC, {0: 1})), await deleted(client, TOPIC)):
        assert (answer.error_code, answer.error_message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        assert answer.responses == []
    for answer in (await altered(client, group=""), await deleted(client, TOPIC, group="")):
        assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_GROUP_ID, [])
    assert (await deleted(client, TOPIC, group="unknown")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
