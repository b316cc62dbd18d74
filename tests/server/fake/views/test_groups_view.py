"""`broker.groups`: lags of any group; of share groups and Streams groups state, members, and how one is taken out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from triolog.server.broker import ShareHeartbeat
from triolog.server.embedded import open_broker

from tests.support.share_groups import KeptShareStates
from tests.support.streams_groups import joining


async def join_share_group(groups: Any) -> None:
    groups.share.states = KeptShareStates()
    for epoch, names in ((0, ("t",)), (2, None)):
        await groups.share.heartbeat(
            ShareHeartbeat(group_id="g", member_id="m", member_epoch=epoch, topic_names=names, client_id="app")
        )


async def join_streams_group(groups: Any) -> None:
    await groups.streams_heartbeat(joining("g", "m", "t", client_id="app"))


@pytest.mark.parametrize("join", [join_share_group, join_streams_group])
async def test_a_group_of_another_kind_is_seen_as_others_are(join: Callable[[Any], Awaitable[None]]) -> None:
    async with open_broker(topics={"t": 2}) as broker:
        await join(broker.core.groups)
        (member,) = broker.groups.members("g")
        assert (broker.groups.state("g"), member.member_id, member.client_id) == ("Stable", "m", "app")
        assert [str(each) for each in member.partitions] == ["t-0", "t-1"]
        assert await broker.groups.wait_assigned("g") == [member]
        await broker.groups.kick("g", "m")
        assert (broker.groups.state("g"), broker.groups.members("g")) == ("Empty", [])


async def test_records_that_were_deleted_are_not_waited_for() -> None:
    async with open_broker(topics={"t": 1}) as broker:
        await broker.append("t", [b"a", b"b", b"c"])
        await broker.delete_records("t", 2)
        with pytest.raises(
            TimeoutError,
            match=re.escape("there is no group 'g'; group g is behind in t by {0: 1} (partition: records) after 0.02 s"),
        ):
            await broker.groups.wait_no_lag("g", "t", timeout_s=0.02)
        await broker.delete_records("t")
        await broker.groups.wait_no_lag("g", "t")
