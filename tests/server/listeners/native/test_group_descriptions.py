"""The native call `describe_groups`, for groups of all kinds, as the client reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from triolog.protocol.coordinator.consumer_protocol import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native.messages import GroupMember, OffsetsPartition
from triolog.server.broker import Broker, ConsumerHeartbeat, Join, ShareHeartbeat, Sync
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.server.settings.broker_config import Address
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
        await broker.groups.consumer_heartbeat(
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
        assert group.members == (GroupMember("member", None, "reader", "/127.0.0.1", (OffsetsPartition(TOPIC, 0),)),)


async def test_members_of_classic_groups_have_what_their_leader_has_given_them(tmp_path: Path) -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[ConsumerPartitions(topic=TOPIC, partitions=[0])])
    for given, read in ((encode_consumer_protocol(assignment, 0), (OffsetsPartition(TOPIC, 0),)), (b"not readable", ())):
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
        assert [each.assignment for each in group.members] == [(OffsetsPartition(TOPIC, 0),)] * 2
        assert await admin.list_groups() == ["g"]


async def test_members_of_a_streams_group_have_what_their_tasks_read(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        await broker.groups.streams_heartbeat(joining("g", "a", TOPIC, client_id="reader"))
        (group,) = await admin.describe_groups("g")
        assert (group.state, group.type, group.protocol_type, group.protocol) == ("Stable", "streams", "streams", "sticky")
        assert [(each.member_id, each.assignment) for each in group.members] == [("a", (OffsetsPartition(TOPIC, 0),))]
        assert await admin.list_groups() == ["g"]
