"""Groups with members of both protocols over the wire: conversions, and each request of a classic member in a consumer group.
Codes are those of Apache Kafka 4.3.1 (`tests/kafka/test_mixed_groups.py` asks both brokers)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode
from triolog.server.config.values import MigrationPolicy

from tests.support.kafka_server import TOPIC, KafkaServer
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

GROUP = "group"
CONSUMER = "consumer-member"
ALL = [0, 1, 2]
JOIN = ask(
    "ConsumerGroupHeartbeat",
    group_id=GROUP,
    member_id=CONSUMER,
    rebalance_timeout_ms=60_000,
    subscribed_topic_names=[TOPIC],
    topic_partitions=[],
)
LEAVE = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=CONSUMER, member_epoch=-1)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"group_initial_rebalance_delay_ms": 0}


def owning(*partitions: int) -> list[ConsumerPartitions]:
    return [ConsumerPartitions(topic=TOPIC, partitions=list(partitions))] if partitions else []


def wants(*owned: int, version: int = 3, topics: tuple[str, ...] = (TOPIC,)) -> bytes:
    """What a consumer says when it joins."""
    value = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=owning(*owned))
    return encode_consumer_protocol(value, version)


def gives(*partitions: int, user_data: bytes | None = None) -> bytes:
    """What a leader says when it syncs."""
    value = ConsumerProtocolAssignment(assigned_partitions=owning(*partitions), user_data=user_data)
    return encode_consumer_protocol(value, 1)


@attrs.define(eq=False)
class Classic:
    """A classic member that asks when it is told to."""

    client: KafkaStream
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1

    async def join(self, *owned: int, version: int = 9, **changes: Any) -> int:
        """Answers the error; with a member id that the broker wants, joins again."""
        body = {
            "group_id": GROUP,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": wants(*owned)}],
            **changes,
        }
        answer = await self.client.call(ask("JoinGroup", **body), version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self.join(*owned, version=version, **changes)
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        code: int = answer.error_code
        return code

    def named(self, **changes: Any) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **changes,
        }

    async def synced(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Any:
        given = [{"member_id": each, "assignment": data} for each, data in (assignments or {}).items()]
        named = self.named(protocol_type="consumer", protocol_name="range", assignments=given)
        return await self.client.call(ask("SyncGroup", **{**named, **changes}), 5)

    async def partitions(self) -> list[int]:
        answer = await self.synced()
        assert answer.error_code == 0, answer
        return [number for topic in decode_assignment(answer.assignment).assigned_partitions for number in topic.partitions]

    async def beat(self, **changes: Any) -> int:
        code: int = (await self.client.call(ask("Heartbeat", **self.named(**changes)), 4)).error_code
        return code

    async def form(self, *partitions: int, data: bytes | None = None) -> None:
        """A stable group of this member alone."""
        assert await self.join() == 0
        given = gives(*partitions) if data is None else data
        assert (await self.synced({self.member_id: given})).error_code == 0

    async def leave(self, **changes: Any) -> list[int]:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance_id, **changes}
        answer = await self.client.call(ask("LeaveGroup", group_id=GROUP, members=[identity]), 5)
        return [each.error_code for each in answer.members]


@pytest.fixture
async def classic(client: KafkaStream) -> Classic:
    """The only member of a stable classic group, with all partitions."""
    member = Classic(client)
    await member.form(*ALL)
    return member


async def listed(client: KafkaStream) -> tuple[str, str, str]:
    [group] = (await client.call(ask("ListGroups", states_filter=[], types_filter=[]), 5)).groups
    return group.group_type, group.protocol_type, group.group_state


async def refused(client: KafkaStream, **changes: Any) -> str:
    answer = await client.call(attrs.evolve(JOIN, **changes), 1)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    message: str = answer.error_message
    return message


async def test_a_group_changes_its_protocol_member_by_member(kafka: KafkaServer, client: KafkaStream, classic: Classic) -> None:
    answer = await client.call(JOIN, 1)
    assert (answer.error_code, answer.member_epoch, answer.assignment.topic_partitions) == (0, 2, [])
    assert await listed(client) == ("consumer", "consumer", "Reconciling")
    assert await classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await classic.synced()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await classic.join(*ALL), classic.generation) == (0, 1), "it keeps its epoch while it has to give something up"
    kept = await classic.partitions()
    assert len(kept) == 2
    assert await classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await classic.join(*kept), classic.generation) == (0, 2)
    assert await classic.partitions() == kept
    assert await classic.beat() == 0
    answer = await client.call(ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=CONSUMER, member_epoch=2), 1)
    [topic] = answer.assignment.topic_partitions
    assert sorted([*topic.partitions, *kept]) == ALL
    assert await listed(client) == ("consumer", "consumer", "Stable")
    assert (await client.call(LEAVE, 1)).error_code == 0
    assert await listed(client) == ("classic", "consumer", "PreparingRebalance")
    assert await classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await classic.join(*kept), classic.generation) == (0, 3)
    assert (await classic.synced({classic.member_id: gives(*ALL)})).error_code == 0
    assert await classic.partitions() == ALL


async def test_descriptions_tell_which_protocol_a_member_uses(client: KafkaStream, classic: Classic) -> None:
    await client.call(JOIN, 1)
    [group] = (await client.call(ask("ConsumerGroupDescribe", group_ids=[GROUP]), 1)).groups
    assert (group.error_code, group.group_epoch, group.assignor_name) == (0, 2, "uniform")
    types = {member.member_id: (member.member_type, member.member_epoch) for member in group.members}
    assert types == {classic.member_id: (0, 1), CONSUMER: (1, 2)}
    [described] = (await client.call(ask("DescribeGroups", groups=[GROUP]), 6)).groups
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": CONSUMER}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "static"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
async def test_only_a_classic_member_at_its_epoch_syncs_and_beats(
    client: KafkaStream, classic: Classic, changes: dict[str, Any], error: ErrorCode
) -> None:
    await client.call(attrs.evolve(JOIN, instance_id="static"), 1)
    await classic.join(*ALL)
    await classic.join(*await classic.partitions())
    assert classic.generation == 2
    assert (await classic.beat(**changes), (await classic.synced(**changes)).error_code) == (error, error)


@pytest.mark.parametrize(("name", "value"), [("protocol_type", "connect"), ("protocol_name", "sticky")])
async def test_a_sync_of_another_protocol_is_refused(client: KafkaStream, classic: Classic, name: str, value: str) -> None:
    await client.call(JOIN, 1)
    assert (await classic.synced(**{name: value})).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": [{"name": "sticky", "metadata": wants()}]},
        {"protocols": []},
        {"protocols": [{"name": "range", "metadata": b"\0"}]},
    ],
)
async def test_a_classic_member_of_other_protocols_fails(
    client: KafkaStream, classic: Classic, changes: dict[str, Any]
) -> None:
    await client.call(JOIN, 1)
    assert await Classic(client).join(**changes) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await Classic(client, "static").join(**changes) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("settings", [{"group_max_size": 2, "group_initial_rebalance_delay_ms": 0}])
async def test_a_full_group_accepts_no_member_of_either_protocol(client: KafkaStream, classic: Classic) -> None:
    await client.call(JOIN, 1)
    assert await Classic(client).join() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await client.call(attrs.evolve(JOIN, member_id="third"), 1)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await classic.join(*ALL) == 0
    assert await Classic(client).join(session_timeout_ms=1) == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("version", range(10))
async def test_a_classic_member_of_every_version_joins_a_consumer_group(client: KafkaStream, version: int) -> None:
    await client.call(JOIN, 1)
    member = Classic(client)
    protocols = [{"name": "range", "metadata": wants(version=min(version, 3))}]
    join = {"group_id": GROUP, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    answer = await client.call(ask("JoinGroup", member_id="", protocols=protocols, **join), version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        body = ask("JoinGroup", member_id=answer.member_id, protocols=protocols, **join)
        answer = await client.call(body, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 3, "range")
    assert (answer.leader, answer.members) == ("", [])
    member.member_id, member.generation = answer.member_id, answer.generation_id
    assert await member.partitions() == [], "the other member has not given up anything"


async def test_a_classic_member_commits_with_its_epoch(kafka: KafkaServer, client: KafkaStream, classic: Classic) -> None:
    await client.call(JOIN, 1)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}

    async def commit(**changes: Any) -> int:
        named = classic.named(topics=[{"name": TOPIC, "partitions": [partition]}])
        del named["generation_id"]
        body = {**named, "generation_id_or_member_epoch": classic.generation, **changes}
        [topic] = (await client.call(ask("OffsetCommit", **body), 8)).topics
        code: int = topic.partitions[0].error_code
        return code

    assert await commit() == 0
    assert await commit(generation_id_or_member_epoch=2) == ErrorCode.ILLEGAL_GENERATION
    assert await commit(generation_id_or_member_epoch=0) == ErrorCode.ILLEGAL_GENERATION
    assert await commit(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(member_id="", generation_id_or_member_epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(member_id=CONSUMER, generation_id_or_member_epoch=2) == ErrorCode.UNSUPPORTED_VERSION
    producer = await client.call(ask("InitProducerId", transactional_id="mover", transaction_timeout_ms=60_000), 4)

    async def commit_in_transaction(generation: int) -> int:
        body = classic.named(
            transactional_id="mover",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=generation,
            topics=[{"name": TOPIC, "partitions": [{**partition, "committed_offset": 6}]}],
        )
        [topic] = (await client.call(ask("TxnOffsetCommit", **body), 5)).topics
        code: int = topic.partitions[0].error_code
        return code

    assert await commit_in_transaction(classic.generation) == 0
    assert await commit_in_transaction(7) == ErrorCode.ILLEGAL_GENERATION
    fetch = ask("OffsetFetch", groups=[{"group_id": GROUP, "topics": None}])
    [group] = (await client.call(fetch, 8)).groups
    assert group.topics[0].partitions[0].committed_offset == 5
    deletion = ask("OffsetDelete", group_id=GROUP, topics=[{"name": TOPIC, "partitions": [{"partition_index": 0}]}])
    [topic] = (await client.call(deletion, 0)).topics
    assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_members_of_both_protocols_leave_by_id_or_instance_id(client: KafkaStream, classic: Classic) -> None:
    await client.call(attrs.evolve(JOIN, instance_id="static"), 1)
    await client.call(attrs.evolve(JOIN, member_id="another"), 1)
    nobody = [{"member_id": "nobody"}, {"member_id": "", "group_instance_id": "nobody"}]
    fenced = {"member_id": "another", "group_instance_id": "static"}
    leavers = [*nobody, fenced, {"member_id": "", "group_instance_id": "static"}, {"member_id": classic.member_id}]
    answer = await client.call(ask("LeaveGroup", group_id=GROUP, members=leavers), 5)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error_code for each in answer.members] == [unknown, unknown, ErrorCode.FENCED_INSTANCE_ID, 0, 0]
    [group] = (await client.call(ask("ConsumerGroupDescribe", group_ids=[GROUP]), 1)).groups
    assert [member.member_id for member in group.members] == ["another"]
    await client.call(attrs.evolve(LEAVE, member_id="another"), 1)
    assert await listed(client) == ("consumer", "consumer", "Empty")
    assert await classic.leave() == [unknown]
    assert await classic.beat() == unknown


async def test_a_static_member_takes_its_place_over_in_the_other_protocol_and_the_group_follows(client: KafkaStream) -> None:
    old = Classic(client, "static")
    await old.form(*ALL)
    answer = await client.call(attrs.evolve(JOIN, instance_id="static"), 1)
    assert (answer.error_code, answer.member_epoch) == (0, 1), "nothing is to be assigned anew"
    assert answer.assignment.topic_partitions[0].partitions == ALL
    assert await old.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert await listed(client) == ("consumer", "consumer", "Stable")
    new = Classic(client, "static")
    assert (await new.join(), new.generation) == (0, 1)
    assert await listed(client) == ("classic", "consumer", "Stable")
    assert await new.partitions() == ALL
    assert await new.beat() == 0
    gone = attrs.evolve(JOIN, instance_id="static", member_epoch=1, rebalance_timeout_ms=-1, subscribed_topic_names=None)
    assert (await client.call(gone, 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_static_member_that_returns_with_another_subscription_rebalances(
    kafka: KafkaServer, client: KafkaStream
) -> None:
    await kafka.broker.topics.create("other", 1)
    await client.call(attrs.evolve(JOIN, instance_id="static"), 1)
    member = Classic(client, "static")
    assert await member.join(protocols=[{"name": "range", "metadata": wants(topics=("other",))}]) == 0
    assert await listed(client) == ("classic", "consumer", "PreparingRebalance")
    assert (await member.synced()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert await member.join(protocols=[{"name": "range", "metadata": wants(topics=("other",))}]) == 0
    assert member.generation == 3


async def test_a_group_that_does_not_use_the_protocol_of_consumers_stays_classic(client: KafkaStream) -> None:
    protocols = [{"name": "range", "metadata": wants()}]
    times = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    connect = {"group_id": GROUP, "member_id": "", "protocol_type": "connect", "protocols": protocols}
    assert (await client.call(ask("JoinGroup", **connect, **times), 3)).error_code == 0
    assert "does not use the consumer embedded protocol" in await refused(client)
    assert (await listed(client))[:2] == ("classic", "connect")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\1\0\0\0\1", "the embedded consumer protocol is malformed"),
        (b"\xff\xff", "the embedded consumer protocol is malformed"),
        (gives(*ALL, user_data=b"mine"), "an unsupported custom assignor is in use"),
    ],
)
async def test_a_group_whose_assignments_cannot_be_converted_stays_classic(client: KafkaStream, data: bytes, why: str) -> None:
    member = Classic(client)
    await member.form(data=data)
    assert why in await refused(client)
    assert await listed(client) == ("classic", "consumer", "Stable")
    assert await member.beat() == 0


async def test_a_partition_that_a_leader_has_given_twice_has_one_owner_and_one_that_does_not_exist_none(
    kafka: KafkaServer, client: KafkaStream, classic: Classic
) -> None:
    async with kafka.connected() as other:
        second = Classic(other)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.join)
            while await classic.beat() == 0:
                """The second one is on its way."""
            assert await classic.join() == 0
        given = gives(0, 1, 7, -1)
        assert (await classic.synced({classic.member_id: given, second.member_id: given})).error_code == 0
        await client.call(JOIN, 1)
        [group] = (await client.call(ask("ConsumerGroupDescribe", group_ids=[GROUP]), 1)).groups
        held = [number for each in group.members for topic in each.assignment.topic_partitions for number in topic.partitions]
        assert sorted(held) == ALL


@pytest.mark.parametrize(
    "settings", [{"group_consumer_migration_policy": MigrationPolicy.DISABLED, "group_initial_rebalance_delay_ms": 0}]
)
async def test_with_the_policy_disabled_a_classic_group_stays_classic(client: KafkaStream, classic: Classic) -> None:
    assert "online upgrade is disabled" in await refused(client)
    assert await classic.beat() == 0


@pytest.mark.parametrize(
    "settings", [{"group_consumer_migration_policy": MigrationPolicy.UPGRADE, "group_initial_rebalance_delay_ms": 0}]
)
async def test_with_the_policy_upgrade_a_group_stays_a_consumer_group(client: KafkaStream, classic: Classic) -> None:
    await client.call(JOIN, 1)
    await client.call(LEAVE, 1)
    assert (await listed(client))[0] == "consumer"
    assert await classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert await classic.join(*ALL) == 0
    assert await classic.partitions() == ALL


@pytest.mark.parametrize(
    "settings", [{"group_consumer_migration_policy": MigrationPolicy.DOWNGRADE, "group_initial_rebalance_delay_ms": 0}]
)
async def test_with_the_policy_downgrade_a_consumer_group_becomes_classic_and_no_other_way(client: KafkaStream) -> None:
    await client.call(JOIN, 1)
    member = Classic(client)
    assert await member.join() == 0
    await client.call(LEAVE, 1)
    assert (await listed(client))[0] == "classic"
    assert "online upgrade is disabled" in await refused(client)
