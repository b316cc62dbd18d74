"""Consumer groups (KIP-848) over the wire: what answers have, in each version, and what is refused. Share groups (KIP-932)
over the wire. Codes and messages are those of Apache Kafka 4.3.1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.extras import how_to_install
from triolog.protocol.limits import INT32_MIN

from tests.support.kafka_server import TOPIC, KafkaServer, batch, produce_request
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

GROUP = "group"
MEMBER = "member-1"
VERSIONS = (0, 1)

JOIN = ask(
    "ConsumerGroupHeartbeat",
    group_id=GROUP,
    member_id=MEMBER,
    rebalance_timeout_ms=60_000,
    subscribed_topic_names=[TOPIC],
    topic_partitions=[],
)
BEAT = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=2)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {
        "lenient": True,
        "group_consumer_heartbeat_interval_ms": 100,
        "group_share_heartbeat_interval_ms": 100,
        "group_share_max_size": 2,
    }


def assigned(assignment: Any) -> dict[bytes, list[int]]:
    return {each.topic_id: each.partitions for each in assignment.topic_partitions}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_joins_beats_and_leaves(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    answer = await client.call(JOIN, version)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, MEMBER, 2, 100)
    assert assigned(answer.assignment) == {kafka.topic_id(): [0, 1, 2]}
    owned = [{"topic_id": kafka.topic_id(), "partitions": [0, 1, 2]}]
    beat = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=2, topic_partitions=owned)
    answer = await client.call(beat, version)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)
    answer = await client.call(attrs.evolve(BEAT, member_epoch=-1), version)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, -1, None)


async def test_version_0_makes_member_ids_and_version_1_demands_them(client: KafkaStream) -> None:
    answer = await client.call(attrs.evolve(JOIN, member_id=""), 0)
    assert (answer.error_code, len(answer.member_id)) == (0, 36)
    answer = await client.call(attrs.evolve(JOIN, member_id=""), 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (BEAT, ErrorCode.GROUP_ID_NOT_FOUND),
        (attrs.evolve(JOIN, group_id=""), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, server_assignor="mine"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (attrs.evolve(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_a_refusal_has_an_error_a_reason_and_nothing_else(client: KafkaStream, request_: Any, error: ErrorCode) -> None:
    answer = await client.call(request_, 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.assignment) == (error, None, 0, None)
    assert answer.error_message


@pytest.mark.parametrize("settings", [{"group_consumer_heartbeat_interval_ms": 100, "group_share_heartbeat_interval_ms": 100}])
async def test_a_strict_server_asks_for_no_more_heartbeats_than_kafka(client: KafkaStream) -> None:
    assert (await client.call(JOIN, 1)).heartbeat_interval_ms == 5_000
    assert (await client.call(with_changes(SHARE_JOIN, group_id="shared"), 1)).heartbeat_interval_ms == 5_000


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_is_described_with_what_its_members_have(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await client.call(JOIN, 1)
    await client.call(attrs.evolve(JOIN, member_id="member-2", instance_id="static", rack_id="rack"), 1)
    answer = await client.call(ask("ConsumerGroupDescribe", group_ids=[GROUP], include_authorized_operations=False), version)
    [group] = answer.groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Reconciling", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("uniform", INT32_MIN)
    first, second = group.members
    assert (first.member_id, first.member_epoch, first.client_id, first.subscribed_topic_names) == (
        MEMBER,
        2,
        "kafka-wire",
        [TOPIC],
    )
    [topic] = first.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (kafka.topic_id(), TOPIC, [0, 1, 2])
    assert [len(each.partitions) for each in first.target_assignment.topic_partitions] == [2]
    assert (second.instance_id, second.rack_id, second.assignment.topic_partitions) == ("static", "rack", [])
    assert second.member_type == (1 if version else -1)
    assert (first.subscribed_topic_regex, second.subscribed_topic_regex) == ("", "")


async def test_description_of_a_member_has_partitions_that_it_has_to_give_up(kafka: KafkaServer, client: KafkaStream) -> None:
    await client.call(JOIN, 1)
    await client.call(attrs.evolve(JOIN, member_id="member-2"), 1)
    owned = [{"topic_id": kafka.topic_id(), "partitions": [0, 1, 2]}]
    beat = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=2, topic_partitions=owned)
    assert len((await client.call(beat, 1)).assignment.topic_partitions[0].partitions) == 2, "it learns of it"
    [group] = (await client.call(ask("ConsumerGroupDescribe", group_ids=[GROUP]), 1)).groups
    assert [sorted(each.partitions) for each in group.members[0].assignment.topic_partitions] == [[0, 1, 2]]


async def test_groups_of_other_kinds_and_groups_that_are_not_there_are_not_found(client: KafkaStream) -> None:
    answer = await client.call(ask("ConsumerGroupDescribe", group_ids=["nobody"], include_authorized_operations=True), 1)
    [group] = answer.groups
    assert (group.error_code, group.group_id, group.members) == (ErrorCode.GROUP_ID_NOT_FOUND, "nobody", [])
    await client.call(JOIN, 1)
    [classic] = (await client.call(ask("DescribeGroups", groups=[GROUP], include_authorized_operations=False), 6)).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    [classic] = (await client.call(ask("DescribeGroups", groups=[GROUP], include_authorized_operations=False), 5)).groups
    assert (classic.error_code, classic.group_state) == (0, "Dead")


async def test_groups_are_listed_with_their_type_and_deleted_when_they_are_empty(client: KafkaStream) -> None:
    await client.call(JOIN, 1)
    [listed] = (await client.call(ask("ListGroups", states_filter=["stable"], types_filter=["consumer"]), 5)).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        GROUP,
        "consumer",
        "Stable",
        "consumer",
    )
    assert (await client.call(ask("ListGroups", states_filter=[], types_filter=["classic"]), 5)).groups == []
    deletion = ask("DeleteGroups", groups_names=[GROUP])
    assert (await client.call(deletion, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await client.call(attrs.evolve(BEAT, member_epoch=-1), 1)
    assert (await client.call(deletion, 2)).results[0].error_code == 0
    assert (await client.call(deletion, 2)).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)])
async def test_a_member_that_is_late_is_told_so_in_a_transaction_in_words_that_its_version_knows(
    kafka: KafkaServer, client: KafkaStream, version: int, error: ErrorCode
) -> None:
    await client.call(JOIN, 1)
    producer = await client.call(ask("InitProducerId", transactional_id="mover", transaction_timeout_ms=60_000), 4)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    body = ask(
        "TxnOffsetCommit",
        transactional_id="mover",
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=7,
        member_id=MEMBER,
        topics=[{"name": TOPIC, "topic_id": kafka.topic_id(), "partitions": [partition]}],
    )
    [topic] = (await client.call(body, version)).topics
    assert topic.partitions[0].error_code == error


async def test_a_subscription_by_pattern_has_the_partitions_of_what_matches(kafka: KafkaServer, client: KafkaStream) -> None:
    pytest.importorskip("re2")
    answer = await client.call(attrs.evolve(JOIN, subscribed_topic_names=[], subscribed_topic_regex="to.*"), 1)
    assert (answer.error_code, assigned(answer.assignment)) == (0, {kafka.topic_id(): [0, 1, 2]})


ROOT = Path(__file__).resolve().parents[4]

WITHOUT_RE2 = """
import json, logging, sys
from pathlib import Path

