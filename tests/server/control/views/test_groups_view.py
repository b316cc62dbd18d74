"""`broker.groups` of share groups: state, members, and how one is taken out."""

from __future__ import annotations

from triolog.server.broker import ShareHeartbeat
from triolog.server.embedded import open_broker

from tests.support.share_groups import KeptShareStates


async def test_a_share_group_is_seen_as_others_are() -> None:
    async with open_broker(topics={"t": 1}) as broker:
        share = broker.core.groups.share
        share.states = KeptShareStates()
        for epoch, names in ((0, ("t",)), (2, None)):
            await share.heartbeat(
                ShareHeartbeat(group_id="g", member_id="m", member_epoch=epoch, topic_names=names, client_id="app")
            )
        (member,) = broker.groups.members("g")
        assert (broker.groups.state("g"), member.member_id, member.client_id) == ("Stable", "m", "app")
        assert [str(each) for each in member.partitions] == ["t-0"]
        assert await broker.groups.wait_assigned("g") == [member]
        await broker.groups.kick("g", "m")
        assert (broker.groups.state("g"), broker.groups.members("g")) == ("Empty", [])
