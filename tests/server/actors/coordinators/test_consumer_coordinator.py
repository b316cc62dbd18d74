"""Consumer groups in a broker: commits of members, topics that change, and names that change their kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.broker import (
    Broker,
    CommittingMember,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupListing,
    GroupState,
    Join,
    JoinAnswer,
    LeavingMember,
    Sync,
)
from triolog.server.groups.consumer_values import ConsumerGroupState

from tests.support.brokers import PARTITION, TOPIC, one_partition
from tests.support.transactions import committed_offset

GROUP = "group"
JOIN = ConsumerHeartbeat(
    group_id=GROUP, member_id="a", rebalance_timeout_ms=60_000, topic_names=(TOPIC,), owned=frozenset(), client_id="client"
)
BEAT = ConsumerHeartbeat(group_id=GROUP, member_id="a", member_epoch=1)


async def heartbeat(broker: Broker, request: ConsumerHeartbeat = JOIN, **changes: Any) -> ConsumerHeartbeatAnswer:
    return await broker.groups.consumer_heartbeat(attrs.evolve(request, **changes))


async def refusal(broker: Broker, request: ConsumerHeartbeat = JOIN, **changes: Any) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        await heartbeat(broker, request, **changes)
    return refused.value.code


def described(broker: Broker) -> ConsumerGroupDescription:
    return broker.groups.consumers.describe(GROUP)


def the_topic(broker: Broker) -> frozenset[tuple[bytes, int]]:
    topic = broker.topics.metadata(TOPIC)
    return frozenset((topic.topic_id, number) for number in range(len(topic.leader_epochs)))


async def classic_join(broker: Broker) -> JoinAnswer:
    """One classic member with an assignment, or why it cannot be."""
    request = Join(
        group_id=GROUP,
        protocol_type="consumer",
        protocols=(("range", b""),),
        session_timeout_ms=10_000,
        requires_known_member_id=False,
    )
    joined = await broker.groups.join(request)
    if joined.error is ErrorCode.NONE:
        await broker.groups.sync(Sync(group_id=GROUP, generation=joined.generation, member_id=joined.member_id))
    return joined


async def test_a_member_joins_commits_reads_and_leaves(broker: Broker) -> None:
    answer = await heartbeat(broker)
    assert (answer.member_epoch, answer.assignment) == (1, the_topic(broker))
    member = CommittingMember(generation=1, member_id="a")
    assert await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member) == [None]
    broker.groups.consumers.check_fetch(GROUP, "a", 1)
    for stale in (CommittingMember(generation=2, member_id="a"), CommittingMember()):
        with pytest.raises(RequestError) as refused:
            await broker.offsets.commit(GROUP, [(PARTITION, 6, None)], member=stale)
        wanted = ErrorCode.STALE_MEMBER_EPOCH if stale.member_id else ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.value.code is wanted
    with pytest.raises(RequestError, match="its epoch is 1"):
        broker.groups.consumers.check_fetch(GROUP, "a", 2)
    assert (await heartbeat(broker, BEAT, member_epoch=-1)).member_epoch == -1
    assert described(broker).state is ConsumerGroupState.EMPTY
    assert await broker.offsets.commit(GROUP, [(PARTITION, 7, None)]) == [None]
    assert await committed_offset(broker, GROUP, PARTITION) == 7


async def test_topics_that_change_are_given_out_anew(broker: Broker) -> None:
    await heartbeat(broker)
    assert (await heartbeat(broker, BEAT)).assignment is None
    await broker.topics.create_partitions(TOPIC, 3)
    answer = await heartbeat(broker, BEAT)
    assert (answer.member_epoch, answer.assignment) == (2, the_topic(broker))
    await broker.topics.delete(TOPIC)
    answer = await heartbeat(broker, BEAT, member_epoch=2, owned=frozenset())
    assert (answer.member_epoch, answer.assignment) == (3, frozenset())


async def test_an_empty_classic_group_becomes_a_consumer_group(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        joined = await classic_join(broker)
        member = CommittingMember(generation=joined.generation, member_id=joined.member_id)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member)
        assert await refusal(broker) is ErrorCode.GROUP_ID_NOT_FOUND
        broker.groups.leave(GROUP, [LeavingMember(joined.member_id)])
        await heartbeat(broker)
        [listing] = broker.groups.listings()
        assert listing == GroupListing(GROUP, "consumer", ConsumerGroupState.STABLE, "consumer")
        assert broker.groups.describe(GROUP).state is GroupState.DEAD
        assert await committed_offset(broker, GROUP, PARTITION) == 5
    async with one_partition(tmp_path) as broker:
        assert broker.groups.listings(types=["Consumer"]) == [listing]
        assert broker.groups.listings(types=["classic"]) == []
        assert len(broker.groups._members) == 0
        assert await committed_offset(broker, GROUP, PARTITION) == 5


async def test_an_empty_consumer_group_becomes_a_classic_group(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await heartbeat(broker)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=CommittingMember(generation=1, member_id="a"))
        assert (await classic_join(broker)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        [error] = await broker.offsets.delete(GROUP, [PARTITION])
        assert error is not None
        assert error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await heartbeat(broker, BEAT, member_epoch=-1)
        joined = await classic_join(broker)
        assert joined.error is ErrorCode.NONE
        assert broker.groups.describe(GROUP).state is GroupState.STABLE
        with pytest.raises(RequestError, match="not found"):
            described(broker)
    async with one_partition(tmp_path) as broker:
        assert [each.group_type for each in broker.groups.listings()] == ["classic"]
        assert await committed_offset(broker, GROUP, PARTITION) == 5