sys.modules["re2"] = None

import attrs, trio
from tests.server.listeners.kafka.test_consumer_groups import JOIN
from tests.support.brokers import listings
from tests.support.kafka_server import TOPIC, kafka_server
from triolog.protocol.kafka.messages.transactions import ListTransactionsRequest

warnings = []

class Kept(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())

logging.getLogger().addHandler(Kept(logging.WARNING))

async def main(path):
    async with kafka_server(path) as server, server.connected() as client:
        await server.broker.topics.create(TOPIC, 3)
        by_pattern = attrs.evolve(JOIN, subscribed_topic_names=[], subscribed_topic_regex="to.*")
        joins = [await client.call(by_pattern, 1) for _ in range(2)]
        described = [each.group_id for each in await listings(server.broker)]
        by_name = await client.call(JOIN, 1)
        listed = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="m.*")
        found = {
            "joins": [(each.error_code, each.error_message, each.member_epoch) for each in joins],
            "groups": described,
            "by_name": [by_name.error_code, [each.partitions for each in by_name.assignment.topic_partitions]],
            "listed": (await client.call(listed, 2)).error_code,
            "warnings": warnings,
        }
        print(json.dumps(found))

trio.run(main, Path(sys.argv[1]))
"""


@pytest.mark.merge
def test_without_re2_a_pattern_is_refused_at_once_with_the_remedy_and_one_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_RE2, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["groups"] == []
    for code, message, epoch in found["joins"]:
        assert (code, epoch) == (ErrorCode.UNSUPPORTED_VERSION, 0)
        assert how_to_install("regex") in message
        assert "The cluster does not support regular expressions resolution" in message  # the Java client looks for it
    assert found["by_name"] == [0, [[0, 1, 2]]]
    assert found["listed"] == ErrorCode.UNSUPPORTED_VERSION
    [warning] = found["warnings"]
    assert how_to_install("regex") in warning


SHARE_JOIN = ask("ShareGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC])
SHARE_BEAT = ask("ShareGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=2)
SHARE_LEAVE = ask("ShareGroupHeartbeat", group_id=GROUP, member_id=MEMBER, member_epoch=-1)
SHARE_DESCRIBE = ask("ShareGroupDescribe", group_ids=[GROUP], include_authorized_operations=False)


async def refused(client: KafkaStream, **changes: Any) -> tuple[int, str]:
    answer = await client.call(with_changes(SHARE_JOIN, **changes), 1)
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


async def test_a_member_of_a_share_group_joins_beats_and_leaves(kafka: KafkaServer, client: KafkaStream) -> None:
    answer = await client.call(SHARE_JOIN, 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, MEMBER, 2, 100)
    assert assigned(answer.assignment) == {}
    answer = await client.call(SHARE_BEAT, 1)
    assert (answer.member_epoch, assigned(answer.assignment)) == (3, {kafka.topic_id(): [0, 1, 2]})
    answer = await client.call(with_changes(SHARE_BEAT, member_epoch=3), 1)
    assert (answer.member_epoch, answer.assignment) == (3, None)
    answer = await client.call(SHARE_LEAVE, 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, MEMBER, -1, 0)


async def test_a_share_heartbeat_that_is_refused_has_an_error_and_a_reason_alone(client: KafkaStream) -> None:
    """`groups/share/test_groups.py` has every refusal."""
    assert await refused(client, group_id="") == (ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    assert await refused(client, rack_id="") == (ErrorCode.INVALID_REQUEST, "RackId can't be empty.")
    for name in "ab":
        await client.call(with_changes(SHARE_JOIN, member_id=name), 1)
    assert (await refused(client))[0] == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_share_groups_are_described_and_listed(kafka: KafkaServer, client: KafkaStream) -> None:
    await client.call(with_changes(SHARE_JOIN, rack_id="rack", subscribed_topic_names=[TOPIC, "later"]), 1)
    await client.call(SHARE_BEAT, 1)
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
    await client.call(SHARE_LEAVE, 1)
    (group,) = (await client.call(SHARE_DESCRIBE, 1)).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.members) == ("Empty", 4, 3, [])


async def test_share_offsets_are_altered_described_and_deleted(kafka: KafkaServer, client: KafkaStream) -> None:
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
    await client.call(SHARE_JOIN, 1)
    for answer in (await altered(client, (TOPIC, {0: 1})), await deleted(client, TOPIC)):
        assert (answer.error_code, answer.error_message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        assert answer.responses == []
    for answer in (await altered(client, group=""), await deleted(client, TOPIC, group="")):
        assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_GROUP_ID, [])
    assert (await deleted(client, TOPIC, group="unknown")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
