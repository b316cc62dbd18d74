"""Classic groups over the wire: two members join, sync, beat and leave in every version; what the versions differ in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MIN

from tests.support.kafka_server import KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

GROUP = "group"
JOIN_VERSIONS, SYNC_VERSIONS = range(10), range(6)


@pytest.fixture
def settings() -> dict[str, Any]:
    """A group forms as soon as its members are there."""
    return {"group_initial_rebalance_delay_ms": 0}


def joining(member_id: str = "", *, instance_id: str | None = None, **fields: Any) -> Any:
    given = {
        "group_id": GROUP,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"wants"}],
        **fields,
    }
    return ask("JoinGroup", member_id=member_id, group_instance_id=instance_id, **given)


def syncing(member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> Any:
    return ask(
        "SyncGroup",
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": each, "assignment": assignment} for each, assignment in (assignments or {}).items()],
    )


def beating(member_id: str, generation: int) -> Any:
    return ask("Heartbeat", group_id=GROUP, generation_id=generation, member_id=member_id)


async def joined(client: KafkaStream, version: int = 9, **options: Any) -> Any:
    """Join, the second time with the member id that the first answer has; the group has no other members."""
    answer = await client.call(joining(**options), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await client.call(joining(answer.member_id, **options), version)
    assert answer.error_code == 0
    return answer


async def formed(client: KafkaStream, **options: Any) -> Any:
    """A stable group of one member; the answer to its join."""
    join = await joined(client, **options)
    sync = await client.call(syncing(join.member_id, join.generation_id, {join.member_id: b"all"}), 3)
    assert (sync.error_code, sync.assignment) == (0, b"all")
    return join


@pytest.mark.parametrize("version", JOIN_VERSIONS)
async def test_a_first_join_gets_a_member_id_or_from_version_4_on_is_to_come_with_it(client: KafkaStream, version: int) -> None:
    answer = await client.call(joining(), version)
    assert answer.member_id
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        answer = await client.call(joining(answer.member_id), version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"wants")]
    assert answer.protocol_type == ("consumer" if version >= 7 else None)


async def test_a_join_and_a_sync_that_are_refused_say_why_in_every_version(client: KafkaStream) -> None:
    for version in JOIN_VERSIONS:
        answer = await client.call(joining("nobody"), version)
        assert (answer.error_code, answer.generation_id, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1, "nobody")
        assert answer.protocol_name == (None if version >= 7 else ""), version
    request = syncing("nobody", 0)
    request.protocol_name = None
    for version in SYNC_VERSIONS:
        expected = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else ErrorCode.UNKNOWN_MEMBER_ID
        assert (await client.call(request, version)).error_code == expected, version


async def test_two_members_share_a_generation_and_only_the_leader_sees_both(kafka: KafkaServer, client: KafkaStream) -> None:
    first = await formed(client)
    async with kafka.connected() as other:
        second_id = (await other.call(joining(), 9)).member_id
        await other.send(joining(second_id), 9)  # parked until the first one joins again
        beat = None
        while beat is None or beat.error_code == 0:
            beat = await client.call(beating(first.member_id, first.generation_id), 4)
        assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        answers = {first.member_id: await client.call(joining(first.member_id), 9), second_id: await other.receive()}
        assert {answer.generation_id for answer in answers.values()} == {first.generation_id + 1}
        [leader] = {answer.leader for answer in answers.values()}
        assert {name: len(answer.members) for name, answer in answers.items()} == {
            name: 2 if name == leader else 0 for name in answers
        }
        connections = {first.member_id: client, second_id: other}
        generation, [follower] = first.generation_id + 1, [name for name in answers if name != leader]
        await connections[follower].send(syncing(follower, generation), 5)
        brought = await connections[leader].call(syncing(leader, generation, {leader: b"a", follower: b"b"}), 5)
        assert (brought.assignment, (await connections[follower].receive()).assignment) == (b"a", b"b")


@pytest.mark.parametrize("version", SYNC_VERSIONS)
async def test_a_sync_of_another_generation_is_refused_in_every_version(client: KafkaStream, version: int) -> None:
    join = await joined(client)
    answer = await client.call(syncing(join.member_id, join.generation_id + 1), version)
    assert (answer.error_code, answer.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")
    answer = await client.call(syncing(join.member_id, join.generation_id, {join.member_id: b"all"}), version)
    assert (answer.error_code, answer.assignment) == (0, b"all")
    assert answer.protocol_name == ("range" if version >= 5 else None)


async def test_a_heartbeat_tells_members_from_others_in_every_version(client: KafkaStream) -> None:
    join = await formed(client)
    expected = {
        (join.member_id, join.generation_id): 0,
        (join.member_id, join.generation_id - 1): ErrorCode.ILLEGAL_GENERATION,
        ("nobody", join.generation_id): ErrorCode.UNKNOWN_MEMBER_ID,
    }
    for version in range(5):
        for (member_id, generation), code in expected.items():
            assert (await client.call(beating(member_id, generation), version)).error_code == code, version


@pytest.mark.parametrize("version", range(6))
async def test_members_leave_one_by_one_or_from_version_3_on_several_at_once(client: KafkaStream, version: int) -> None:
    join = await formed(client)
    leaving = [{"member_id": name} for name in ("nobody", join.member_id)]
    if version < 3:
        for name, code in (("nobody", ErrorCode.UNKNOWN_MEMBER_ID), (join.member_id, 0)):
            answer = await client.call(ask("LeaveGroup", group_id=GROUP, member_id=name, members=[]), version)
            assert (answer.error_code, answer.members) == (code, [])
    else:
        answer = await client.call(ask("LeaveGroup", group_id=GROUP, member_id="", members=leaving), version)
        assert answer.error_code == 0
        assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert (await client.call(beating(join.member_id, join.generation_id), 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_stop_of_the_server_does_not_wait_for_a_member_that_waits(fast_path: Path) -> None:
    async with kafka_server(fast_path, group_initial_rebalance_delay_ms=0) as kafka:
        async with kafka.connected() as client, kafka.connected() as other:
            await formed(client)
            second_id = (await other.call(joining(), 9)).member_id
            await other.send(joining(second_id), 9)
            while not any(member.member_id == second_id for member in kafka.broker.groups.describe(GROUP).members):
                await trio.lowlevel.checkpoint()
            with trio.fail_after(10):
                kafka.listener.stop(60)
                assert (await other.receive()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(7))
async def test_a_group_is_described_with_its_members_and_an_unknown_one_is_dead(client: KafkaStream, version: int) -> None:
    join = await formed(client)
    answer = await client.call(ask("DescribeGroups", groups=[GROUP, "unknown"], include_authorized_operations=False), version)
    found, unknown = answer.groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (0, "Stable", "consumer", "range")
    [member] = found.members
    assert (member.member_id, member.member_metadata, member.member_assignment) == (join.member_id, b"wants", b"all")
    assert (member.client_id, member.client_host) == ("kafka-wire", "/127.0.0.1")
    assert found.authorized_operations == INT32_MIN
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_by_state_and_type_as_far_as_the_version_goes(client: KafkaStream, version: int) -> None:
    await formed(client)
    asked = {"everything": ([], []), "stable": (["stable"], []), "empty": (["Empty"], []), "consumer": ([], ["consumer"])}
    found = {}
    for name, (states, types) in asked.items():
        answer = await client.call(ask("ListGroups", states_filter=states, types_filter=types), version)
        found[name] = [(group.group_id, group.protocol_type) for group in answer.groups]
    everything = [(GROUP, "consumer")]
    assert found == {
        "everything": everything,
        "stable": everything,
        "empty": [] if version >= 4 else everything,
        "consumer": [] if version >= 5 else everything,
    }


@pytest.mark.parametrize("version", range(4))
async def test_only_groups_without_members_are_deleted(client: KafkaStream, version: int) -> None:
    join = await formed(client)
    deleting = ask("DeleteGroups", groups_names=[GROUP, "unknown"])
    results = (await client.call(deleting, version)).results
    assert [result.error_code for result in results] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [bool(result.error_message) for result in results] == [version >= 3] * 2
    await client.call(ask("LeaveGroup", group_id=GROUP, member_id=join.member_id, members=[]), 0)
    results = (await client.call(deleting, version)).results
    assert [result.error_code for result in results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert results[0].error_message is None


async def test_group_without_a_name_is_dead_and_cannot_be_deleted(client: KafkaStream) -> None:
    """Kafka serves it: clients could commit offsets under an empty name before KIP-289."""
    for version in range(7):
        [group] = (await client.call(ask("DescribeGroups", groups=[""]), version)).groups
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
        assert (group.group_state, group.error_code) == ("Dead", code), version
    for version in range(4):
        [result] = (await client.call(ask("DeleteGroups", groups_names=[""]), version)).results
        assert result.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_description_of_an_unknown_group_says_so_in_kafka_words(client: KafkaStream) -> None:
    for api in ("ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe"):
        [group] = (await client.call(ask(api, group_ids=["missing"]), 1 if api == "ShareGroupDescribe" else 0)).groups
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found."), api
    [group] = (await client.call(ask("DescribeGroups", groups=["missing"]), 6)).groups
    assert group.error_message == "Group missing not found."
