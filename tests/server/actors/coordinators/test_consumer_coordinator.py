"""Groups whose assignments the server makes: turns, deadlines, records before answers, and names that change their kind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
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

from tests.support.brokers import PARTITION, TOPIC, one_partition, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import Clock
from tests.support.transactions import committed_offset

GROUP = "group"
SESSION_S = 45.0
DAY_MS = 86_400_000
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


def members(broker: Broker) -> set[str]:
    return {member.member_id for member in described(broker).members}


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


async def test_a_heartbeat_without_news_is_answered_on_the_spot_and_keeps_the_session(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with one_partition(tmp_path) as broker:
        consumers = broker.groups.consumers
        await heartbeat(broker)
        await heartbeat(broker, BEAT, owned=the_topic(broker))
        for _ in range(3):
            mock_clock.jump(SESSION_S - 1)
            with trio.testing.assert_no_checkpoints():
                answer = consumers.heartbeat_now(BEAT)
            assert answer == await heartbeat(broker, BEAT)
            assert answer is not None
            assert (answer.member_epoch, answer.assignment) == (1, None)
        assert members(broker) == {"a"}


async def test_a_heartbeat_that_changes_or_waits_is_not_answered_on_the_spot(broker: Broker) -> None:
    consumers = broker.groups.consumers
    assert consumers.heartbeat_now(JOIN) is None
    assert GROUP not in consumers
    await heartbeat(broker)
    for news in ({"member_epoch": -1}, {"member_epoch": 9}, {"member_id": "b"}, {"topic_names": ("other",)}):
        assert consumers.heartbeat_now(attrs.evolve(BEAT, **news)) is None, news
    async with consumers._turns.of(GROUP):
        assert consumers.heartbeat_now(BEAT) is None, "somebody else's change comes first"
    consumers.close()
    assert consumers.heartbeat_now(BEAT) is None


async def test_heartbeats_of_a_group_that_come_at_once_take_turns(broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(heartbeat, broker, attrs.evolve(JOIN, member_id=f"m{number}"))
    assert (len(members(broker)), described(broker).group_epoch) == (20, 20)
    owned = [partition for member in described(broker).members for partition in member.assignment]
    assert owned == sorted(the_topic(broker))
    assert GROUP not in broker.groups.consumers._turns


async def test_topics_that_change_are_given_out_anew(broker: Broker) -> None:
    await heartbeat(broker)
    assert (await heartbeat(broker, BEAT)).assignment is None
    await broker.topics.create_partitions(TOPIC, 3)
    answer = await heartbeat(broker, BEAT)
    assert (answer.member_epoch, answer.assignment) == (2, the_topic(broker))
    await broker.topics.delete(TOPIC)
    answer = await heartbeat(broker, BEAT, member_epoch=2, owned=frozenset())
    assert (answer.member_epoch, answer.assignment) == (3, frozenset())


async def test_a_silent_member_is_out_in_memory_and_in_the_log(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    async with one_partition(tmp_path) as broker:
        await heartbeat(broker)
        await heartbeat(broker, member_id="b")
        mock_clock.jump(SESSION_S - 1)
        await heartbeat(broker, BEAT)
        mock_clock.jump(1.01)
        await until(lambda: members(broker) == {"a"})
        before = described(broker)
    async with one_partition(tmp_path) as broker:
        assert described(broker) == before
        mock_clock.jump(SESSION_S + 0.01)
        await until(lambda: described(broker).state is ConsumerGroupState.EMPTY)


async def test_nobody_is_a_member_before_it_is_on_the_device(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        await broker.offsets.commit("other", [(PARTITION, 1, None)])
        async with held(fs.hold("sync", ".log"), heartbeat, broker):
            with pytest.raises(RequestError, match="not found"):
                described(broker)
        assert members(broker) == {"a"}


async def test_what_cannot_be_written_has_not_happened_and_the_next_one_may(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await heartbeat(broker)
        before = described(broker)
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        assert await refusal(broker, member_id="b") is ErrorCode.NOT_COORDINATOR
        assert described(broker) == before
        await heartbeat(broker, member_id="b")
        assert members(broker) == {"a", "b"}


async def test_a_member_whose_removal_cannot_be_written_goes_a_little_later(
    tmp_path: Path, fs: GateFileSystem, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await heartbeat(broker)
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        mock_clock.jump(SESSION_S + 0.01)
        await until(lambda: "could not be stored" in caplog.text)
        assert members(broker) == {"a"}
        mock_clock.jump(1.01)
        await until(lambda: members(broker) == set())


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_group_goes_on_after_the_server_was_stopped_or_killed(tmp_path: Path, end: str) -> None:
    async with one_partition(tmp_path / "1") as broker:
        await heartbeat(broker)
        await heartbeat(broker, member_id="b", instance_id="static")
        await heartbeat(broker, BEAT)
        before = described(broker)
        if end == "kill":
            shutil.copytree(tmp_path / "1", tmp_path / "2")
    async with one_partition(tmp_path / ("2" if end == "kill" else "1")) as broker:
        assert described(broker) == before
        answer = await heartbeat(broker, BEAT, owned=frozenset())
        assert answer.member_epoch == 2
        assert (await heartbeat(broker, BEAT, member_id="b", instance_id="static", member_epoch=2)).member_epoch == 2


async def test_a_coordinator_that_stops_sends_members_away(broker: Broker) -> None:
    await heartbeat(broker)
    broker.groups.close()
    assert await refusal(broker, BEAT) is ErrorCode.NOT_COORDINATOR


async def test_a_classic_group_with_members_is_not_found_and_one_without_becomes_another(tmp_path: Path) -> None:
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


async def test_a_group_with_members_is_inconsistent_for_classic_ones_and_one_without_becomes_classic(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await heartbeat(broker)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=CommittingMember(generation=1, member_id="a"))
        assert (await classic_join(broker)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await heartbeat(broker, BEAT, member_epoch=-1)
        joined = await classic_join(broker)
        assert joined.error is ErrorCode.NONE
        assert broker.groups.describe(GROUP).state is GroupState.STABLE
        with pytest.raises(RequestError, match="not found"):
            described(broker)
    async with one_partition(tmp_path) as broker:
        assert [each.group_type for each in broker.groups.listings()] == ["classic"]
        assert await committed_offset(broker, GROUP, PARTITION) == 5


async def test_members_of_both_kinds_that_come_at_once_make_one_kind(tmp_path: Path) -> None:
    async with one_partition(tmp_path, group_initial_rebalance_delay_ms=0) as broker:
        outcomes: dict[str, object] = {}

        async def consumer() -> None:
            try:
                outcomes["consumer"] = (await heartbeat(broker)).member_epoch
            except RequestError as exc:
                outcomes["consumer"] = exc.code

        async def classic() -> None:
            outcomes["classic"] = (await classic_join(broker)).error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer)
            nursery.start_soon(classic)
        assert outcomes in (
            {"consumer": 1, "classic": ErrorCode.INCONSISTENT_GROUP_PROTOCOL},
            {"consumer": ErrorCode.GROUP_ID_NOT_FOUND, "classic": ErrorCode.NONE},
        )
        assert len(broker.groups.listings()) == 1


async def test_a_group_is_deleted_when_it_is_empty_and_its_offsets_with_it(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await heartbeat(broker)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=CommittingMember(generation=1, member_id="a"))
        [error] = await broker.offsets.delete(GROUP, [PARTITION])
        assert error is not None
        assert error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        with pytest.raises(RequestError) as refused:
            await broker.groups.delete(GROUP)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        await heartbeat(broker, BEAT, member_epoch=-1)
        await broker.groups.delete(GROUP)
        assert broker.groups.listings() == []
    async with one_partition(tmp_path) as broker:
        assert broker.groups.listings() == []
        with pytest.raises(RequestError) as refused:
            await broker.groups.delete(GROUP)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_without_members_goes_when_its_offsets_have_expired(tmp_path: Path, clock: Clock) -> None:
    async with one_partition(tmp_path, clock=clock) as broker:
        coordinator = broker.groups
        await heartbeat(broker)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=CommittingMember(generation=1, member_id="a"))
        clock.advance(30 * DAY_MS)
        assert await coordinator.expire() == 0
        await heartbeat(broker, BEAT, member_epoch=-1)
        assert await coordinator.expire() == 1
        assert broker.groups.listings() == []
        assert len(coordinator.consumers._groups) == 0
    async with one_partition(tmp_path, clock=clock) as broker:
        assert broker.groups.listings() == []
