"""The native calls `describe_groups`, for groups of all kinds, and `alter_share_group_offsets`, as the client makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.protocol.coordinator import classic_group_records
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native.messages import GroupMember, Partition, decode_request
from triolog.protocol.types import NO_OFFSET, TopicPartition
from triolog.server.broker import Broker, ConsumerHeartbeat, Join, ShareHeartbeat, Sync
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect

from tests.support.brokers import PARTITION, TOPIC, one_partition
from tests.support.share_groups import KeptShareStates
from tests.support.streams_groups import joining

LOCALHOST: Final = Address("127.0.0.1", 0)
AT_ONCE: Final = {"group_initial_rebalance_delay_ms": 0, "group_streams_initial_rebalance_delay_ms": 0}


@asynccontextmanager
async def administered(path: Path) -> AsyncIterator[tuple[Broker, Admin]]:
    async with one_partition(path, **AT_ONCE) as broker, trio.open_nursery() as nursery:
        address = await nursery.start(native_listener(broker, LOCALHOST, Admission.of(broker.config)).run)
        async with connect(*address) as client:
            yield broker, Admin(client)
        nursery.cancel_scope.cancel()


async def test_a_group_without_members_is_empty_and_an_unknown_one_an_error(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        await broker.offsets.commit("g", [(PARTITION, 0, None)])
        known, unknown = await admin.describe_groups("g", "gone")
        assert (known.group, known.state, known.type, known.members) == ("g", "Empty", "classic", ())
        assert unknown.error is not None
        assert unknown.error.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_members_that_the_server_assigns_to_have_what_it_has_given_them(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        await broker.groups.consumers.heartbeat(
            ConsumerHeartbeat(
                group_id="g",
                member_id="member",
                rebalance_timeout_ms=30_000,
                topic_names=(TOPIC,),
                owned=frozenset(),
                client_id="reader",
                client_host="/127.0.0.1",
            )
        )
        (group,) = await admin.describe_groups("g")
        assert (group.state, group.type, group.protocol_type) == ("Stable", "consumer", "consumer")
        assert group.members == (GroupMember("member", None, "reader", "/127.0.0.1", (Partition(TOPIC, 0),)),)


async def test_members_of_classic_groups_have_what_their_leader_has_given_them(tmp_path: Path) -> None:
    assignment = classic_group_records.ConsumerProtocolAssignment(
        assigned_partitions=[classic_group_records.ConsumerPartitions(topic=TOPIC, partitions=[0])]
    )
    for given, read in (
        (classic_group_records.encode_consumer_protocol(assignment, 0), (Partition(TOPIC, 0),)),
        (b"not readable", ()),
    ):
        async with administered(tmp_path / str(len(read))) as (broker, admin):
            joining = Join(
                group_id="g",
                member_id="",
                group_instance_id="static",
                client_id="reader",
                client_host="/127.0.0.1",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=(("range", b""),),
            )
            joined = await broker.groups.join(joining)
            (rebalancing,) = await admin.describe_groups("g")
            assert (rebalancing.state, len(rebalancing.members)) == ("CompletingRebalance", 1)
            await broker.groups.sync(
                Sync(
                    group_id="g",
                    generation=joined.generation,
                    member_id=joined.member_id,
                    group_instance_id="static",
                    assignments=((joined.member_id, given),),
                )
            )
            (group,) = await admin.describe_groups("g")
            assert (group.state, group.type, group.protocol) == ("Stable", "classic", "range")
            assert group.members == (GroupMember(joined.member_id, "static", "reader", "/127.0.0.1", read),)


async def test_a_group_of_kafkas_clients_with_a_long_name_is_listed_described_and_deleted(tmp_path: Path) -> None:
    """The native protocol makes none with more than 255 characters."""
    name = "g" * 32_767
    async with administered(tmp_path) as (broker, admin):
        await broker.offsets.commit(name, [(PARTITION, 7, None)])
        assert await admin.list_groups() == [name]
        assert [each.state for each in await admin.describe_groups(name)] == ["Empty"]
        assert list(await admin.group_offsets(name)) == [PARTITION]
        await admin.delete_groups(name)
        assert await admin.list_groups() == []


async def test_members_of_a_share_group_have_what_they_share(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        broker.groups.share.states = KeptShareStates()
        for member_id, epoch in (("a", 0), ("a", 2), ("b", 0)):
            names = (TOPIC,) if epoch == 0 else None
            await broker.groups.share.heartbeat(
                ShareHeartbeat(group_id="g", member_id=member_id, member_epoch=epoch, topic_names=names, client_id="reader")
            )
        (group,) = await admin.describe_groups("g")
        assert (group.state, group.type, group.protocol_type, group.protocol) == ("Stable", "share", "share", "simple")
        assert [each.member_id for each in group.members] == ["a", "b"]
        assert [each.assignment for each in group.members] == [(Partition(TOPIC, 0),)] * 2
        assert await admin.list_groups() == ["g"]


async def test_members_of_a_streams_group_have_what_their_tasks_read(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        await broker.groups.streams.heartbeat(joining("g", "a", TOPIC, client_id="reader"))
        (group,) = await admin.describe_groups("g")
        assert (group.state, group.type, group.protocol_type, group.protocol) == ("Stable", "streams", "streams", "sticky")
        assert [(each.member_id, each.assignment) for each in group.members] == [("a", (Partition(TOPIC, 0),))]
        assert await admin.list_groups() == ["g"]


async def start_of(admin: Admin, group: str) -> int:
    (described,) = await admin.describe_groups(group)
    assert described.error is None
    [shared] = described.shared
    return shared.start_offset


async def test_a_group_is_made_and_moved_and_one_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        for start in (4, 9, 2, NO_OFFSET):
            await admin.alter_share_group_offsets("g", {PARTITION: start})
            assert await start_of(admin, "g") == start
        await broker.offsets.commit("other", [(PARTITION, 3, None)])
        with pytest.raises(RequestError, match=r"^GROUP_ID_NOT_FOUND"):
            await admin.alter_share_group_offsets("other", {PARTITION: 1})
        assert {each.offset for each in (await admin.group_offsets("other")).values()} == {3}


async def test_each_partition_has_an_answer_of_its_own(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, admin):
        with pytest.raises(RequestError) as caught:
            await admin.alter_share_group_offsets("g", {TopicPartition("gone", 0): 1, PARTITION: 4})
        assert (caught.value.code, "gone-0" in caught.value.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
        assert await start_of(admin, "g") == 4


def test_an_offset_below_minus_one_is_refused() -> None:
    body = {"group": "g", "partitions": [{"topic": TOPIC, "partition": 0, "start_offset": -2}]}
    with pytest.raises(RequestError, match=r"alter_share_group_offsets\.partitions\[0\]\.start_offset is int -2"):
        decode_request("alter_share_group_offsets", 1, body)
