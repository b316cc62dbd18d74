"""`wait_assigned` waits until members have partitions, all of them."""

from __future__ import annotations

import pytest
from triolog.protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from triolog.server.broker import Broker, Join, Sync
from triolog.server.embedded import MEMORY, open_broker

T, G = "orders", "baristas"
SHORT_S = 0.02


async def join(core: Broker, assignment: bytes, protocol_type: str = CONSUMER_PROTOCOL_TYPE, member_id: str = "") -> str:
    """The one member of a group, stable with an assignment."""
    request = Join(
        group_id=G,
        protocol_type=protocol_type,
        protocols=(("range", b""),),
        session_timeout_ms=30_000,
        member_id=member_id,
        requires_known_member_id=False,
    )
    joined = await core.groups.join(request)
    member = joined.member_id
    await core.groups.sync(
        Sync(group_id=G, generation=joined.generation, member_id=member, assignments=((member, assignment),))
    )
    return member


def assigned(*partitions: int) -> bytes:
    places = [ConsumerPartitions(topic=T, partitions=list(partitions))] if partitions else []
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=places), 0)


async def test_a_stable_group_whose_members_have_no_partitions_is_waited_for() -> None:
    async with open_broker(MEMORY, native=None, topics={T: 2}) as broker:
        member = await join(broker.core, assigned())
        with pytest.raises(TimeoutError, match="Stable with 1 of 1 members; no member has a partition: the topics"):
            await broker.groups.wait_assigned(G, timeout_s=SHORT_S)
        await join(broker.core, assigned(1), member_id=member)  # a rebalance in steps: partition 0 is still on its way
        with pytest.raises(TimeoutError, match="Stable with 1 of 1 members; no member has orders-0"):
            await broker.groups.wait_assigned(G, timeout_s=SHORT_S)
        await join(broker.core, assigned(0, 1), member_id=member)
        (found,) = await broker.groups.wait_assigned(G)
        assert [each.partition for each in found.partitions] == [0, 1]


async def test_a_group_of_another_protocol_needs_no_partitions() -> None:
    async with open_broker(MEMORY, native=None) as broker:
        member = await join(broker.core, b"connectors", "connect")
        assert [each.member_id for each in await broker.groups.wait_assigned(G)] == [member]
