"""Share groups in a broker: share states, start offsets, and names that are of one kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from trio.testing import MockClock
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.broker import Broker, CommittingMember, GroupState
from triolog.server.groups.assigned.values import HeartbeatAnswer
from triolog.server.groups.share.groups import ShareHeartbeat

from tests.server.groups.coordinators.test_assigned import CLASSIC, CONSUMER, GROUP
from tests.server.groups.coordinators.test_assigned import SHARE as JOIN
from tests.support.brokers import PARTITION, TOPIC, listings, one_partition
from tests.support.gate_fs import GateFileSystem, held
from tests.support.share_groups import KeptShareStates

BEAT = ShareHeartbeat(group_id=GROUP, member_id="a", member_epoch=2)
LEAVE = ShareHeartbeat(group_id=GROUP, member_id="a", member_epoch=-1)


@asynccontextmanager
async def sharing(path: Path, states: KeptShareStates, **settings: Any) -> AsyncIterator[Broker]:
    async with one_partition(path, **settings) as broker:
        broker.groups.share.states = states
        yield broker


@pytest.fixture
def states() -> KeptShareStates:
    return KeptShareStates()


@pytest.fixture
async def broker(fast_path: Path, states: KeptShareStates) -> AsyncIterator[Broker]:
    async with sharing(fast_path, states) as opened:
        yield opened


async def heartbeat(broker: Broker, request: ShareHeartbeat = JOIN, **changes: Any) -> HeartbeatAnswer:
    return await broker.groups.share.heartbeat(attrs.evolve(request, **changes))


async def refusal(broker: Broker, request: ShareHeartbeat = JOIN, **changes: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(RequestError) as refused:
        await heartbeat(broker, request, **changes)
    assert isinstance(refused.value.code, ErrorCode)
    return refused.value.code, refused.value.message


def members(broker: Broker) -> set[str]:
    return {member.member_id for member in broker.groups.share.describe(GROUP).members}


def the_topic(broker: Broker) -> frozenset[tuple[bytes, int]]:
    topic = broker.topics.metadata(TOPIC)
    return frozenset((topic.topic_id, number) for number in range(len(topic.leader_epochs)))


async def test_a_partition_that_is_added_to_a_topic_is_read_from_its_first_record_on(
    broker: Broker, states: KeptShareStates
) -> None:
    """As in Kafka 4.4: records that come before its state are not passed over."""
    await heartbeat(broker)
    before = the_topic(broker)
    await broker.topics.create_partitions(TOPIC, len(before) + 2)
    await heartbeat(broker, BEAT)
    added = the_topic(broker) - before
    starts = {each[1:]: summary.start_offset for each, summary in states.states.items()}
    assert starts == {**dict.fromkeys(before, -1), **dict.fromkeys(added, 0)}


async def test_a_state_that_could_not_be_made_is_made_with_the_next_heartbeat(broker: Broker, states: KeptShareStates) -> None:
    broker.groups.share.states = None
    assert (await refusal(broker))[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await listings(broker) == []
    broker.groups.share.states = states
    states.failing = True
    assert (await refusal(broker))[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert members(broker) == {"a"}
    states.failing = False
    assert (await heartbeat(broker, BEAT)).assignment is None
    assert (await heartbeat(broker, BEAT)).assignment == the_topic(broker)


@pytest.mark.parametrize("is_empty", [False, True])
async def test_a_share_group_is_no_other_kind_until_it_is_gone(broker: Broker, states: KeptShareStates, is_empty: bool) -> None:
    await heartbeat(broker)
    if is_empty:
        await heartbeat(broker, LEAVE)
    assert (await broker.groups.join(CLASSIC)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(RequestError, match=r"^GROUP_ID_NOT_FOUND.*Group group is not a consumer group"):
        await broker.groups.consumers.heartbeat(CONSUMER)
    with pytest.raises(RequestError, match="not a consumer group"):
        broker.groups.consumers.describe(GROUP)
    assert broker.groups.describe(GROUP).state is GroupState.DEAD
    for call in (
        broker.offsets.commit(GROUP, [(PARTITION, 1, None)]),
        broker.offsets.commit(GROUP, [(PARTITION, 1, None)], member=CommittingMember(member_id="a", generation=2)),
        broker.offsets.delete(GROUP, [PARTITION]),
    ):
        with pytest.raises(RequestError, match=r"^GROUP_ID_NOT_FOUND"):
            await call
    if is_empty:
        await broker.groups.delete(GROUP)
        assert (states.states, await listings(broker)) == ({}, [])
        assert (await heartbeat(broker)).member_epoch == 2
        await heartbeat(broker, LEAVE)
        await broker.groups.delete(GROUP)
        assert (await broker.groups.consumers.heartbeat(CONSUMER)).member_epoch == 2


@pytest.mark.parametrize("other", ["consumer", "empty consumer", "classic", "offsets"])
async def test_a_group_of_another_kind_is_no_share_group(
    autojump_clock: MockClock, fast_path: Path, states: KeptShareStates, other: str
) -> None:
    async with sharing(fast_path, states) as broker:
        if "consumer" in other:
            await broker.groups.consumers.heartbeat(CONSUMER)
        if other == "empty consumer":
            await broker.groups.consumers.heartbeat(attrs.evolve(CONSUMER, member_epoch=-1))
        elif other == "classic":
            assert (await broker.groups.join(CLASSIC)).error is ErrorCode.NONE
        elif other == "offsets":
            assert await broker.offsets.commit(GROUP, [(PARTITION, 1, None)]) == [None]
        expected = ErrorCode.GROUP_ID_NOT_FOUND, "Group group is not a share group."
        for epoch in (0, 3, -1):
            assert await refusal(broker, member_epoch=epoch) == expected
        for admin in (
            broker.groups.share.alter_offsets(GROUP, [(PARTITION, 1)]),
            broker.groups.share.delete_offsets(GROUP, [TOPIC]),
        ):
            with pytest.raises(RequestError, match="not a share group"):
                await admin
        with pytest.raises(RequestError, match="not a share group"):
            broker.groups.share.describe(GROUP)
        assert not states.states


async def test_a_name_that_two_kinds_want_at_once_is_of_one(fast_path: Path, states: KeptShareStates) -> None:
    fs = GateFileSystem()
    async with sharing(fast_path, states, fs=fs, durability="fsync") as broker:
        await heartbeat(broker, group_id="other")  # makes the topic
        async with held(fs.hold("sync", ".log"), heartbeat, broker):
            assert (await broker.groups.join(CLASSIC)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            with pytest.raises(RequestError, match=r"^GROUP_ID_NOT_FOUND"):
                await broker.offsets.commit(GROUP, [(PARTITION, 1, None)])
        assert await broker.offsets.fetch(GROUP) == []
        assert [each.group_type for each in await listings(broker)] == ["share", "share"]


async def test_offsets_of_a_group_that_nobody_knows(broker: Broker) -> None:
    share = broker.groups.share
    assert await share.offsets(GROUP) == await share.offsets("") == []
    (offset,) = await share.offsets(GROUP, [PARTITION])
    assert (offset.summary.start_offset, offset.summary.delivery_complete_count) == (-1, -1)
    with pytest.raises(RequestError, match="GROUP_ID_NOT_FOUND"):
        await share.delete_offsets(GROUP, [TOPIC])
    assert await share.alter_offsets(GROUP, []) == []
    assert await listings(broker) == []
    for changing in (share.alter_offsets("", []), share.delete_offsets("", [TOPIC])):
        with pytest.raises(RequestError, match="INVALID_GROUP_ID"):
            await changing


async def test_offsets_that_could_not_be_altered_or_deleted_are_as_they_were(broker: Broker, states: KeptShareStates) -> None:
    share = broker.groups.share
    await share.alter_offsets(GROUP, [(PARTITION, 1)])
    states.failing = True
    (error,) = await share.alter_offsets(GROUP, [(PARTITION, 2)])
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    (offset,) = await share.offsets(GROUP)
    assert offset.error is not None
    with pytest.raises(RequestError):
        await share.delete_offsets(GROUP, [TOPIC])
    states.failing = False
    assert await share.alter_offsets(GROUP, [(PARTITION, 2)]) == [None]
    await heartbeat(broker)
    assert [each.summary.start_offset for each in await share.offsets(GROUP)] == [2], "the deletion did not take it along"
