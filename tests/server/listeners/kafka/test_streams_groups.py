"""Groups of Kafka Streams applications (KIP-1071) over the wire. Codes and messages are those of Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.authorization import AclOperation, ResourceType

from tests.support.kafka_login import allow
from tests.support.kafka_server import TOPIC, KafkaServer
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.streams_members import CHANGELOG, GROUP, MEMBER, PLAIN, REPARTITION, heartbeat, internal, part, topology

from .test_groups import joining


@pytest.fixture
def settings() -> dict[str, Any]:
    return {
        "lenient": True,
        "group_streams_heartbeat_interval_ms": 100,
        "group_streams_max_size": 2,
        "group_streams_initial_rebalance_delay_ms": 0,
    }


def tasks(parts: list[dict[str, Any]] | None) -> dict[str, list[int]] | None:
    return None if parts is None else {each.subtopology_id: each.partitions for each in parts}


def statuses(answer: Any) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in answer.status]


async def refused(client: KafkaStream, epoch: int = 0, **fields: Any) -> tuple[int, str | None]:
    answer = await client.call(heartbeat(epoch, **fields), 0)
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.active_tasks, answer.status) == (0, 0, None, [])
    return answer.error_code, answer.error_message


async def described(client: KafkaStream, group: str = GROUP) -> Any:
    request = ask("StreamsGroupDescribe", group_ids=[group], include_authorized_operations=False)
    return (await client.call(request, 0)).groups[0]


async def test_a_member_joins_gets_internal_topics_and_tasks_and_leaves(kafka: KafkaServer, client: KafkaStream) -> None:
    answer = await client.call(heartbeat(), 0)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, MEMBER, 2, 100)
    assert tasks(answer.active_tasks) == {}
    assert statuses(answer) == [(3, f"Internal topics are missing: {CHANGELOG}, {REPARTITION}")]
    assert kafka.broker.topics.partition_count(REPARTITION) == kafka.broker.topics.partition_count(CHANGELOG) == 3
    assert kafka.broker.topics.describe_config(CHANGELOG)["cleanup.policy"][0] == "compact"
    assert (await described(client)).group_state == "NotReady"
    answer = await client.call(heartbeat(2), 0)
    assert (answer.member_epoch, statuses(answer)) == (3, [])
    assert (tasks(answer.active_tasks), tasks(answer.standby_tasks)) == ({"0": [0, 1, 2], "1": [0, 1, 2]}, {})
    answer = await client.call(heartbeat(3), 0)
    assert (answer.member_epoch, answer.active_tasks, answer.standby_tasks, answer.warmup_tasks) == (3, None, None, None)
    answer = await client.call(heartbeat(-1), 0)
    assert (answer.error_code, answer.member_id, answer.member_epoch, statuses(answer)) == (0, MEMBER, -1, [])
    assert (await described(client)).group_state == "Empty"


async def test_what_is_wrong_with_a_heartbeat(client: KafkaStream) -> None:
    invalid, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND
    ids = [{"subtopology_id": "0", "partitions": [0]}]
    offsets = [{"subtopology_id": "0", "partition": 0, "offset": 0}]
    for fields, message in (
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"task_offsets": offsets}, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": []}, "TaskEndOffsets are not supported yet."),
        ({"warmup_tasks": ids, "member_id": ""}, "WarmupTasks are not supported yet."),
        (
            {"topology": topology(part("0", source_topics=[TOPIC], source_topic_regex=["t.*"]))},
            "Regular expressions for source topics are not supported yet.",
        ),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": ids}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
    ):
        assert await refused(client, **fields) == (invalid, message)
    assert await refused(client, -2) == (invalid, "InstanceId can't be null.")
    assert await refused(client, -3) == (invalid, "MemberEpoch is -3, but must be greater than or equal to -2.")
    assert await refused(client, 1, active_tasks=[]) == (invalid, "If one task-type is non-null, all must be non-null.")
    assert await refused(client, 1, topology=PLAIN) == (invalid, "Topology can only be provided when (re-)joining.")
    assert await refused(client, 1) == (unknown, f"Streams group {GROUP} not found.")
    assert await refused(client, -1) == (unknown, f"Group {GROUP} not found.")
    await client.call(heartbeat(), 0)
    assert await refused(client, 1, member_id="b") == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member b is not a member of group {GROUP}.",
    )
    assert (await refused(client, 9))[0] == (await refused(client, 1))[0] == ErrorCode.FENCED_MEMBER_EPOCH
    assert await refused(client, topology=PLAIN) == (invalid, "Topology updates are not supported yet.")
    owned = {"standby_tasks": [], "warmup_tasks": []}
    await client.call(heartbeat(2), 0)
    for task, message in (
        ({"subtopology_id": "7", "partitions": [0]}, "Subtopology 7 does not exist in the topology."),
        (
            {"subtopology_id": "0", "partitions": [3]},
            "Task 3 for subtopology 0 is invalid. Number of tasks for this subtopology: 3",
        ),
    ):
        assert await refused(client, 3, active_tasks=[task], **owned) == (invalid, message)
    await client.call(heartbeat(member_id="b"), 0)
    assert await refused(client, member_id="c") == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The streams group has reached its maximum capacity of 2 members.",
    )


IMPOSSIBLE: list[tuple[Any, str]] = [
    (
        topology(part("0", source_topics=["__consumer_offsets"])),
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
    ),
    (topology(part("0", source_topics=["bad name"])), "Topic names bad name are not valid topic names."),
    (
        topology(part("0", source_topics=[TOPIC], state_changelog_topics=[internal("c", 3)])),
        "Changelog topic c must have an undefined partition count, but it is set to 3.",
    ),
    (topology(part("0", state_changelog_topics=[internal("c")])), "No source topics found for subtopology 0"),
    (
        topology(part("0", source_topics=[TOPIC]), part("1", repartition_source_topics=[internal("r")])),
        "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never "
        "used as a sink topic.",
    ),
    (
        topology(
            part("0", source_topics=[TOPIC]),
            part("1", repartition_source_topics=[internal("r")], repartition_sink_topics=["r"]),
        ),
        "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot "
        "be resolved.",
    ),
]


async def test_a_topology_that_cannot_be_is_refused(client: KafkaStream) -> None:
    for said, message in IMPOSSIBLE:
        assert await refused(client, topology=said) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
        assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND, message


async def test_topics_that_are_missing_or_do_not_fit_are_told_until_they_do(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("five", 5)
    joined = part("0", source_topics=["late", "five"], copartition_groups=[{"source_topics": [0, 1]}])
    answer = await client.call(heartbeat(topology=topology(joined)), 0)
    assert statuses(answer) == [(1, "Source topics late are missing.")]
    await kafka.broker.topics.create("late", 4)
    answer = await client.call(heartbeat(2), 0)
    assert statuses(answer) == [(2, "Following topics do not have the same number of partitions: [{five=5, late=4}]")]
    assert (await described(client)).group_state == "NotReady"
    await kafka.broker.topics.create_partitions("late", 5)
    answer = await client.call(heartbeat(answer.member_epoch), 0)
    assert (statuses(answer), tasks(answer.active_tasks)) == ([], {"0": [0, 1, 2, 3, 4]})


async def test_an_older_topology_is_told_that_it_is_stale(client: KafkaStream) -> None:
    newer = topology(*PLAIN["subtopologies"], epoch=3)
    await client.call(heartbeat(topology=newer), 0)
    answer = await client.call(heartbeat(member_id="b", topology=PLAIN), 0)
    assert statuses(answer) == [(0, "The member's topology epoch 0 is behind the group's topology epoch 3.")]


async def test_the_end_of_an_application_is_asked_for_and_told_to_all(client: KafkaStream) -> None:
    await client.call(heartbeat(topology=PLAIN), 0)
    await client.call(heartbeat(member_id="b", topology=PLAIN), 0)
    detail = f"Streams group member {MEMBER} encountered a fatal error and requested a shutdown for the entire application."
    assert statuses(await client.call(heartbeat(2, shutdown_application=True), 0)) == [(4, detail)]
    await client.call(heartbeat(-1), 0)
    assert statuses(await client.call(heartbeat(0, member_id="b", topology=PLAIN), 0)) == [(4, detail)]
    await client.call(heartbeat(-1, member_id="b"), 0)
    assert statuses(await client.call(heartbeat(topology=PLAIN), 0)) == []


async def test_members_hear_where_the_state_of_others_is(client: KafkaStream) -> None:
    here, there = {"host": "here", "port": 1}, {"host": "there", "port": 65_535}
    answer = await client.call(heartbeat(topology=PLAIN, user_endpoint=here), 0)
    assert answer.endpoint_information_epoch == 0
    answer = await client.call(heartbeat(member_id="b", topology=PLAIN, user_endpoint=there, process_id="p2"), 0)
    assert answer.endpoint_information_epoch == 1
    found = {each.user_endpoint.host: each for each in answer.partitions_by_user_endpoint}
    assert found["there"].user_endpoint.port == 65_535
    assert {name: [(each.topic, each.partitions) for each in told.active_partitions] for name, told in found.items()} == {
        "here": [(TOPIC, [0, 1, 2])],
        "there": [],
    }
    answer = await client.call(heartbeat(3, member_id="b", endpoint_information_epoch=1), 0)
    assert (answer.endpoint_information_epoch, answer.partitions_by_user_endpoint) == (1, None)


async def test_a_group_is_described_with_its_topology_and_tasks(client: KafkaStream) -> None:
    tags = [{"key": "zone", "value": "a"}]
    endpoint = {"host": "h", "port": 80}
    await client.call(heartbeat(client_tags=tags, user_endpoint=endpoint, rack_id="r"), 0)
    group = await described(client)
    assert [topic.partitions for each in group.topology.subtopologies for topic in each.state_changelog_topics] == [0]
    await client.call(heartbeat(2), 0)
    group = await described(client)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 3, 3)
    zero, one = group.topology.subtopologies
    assert (zero.subtopology_id, zero.source_topics, zero.repartition_sink_topics) == ("0", [TOPIC], [REPARTITION])
    assert [(each.name, each.partitions) for each in one.repartition_source_topics] == [(REPARTITION, 3)]
    assert [(each.name, each.partitions) for each in one.state_changelog_topics] == [(CHANGELOG, 3)]
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.rack_id, member.process_id) == (MEMBER, 3, "r", "p1")
    assert [{"key": tag.key, "value": tag.value} for tag in member.client_tags] == tags
    assert (member.user_endpoint.host, member.user_endpoint.port) == ("h", 80)
    assert (member.topology_epoch, member.is_classic) == (0, False)
    assert (
        tasks(member.assignment.active_tasks)
        == tasks(member.target_assignment.active_tasks)
        == {"0": [0, 1, 2], "1": [0, 1, 2]}
    )


async def test_a_name_is_of_one_kind_at_a_time(client: KafkaStream) -> None:
    await client.call(heartbeat(topology=PLAIN), 0)
    listed = (await client.call(ask("ListGroups", states_filter=[], types_filter=["streams"]), 5)).groups
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed] == [
        (GROUP, "streams", "Stable", "streams")
    ]
    assert (await client.call(joining(group_id=GROUP), 9)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = ErrorCode.GROUP_ID_NOT_FOUND
    share = ask("ShareGroupHeartbeat", group_id=GROUP, member_id="s", member_epoch=0, subscribed_topic_names=[TOPIC])
    answer = await client.call(share, 1)
    assert (answer.error_code, answer.error_message) == (unknown, f"Group {GROUP} is not a share group.")
    (told,) = (await client.call(ask("DescribeGroups", groups=[GROUP]), 6)).groups
    assert (told.error_code, told.group_state) == (unknown, "Dead")
    share.group_id = "shared"
    assert (await client.call(share, 1)).error_code == 0
    assert await refused(client, group_id="shared") == (unknown, "Group shared is not a streams group.")
    assert (await described(client, "shared")).error_message == "Group shared is not a streams group."
    (deleted,) = (await client.call(ask("DeleteGroups", groups_names=[GROUP]), 2)).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP


async def test_a_group_without_members_makes_way_for_a_classic_one_and_back(client: KafkaStream) -> None:
    await client.call(heartbeat(topology=PLAIN), 0)
    await client.call(heartbeat(-1), 0)
    answer = await client.call(joining(group_id=GROUP), 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await client.call(heartbeat(topology=PLAIN), 0)).error_code == 0
    assert (await described(client)).group_state == "Stable"


async def committed(client: KafkaStream, epoch: int, member_id: str, topic: str = TOPIC, partition: int = 0) -> int:
    request = ask(
        "OffsetCommit",
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            {"name": topic, "partitions": [{"partition_index": partition, "committed_offset": 1, "committed_metadata": None}]}
        ],
    )
    return int((await client.call(request, 9)).topics[0].partitions[0].error_code)


async def test_offsets_are_committed_by_who_has_had_the_task_since_then(kafka: KafkaServer, client: KafkaStream) -> None:
    stale = ErrorCode.STALE_MEMBER_EPOCH
    await kafka.broker.topics.create("other")
    await client.call(heartbeat(topology=PLAIN), 0)
    assert [await committed(client, epoch, MEMBER) for epoch in (2, 1, 3)] == [0, stale, stale]
    assert await committed(client, 2, "nobody") == await committed(client, -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    await client.call(heartbeat(member_id="b", topology=PLAIN, process_id="p2"), 0)
    answer = await client.call(heartbeat(2), 0)
    owned = {"active_tasks": answer.active_tasks, "standby_tasks": [], "warmup_tasks": []}
    answer = await client.call(heartbeat(2, **owned), 0)
    assert answer.member_epoch == 3
    (kept,) = owned["active_tasks"]
    (lost,) = {0, 1, 2} - set(kept.partitions)
    assert await committed(client, 2, MEMBER, partition=kept.partitions[0]) == 0
    assert await committed(client, 2, MEMBER, partition=lost) == stale
    assert await committed(client, 2, MEMBER, topic="other") == stale
    group = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": 3, "topics": None}
    for asked, code in ((3, 0), (2, stale)):
        group["member_epoch"] = asked
        answer = await client.call(ask("OffsetFetch", groups=[group], require_stable=False), 9)
        assert answer.groups[0].error_code == code
    group["member_id"] = "nobody"
    answer = await client.call(ask("OffsetFetch", groups=[group], require_stable=False), 9)
    assert answer.groups[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("settings", [{"acl_enable": True, "lenient": True, "group_streams_initial_rebalance_delay_ms": 0}])
async def test_what_a_client_may_do_with_streams_groups(kafka: KafkaServer, client: KafkaStream) -> None:
    denied, hidden = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await client.call(heartbeat(), 0)).error_code == denied
    assert (await described(client)).error_code == denied
    await allow(kafka, AclOperation.READ, ResourceType.GROUP, GROUP)
    assert (await client.call(heartbeat(), 0)).error_code == hidden
    for name in (TOPIC, REPARTITION, CHANGELOG):
        await allow(kafka, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    answer = await client.call(heartbeat(), 0)
    missing = f"Internal topics are missing: {CHANGELOG}, {REPARTITION}"
    assert statuses(answer) == [(3, f"{missing}; Unauthorized to CREATE on topics {CHANGELOG}, {REPARTITION}.")]
    await allow(kafka, AclOperation.CREATE, ResourceType.TOPIC, CHANGELOG)
    await allow(kafka, AclOperation.CREATE, ResourceType.TOPIC, REPARTITION)
    assert statuses(await client.call(heartbeat(2), 0)) == [(3, missing)]
    assert statuses(await client.call(heartbeat(2), 0)) == []
