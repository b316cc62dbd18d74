"""Groups that change their protocol while they have members: one batch, which is on the device before anybody is told; a group
that does not change meanwhile; stops and kills."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_consumer_protocol,
)
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server import broker as door

from tests.support.brokers import PARTITION, TOPIC, listings, one_partition, until
from tests.support.gate_fs import GateFileSystem, held

GROUP: Final = "group"
LOG: Final = f"{OFFSETS_TOPIC}-0/00000000000000000000.log"
CLASSIC_JOIN: Final = door.Join(
    group_id=GROUP,
    protocol_type="consumer",
    protocols=(("range", encode_consumer_protocol(ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=[]), 1)),),
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    requires_known_member_id=False,
)
HEARTBEAT: Final = door.ConsumerHeartbeat(
    group_id=GROUP, member_id="consumer", rebalance_timeout_ms=60_000, topic_names=(TOPIC,), owned=frozenset()
)
LEAVE: Final = door.ConsumerHeartbeat(group_id=GROUP, member_id="consumer", member_epoch=-1)
EVERYTHING: Final = encode_consumer_protocol(
    ConsumerProtocolAssignment(assigned_partitions=[ConsumerPartitions(topic=TOPIC, partitions=[0])]), 1
)


@asynccontextmanager
async def serving(path: Path, **settings: Any) -> AsyncIterator[door.Broker]:
    async with one_partition(path, group_initial_rebalance_delay_ms=0, **settings) as broker:
        yield broker


async def join(broker: door.Broker, **changes: Any) -> door.JoinAnswer:
    return await broker.groups.join(attrs.evolve(CLASSIC_JOIN, **changes))


async def sync(broker: door.Broker, joined: door.JoinAnswer) -> door.SyncAnswer:
    """A leader gives itself everything."""
    given = ((joined.member_id, EVERYTHING),)
    named = {"group_id": GROUP, "generation": joined.generation, "member_id": joined.member_id}
    return await broker.groups.sync(door.Sync(**named, assignments=given))


async def formed(broker: door.Broker) -> door.JoinAnswer:
    joined = await join(broker)
    assert (joined.error, (await sync(broker, joined)).error) == (ErrorCode.NONE, ErrorCode.NONE)
    return joined


def beat(broker: door.Broker, joined: door.JoinAnswer) -> ErrorCode:
    return broker.groups.heartbeat(door.Heartbeat(group_id=GROUP, generation=joined.generation, member_id=joined.member_id))


async def kind(broker: door.Broker) -> str:
    [listing] = await listings(broker)
    return listing.group_type


async def settled(broker: door.Broker, joined: door.JoinAnswer) -> door.JoinAnswer:
    """The classic member joins again, without anything, and syncs."""
    again = await join(broker, member_id=joined.member_id)
    answer = await sync(broker, again)
    assert (again.error, answer.error) == (ErrorCode.NONE, ErrorCode.NONE)
    return again


def charged(broker: door.Broker) -> set[str]:
    accounts = broker.groups._topic.memory.accounts
    return {name for name in ("classic groups", "consumer groups") if name in accounts and accounts[name].size_of(GROUP)}


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_mixed_group_continues_after_a_stop_or_a_kill(fast_path: Path, end: str, mock_clock: MockClock) -> None:
    async with serving(fast_path / "stop") as broker:
        joined = await formed(broker)
        await broker.groups.consumers.heartbeat(HEARTBEAT)
        joined = await settled(broker, joined)
        before = broker.groups.consumers.describe(GROUP)
        shutil.copytree(fast_path / "stop", fast_path / "kill")
    async with serving(fast_path / end) as broker:
        assert broker.groups.consumers.describe(GROUP) == before
        assert beat(broker, joined) is ErrorCode.NONE
        member = door.CommittingMember(generation=joined.generation, member_id=joined.member_id)
        assert await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member) == [None]
        mock_clock.jump(10.01)
        await until(lambda: len(broker.groups.consumers.describe(GROUP).members) == 1)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_group_that_has_become_classic_rebalances_after_a_stop_or_a_kill(fast_path: Path, end: str) -> None:
    async with serving(fast_path / "stop") as broker:
        await broker.groups.consumers.heartbeat(HEARTBEAT)
        joined = await join(broker)
        assert decode_assignment((await sync(broker, joined)).assignment).assigned_partitions == []
        await broker.groups.consumers.heartbeat(LEAVE)
        assert await kind(broker) == "classic"
        shutil.copytree(fast_path / "stop", fast_path / "kill")
    async with serving(fast_path / end) as broker:
        assert await kind(broker) == "classic"
        assert len(broker.groups.consumers.group_ids()) == 0
        assert beat(broker, joined) is ErrorCode.REBALANCE_IN_PROGRESS, "what the other one had is nobody's yet"
        again = await join(broker, member_id=joined.member_id)
        assert (again.error, again.leader) == (ErrorCode.NONE, joined.member_id)


async def test_a_group_becomes_classic_when_its_last_consumer_session_ends(fast_path: Path, mock_clock: MockClock) -> None:
    async with serving(fast_path) as broker:
        await broker.groups.consumers.heartbeat(HEARTBEAT)
        joined = await join(broker, session_timeout_ms=600_000)
        await sync(broker, joined)
        mock_clock.jump(45.01)
        await until(lambda: GROUP not in broker.groups.consumers)
        assert await kind(broker) == "classic"
        assert beat(broker, joined) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_conversion_is_on_the_device_before_anybody_is_told(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs, durability="fsync") as broker:
        joined = await formed(broker)
        async with held(fs.hold("sync", ".log"), broker.groups.consumers.heartbeat, HEARTBEAT) as nursery:
            assert await kind(broker) == "classic"
            assert beat(broker, joined) is ErrorCode.NONE
            nursery.cancel_scope.cancel()
        assert await kind(broker) == "consumer"
        async with held(fs.hold("sync", ".log"), broker.groups.consumers.heartbeat, LEAVE) as nursery:
            assert await kind(broker) == "consumer"
            nursery.cancel_scope.cancel()
        assert await kind(broker) == "classic"


async def test_a_conversion_that_cannot_be_written_has_not_happened(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs) as broker:
        joined = await formed(broker)
        fs.fail("write", LOG)
        with pytest.raises(RequestError, match="NOT_COORDINATOR"):
            await broker.groups.consumers.heartbeat(HEARTBEAT)
        assert (await kind(broker), beat(broker, joined)) == ("classic", ErrorCode.NONE)
        assert charged(broker) == {"classic groups"}
        await broker.groups.consumers.heartbeat(HEARTBEAT)
        joined = await settled(broker, joined)
        fs.fail("write", LOG)
        with pytest.raises(RequestError, match="NOT_COORDINATOR"):
            await broker.groups.consumers.heartbeat(LEAVE)
        assert (await kind(broker), beat(broker, joined)) == ("consumer", ErrorCode.NONE)
        fs.fail("write", LOG)
        left = await broker.groups.leave(GROUP, [door.LeavingMember(joined.member_id)])
        assert left.error is ErrorCode.NOT_COORDINATOR
        fs.fail("write", LOG)
        assert (await join(broker, member_id="new")).error is ErrorCode.NOT_COORDINATOR
        assert len(broker.groups.consumers.describe(GROUP).members) == 2


async def test_the_memory_of_a_group_is_charged_once(fast_path: Path) -> None:
    async with serving(fast_path) as broker:
        joined = await formed(broker)
        assert charged(broker) == {"classic groups"}
        await broker.groups.consumers.heartbeat(HEARTBEAT)
        assert charged(broker) == {"consumer groups"}
        await broker.groups.consumers.heartbeat(LEAVE)
        assert charged(broker) == {"classic groups"}
        assert joined.member_id in {member.member_id for member in broker.groups.describe(GROUP).members}


async def test_a_classic_member_has_no_more_memory_than_the_limit(fast_path: Path) -> None:
    async with serving(fast_path, max_client_memory_bytes=1024 * 1024) as broker:
        await broker.groups.consumers.heartbeat(HEARTBEAT)
        large = (("range", CLASSIC_JOIN.protocols[0][1] + bytes(600_000)),)
        answer = await join(broker, protocols=large)
        assert answer.error is ErrorCode.POLICY_VIOLATION
        assert len(broker.groups.consumers.describe(GROUP).members) == 1


async def test_requests_to_a_classic_group_in_conversion_get_the_consumer_groups_answer(
    fast_path: Path, fs: GateFileSystem
) -> None:
    answers: dict[str, Any] = {}
    async with serving(fast_path, fs=fs) as broker, trio.open_nursery() as nursery:
        joined = await formed(broker)

        async def ask(name: str, asked: Any) -> None:
            answers[name] = await asked

        with fs.hold("write", LOG) as gate:
            nursery.start_soon(ask, "upgrade", broker.groups.consumers.heartbeat(HEARTBEAT))
            await gate.reached()
            nursery.start_soon(ask, "join", join(broker))
            nursery.start_soon(ask, "sync", sync(broker, joined))
            nursery.start_soon(ask, "leave", broker.groups.leave(GROUP, [door.LeavingMember("nobody")]))
            await trio.testing.wait_all_tasks_blocked()
            assert answers == {}
            gate.release()
        await until(lambda: len(answers) == 4)
        assert answers["join"].leader == ""
        assert answers["sync"].error is ErrorCode.REBALANCE_IN_PROGRESS
        assert [each.error for each in answers["leave"].members] == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert broker.groups.describe(GROUP).state is door.GroupState.DEAD


async def test_a_conversion_waits_for_the_record_of_the_classic_group(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs) as broker, trio.open_nursery() as nursery:
        joined = await join(broker)
        synced = door.SyncAnswer()

        async def request_assignment() -> None:
            nonlocal synced
            synced = await sync(broker, joined)

        with fs.hold("write", LOG) as gate:
            nursery.start_soon(request_assignment)
            await gate.reached()
            nursery.start_soon(broker.groups.consumers.heartbeat, HEARTBEAT)
            gate.release()
        await until(lambda: GROUP in broker.groups.consumers)
        assert synced.assignment == EVERYTHING
        held_by = {each.member_id: len(each.assignment) for each in broker.groups.consumers.describe(GROUP).members}
        assert held_by[joined.member_id] == 1


async def test_nothing_is_converted_once_the_coordinator_stops(fast_path: Path, fs: GateFileSystem) -> None:
    """Else the record of the classic group could come after those of the consumer group."""
    async with serving(fast_path, fs=fs) as broker, trio.open_nursery() as nursery:
        joined = await join(broker)
        refused: list[object] = []

        async def upgrade() -> None:
            try:
                await broker.groups.consumers.heartbeat(HEARTBEAT)
            except RequestError as exc:
                refused.append(exc.code)

        with fs.hold("write", LOG) as gate:
            nursery.start_soon(sync, broker, joined)
            await gate.reached()
            nursery.start_soon(upgrade)
            await trio.testing.wait_all_tasks_blocked()
            broker.groups.close()
            gate.release()
        await until(lambda: bool(refused))
        assert refused == [ErrorCode.NOT_COORDINATOR]
        assert GROUP not in broker.groups.consumers


async def test_members_of_both_protocols_that_come_at_once_are_in_one_group(fast_path: Path) -> None:
    async with serving(fast_path) as broker:
        await formed(broker)
        codes: list[object] = []

        async def classic() -> None:
            codes.append((await join(broker)).error)

        async def consumer(number: int) -> None:
            answer = await broker.groups.consumers.heartbeat(attrs.evolve(HEARTBEAT, member_id=f"m{number}"))
            codes.append(ErrorCode.NONE if answer.member_epoch > 0 else answer)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(consumer, number)
                nursery.start_soon(classic)
        # A join that came before the conversion has to come again.
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        assert len(broker.groups.consumers.describe(GROUP).members) == 11
