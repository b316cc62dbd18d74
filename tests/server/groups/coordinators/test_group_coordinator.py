"""Members of groups: callers who wait, deadlines, and records that are in the log before anybody is told what they say."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerProtocolSubscription,
    decode_group_metadata_value,
    encode_consumer_protocol,
)
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC, GroupMetadataKey, decode_offsets_key
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server import broker as door

from tests.support.brokers import PARTITION, TOPIC, listings, one_partition, records_from, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TransactionalProducer, committed_offset

GROUP = "group"
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
SESSION_MS = 10_000
DAY_MS = 86_400_000
SUBSCRIPTION = encode_consumer_protocol(ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=[]), 1)


@asynccontextmanager
async def serving(directory: Path, **settings: Any) -> AsyncIterator[door.Broker]:
    async with one_partition(directory, group_initial_rebalance_delay_ms=0, **settings) as broker:
        yield broker


@pytest.fixture
async def broker(fast_path: Path, fs: GateFileSystem) -> AsyncIterator[door.Broker]:
    async with serving(fast_path, fs=fs) as broker:
        yield broker


async def join(broker: door.Broker, member_id: str = "", *, group: str = GROUP, **changes: Any) -> door.JoinAnswer:
    """As a consumer does: with the member id that it is given, if it has none."""
    request = door.Join(
        group_id=group,
        protocol_type="consumer",
        protocols=(("range", SUBSCRIPTION),),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        client_id="client",
        client_host="/127.0.0.1",
    )
    request = attrs.evolve(request, **changes)
    answer = await broker.groups.join(request)
    if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
        answer = await broker.groups.join(attrs.evolve(request, member_id=answer.member_id))
    return answer


async def sync(broker: door.Broker, joined: door.JoinAnswer, *, group: str = GROUP) -> door.SyncAnswer:
    """A leader gives every member its own name."""
    assignments = tuple((each.member_id, each.member_id.encode()) for each in joined.members)
    return await broker.groups.sync(
        door.Sync(group_id=group, generation=joined.generation, member_id=joined.member_id, assignments=assignments)
    )


async def become_member(broker: door.Broker, *, group: str = GROUP, **changes: Any) -> door.JoinAnswer:
    """The only member of a stable group."""
    joined = await join(broker, group=group, **changes)
    assert joined.error is ErrorCode.NONE
    assert (await sync(broker, joined, group=group)).error is ErrorCode.NONE
    return joined


def heartbeat(broker: door.Broker, joined: door.JoinAnswer) -> ErrorCode:
    return broker.groups.heartbeat(door.Heartbeat(group_id=GROUP, generation=joined.generation, member_id=joined.member_id))


def state(broker: door.Broker, group: str = GROUP) -> door.GroupState:
    return broker.groups.describe(group).state


def committing(joined: door.JoinAnswer) -> door.CommittingMember:
    return door.CommittingMember(generation=joined.generation, member_id=joined.member_id)


async def test_a_caller_that_is_gone_is_a_member_until_its_session_ends(broker: door.Broker, mock_clock: MockClock) -> None:
    first = await become_member(broker)
    with trio.CancelScope() as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, broker)
            await until(lambda: len(broker.groups.describe(GROUP).members) == 2)
            connection.cancel()
    assert len(broker.groups.describe(GROUP).members) == 2
    assert not broker.groups._callers
    again = await join(broker, first.member_id)
    assert (again.generation, len(again.members)) == (2, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync, broker, again)
        await until(lambda: state(broker) is door.GroupState.STABLE)
    mock_clock.jump(SESSION_MS / 1000 / 2)
    assert heartbeat(broker, again) is ErrorCode.NONE
    mock_clock.jump(SESSION_MS / 1000 / 2 + 0.01)
    await until(lambda: len(broker.groups.describe(GROUP).members) == 1)
    assert heartbeat(broker, again) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_silent_members_are_removed_in_memory_and_in_the_log(broker: door.Broker, mock_clock: MockClock) -> None:
    joined = await become_member(broker)
    for _ in range(3):
        mock_clock.jump(SESSION_MS / 1000 - 0.1)
        assert heartbeat(broker, joined) is ErrorCode.NONE
    mock_clock.jump(SESSION_MS / 1000 + 0.01)
    await until(lambda: state(broker) is door.GroupState.EMPTY)
    assert heartbeat(broker, joined) is ErrorCode.UNKNOWN_MEMBER_ID
    await until(lambda: not broker.groups._members.is_being_stored(GROUP))
    value = decode_group_metadata_value((await records_from(broker, OFFSETS))[-1].value or b"")
    assert (value.members, value.generation, value.current_state_timestamp) == ([], 2, START_MS)


async def test_who_waits_when_the_server_stops_is_told_to_look_elsewhere(fast_path: Path) -> None:
    answers: list[door.JoinAnswer] = []

    async def come(broker: door.Broker) -> None:
        answers.append(await join(broker))

    async with trio.open_nursery() as nursery:
        async with serving(fast_path) as broker:
            await become_member(broker)
            nursery.start_soon(come, broker)
            await until(lambda: state(broker) is door.GroupState.PREPARING_REBALANCE)
    assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    coordinator = broker.groups
    request = door.Join(group_id=GROUP, protocol_type="consumer", protocols=(), session_timeout_ms=1)
    assert (await coordinator.join(request)).error is ErrorCode.NOT_COORDINATOR


async def test_nobody_has_an_assignment_before_it_is_on_the_device(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs, durability="fsync") as broker:
        await broker.offsets.commit("other", [(PARTITION, 1, None)])
        joined = await join(broker)
        async with held(fs.hold("sync", ".log"), sync, broker, joined):
            assert state(broker) is door.GroupState.COMPLETING_REBALANCE
        assert state(broker) is door.GroupState.STABLE


async def test_an_assignment_that_cannot_be_written_is_given_to_nobody(broker: door.Broker, fs: GateFileSystem) -> None:
    await broker.offsets.commit("other", [(PARTITION, 1, None)])
    joined = await join(broker)
    fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
    answer = await sync(broker, joined)
    assert answer == door.SyncAnswer(error=ErrorCode.NOT_COORDINATOR)
    assert heartbeat(broker, joined) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await join(broker, joined.member_id)
    assert (await sync(broker, again)).error is ErrorCode.NONE


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_group_continues_after_a_stop_or_a_kill(fast_path: Path, mock_clock: MockClock, end: str) -> None:
    async with serving(fast_path / "stop") as broker:
        joined = await become_member(broker, group_instance_id="one")
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=committing(joined))
        before = broker.groups.describe(GROUP)
        shutil.copytree(fast_path / "stop", fast_path / "kill")
    async with serving(fast_path / end) as broker:
        assert broker.groups.describe(GROUP) == before
        assert heartbeat(broker, joined) is ErrorCode.NONE
        assert await broker.offsets.commit(GROUP, [(PARTITION, 6, None)], member=committing(joined)) == [None]
        back = await join(broker, group_instance_id="one", supports_skipping_assignment=True)
        assert (back.error, back.generation, back.skip_assignment) == (ErrorCode.NONE, 1, True)
        assert (await sync(broker, back)).assignment == joined.member_id.encode()
    async with serving(fast_path / end) as broker:
        mock_clock.jump(SESSION_MS / 1000 - 0.5)
        await trio.testing.wait_all_tasks_blocked()
        assert state(broker) is door.GroupState.STABLE
        mock_clock.jump(0.6)
        await until(lambda: state(broker) is door.GroupState.EMPTY)


async def test_records_of_groups_that_wait_are_written_together(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs, durability="fsync") as broker:
        await broker.offsets.commit("other", [(PARTITION, 1, None)])
        names = [f"group-{number}" for number in range(20)]
        joined = {name: await join(broker, group=name) for name in names}

        async def come(name: str) -> None:
            assert (await sync(broker, joined[name], group=name)).error is ErrorCode.NONE

        before = broker.logs.statistics(OFFSETS).appends
        async with trio.open_nursery() as nursery:
            with fs.hold("sync", ".log") as gate:
                for name in names:
                    nursery.start_soon(come, name)
                await gate.reached()
        assert broker.logs.statistics(OFFSETS).appends - before <= 2
        assert {each.state for each in await listings(broker, ["stable"])} == {door.GroupState.STABLE}
        assert len(await listings(broker, ["STABLE"])) == 20


async def test_a_group_whose_record_is_too_large_does_not_let_the_others_suffer(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs, durability="fsync", topic={"max.message.bytes": "1000"}) as broker:
        await broker.offsets.commit("other", [(PARTITION, 1, None)])
        joined = {name: await join(broker, group=name) for name in ("first", "large", "small")}
        answers: dict[str, ErrorCode] = {}

        async def come(name: str) -> None:
            assignments = ((joined[name].member_id, bytes(2_000 if name == "large" else 10)),)
            answers[name] = (
                await broker.groups.sync(
                    door.Sync(group_id=name, generation=1, member_id=joined[name].member_id, assignments=assignments)
                )
            ).error

        async with held(fs.hold("sync", ".log"), come, "first") as nursery:
            nursery.start_soon(come, "large")
            nursery.start_soon(come, "small")
            await trio.testing.wait_all_tasks_blocked()
        assert answers == {"first": ErrorCode.NONE, "small": ErrorCode.NONE, "large": ErrorCode.UNKNOWN_SERVER_ERROR}


async def test_a_group_with_members_accepts_their_commits_once_they_have_an_assignment(broker: door.Broker) -> None:
    joined = await join(broker)
    assert [each.group_id for each in await listings(broker)] == [GROUP]
    with pytest.raises(RequestError, match="REBALANCE_IN_PROGRESS"):
        await broker.offsets.commit(GROUP, [(PARTITION, 1, None)], member=committing(joined))
    assert OFFSETS_TOPIC not in broker.topics.names()
    await sync(broker, joined)
    for member, expected in (
        (door.CommittingMember(), "UNKNOWN_MEMBER_ID"),
        (door.CommittingMember(generation=7, member_id=joined.member_id), "ILLEGAL_GENERATION"),
    ):
        with pytest.raises(RequestError, match=expected):
            await broker.offsets.commit(GROUP, [(PARTITION, 1, None)], member=member)
    assert await committed_offset(broker, GROUP, PARTITION) == -1
    producer = await TransactionalProducer.start(broker)
    await producer.commit_offset(GROUP, PARTITION, 2)
    await producer.commit()
    assert await committed_offset(broker, GROUP, PARTITION) == 2


async def test_a_first_commit_is_refused_when_a_member_joins_meanwhile(broker: door.Broker, fs: GateFileSystem) -> None:
    refused: list[ErrorCode] = []

    async def commit() -> None:
        try:
            await broker.offsets.commit(GROUP, [(PARTITION, 1, None)])
        except RequestError as exc:
            refused.append(exc.code)

    async with held(fs.hold("make_directory", "__consumer_offsets-0"), commit):
        await join(broker)
    assert refused == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await broker.offsets.fetch(GROUP) == []


async def test_offsets_expire_when_the_last_member_has_been_gone_for_the_retention(fast_path: Path, clock: Clock) -> None:
    async with serving(fast_path, clock=clock) as broker:
        coordinator = broker.groups
        await broker.offsets.commit(GROUP, [(PARTITION, 4, None)])
        joined = await join(broker)
        clock.advance(8 * DAY_MS)
        assert await coordinator.expire() == 0, "the log does not know its member yet"
        assert (await sync(broker, joined)).error is ErrorCode.NONE
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=committing(joined))
        clock.advance(30 * DAY_MS)
        assert await coordinator.expire() == 0
        await broker.groups.leave(GROUP, [door.LeavingMember(joined.member_id)])
        await until(lambda: not coordinator._members.is_being_stored(GROUP))
        clock.advance(7 * DAY_MS - 1)
        assert await coordinator.expire() == 0
        clock.advance(1)
        assert await coordinator.expire() == 1
        assert await listings(broker) == []
        assert len(coordinator._members) == 0
    async with serving(fast_path, clock=clock) as broker:
        assert await listings(broker) == []


async def test_offsets_expire_though_the_log_refused_the_empty_group(fast_path: Path, fs: GateFileSystem, clock: Clock) -> None:
    async with serving(fast_path, clock=clock, fs=fs) as broker:
        coordinator = broker.groups
        joined = await become_member(broker)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=committing(joined))
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        await broker.groups.leave(GROUP, [door.LeavingMember(joined.member_id)])
        await until(lambda: not coordinator._members.is_being_stored(GROUP))
        clock.advance(8 * DAY_MS)
        assert await coordinator.expire() == 0
        await until(lambda: not coordinator._members.is_being_stored(GROUP))
        clock.advance(7 * DAY_MS)
        assert await coordinator.expire() == 1
        assert await listings(broker) == []


async def test_offsets_of_topics_that_are_read_are_not_deleted(fast_path: Path) -> None:
    other = TopicPartition("other", 0)
    async with serving(fast_path) as broker:
        await broker.topics.create("other")
        with pytest.raises(RequestError, match="GROUP_ID_NOT_FOUND"):
            await broker.offsets.delete(GROUP, [PARTITION])
        joined = await become_member(broker)
        offsets = [(PARTITION, 5, None), (other, 6, None)]
        await broker.offsets.commit(GROUP, offsets, member=committing(joined))
        asked = [PARTITION, other, TopicPartition("none", 0)]
        answers = await broker.offsets.delete(GROUP, asked)
        assert [error and error.code for error in answers] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            None,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await broker.offsets.fetch(GROUP) == [(PARTITION, 5, "")]
        await broker.groups.leave(GROUP, [door.LeavingMember(joined.member_id)])
        assert await broker.offsets.delete(GROUP, [PARTITION]) == [None]
        assert await broker.offsets.fetch(GROUP) == []
    async with serving(fast_path) as broker:
        assert await broker.offsets.fetch(GROUP) == []


async def test_groups_are_listed_by_state_and_type(broker: door.Broker) -> None:
    await broker.offsets.commit("simple", [(PARTITION, 1, None)])
    await become_member(broker)
    simple, group = door.GroupListing("simple"), door.GroupListing(GROUP, "consumer", door.GroupState.STABLE)
    assert await listings(broker) == [group, simple]
    assert await listings(broker, ["stable", "dead"]) == [group]
    assert await listings(broker, ["Empty"], ["Classic"]) == [simple]
    assert await listings(broker, [], ["consumer"]) == []
    assert broker.groups.describe("simple").state is door.GroupState.EMPTY
    assert broker.groups.describe("nobody's").state is door.GroupState.DEAD


@pytest.mark.parametrize("is_stored", [True, False])
async def test_only_a_group_without_members_is_deleted(fast_path: Path, is_stored: bool) -> None:
    """Also one of which the log knows nothing."""
    async with serving(fast_path) as broker:
        joined = await (become_member if is_stored else join)(broker)
        if is_stored:
            await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=committing(joined))
        with pytest.raises(RequestError, match=r"NON_EMPTY_GROUP.*is (Stable|CompletingRebalance) and has 1 members"):
            await broker.groups.delete(GROUP)
        await broker.groups.leave(GROUP, [door.LeavingMember(joined.member_id)])
        await broker.groups.delete(GROUP)
        assert await listings(broker) == []
        with pytest.raises(RequestError, match="GROUP_ID_NOT_FOUND"):
            await broker.groups.delete(GROUP)
    async with serving(fast_path) as broker:
        assert await listings(broker) == []
        if is_stored:
            key = decode_offsets_key((await records_from(broker, OFFSETS))[-1].key or b"")
            assert key == GroupMetadataKey(GROUP)


async def test_a_deletion_that_has_begun_refuses_members_and_is_completed(fast_path: Path, fs: GateFileSystem) -> None:
    async with serving(fast_path, fs=fs, durability="fsync") as broker:
        await broker.groups.leave(GROUP, [door.LeavingMember((await become_member(broker)).member_id)])
        await until(lambda: not broker.groups._members.is_being_stored(GROUP))
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        with pytest.raises(RequestError, match="KAFKA_STORAGE_ERROR"):
            await broker.groups.delete(GROUP)
        assert state(broker) is door.GroupState.EMPTY, "it is as it was"
        with trio.CancelScope() as connection:
            async with held(fs.hold("sync", ".log"), broker.groups.delete, GROUP):
                assert (await join(broker)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
                with pytest.raises(RequestError, match="GROUP_ID_NOT_FOUND"):
                    await broker.groups.delete(GROUP)
                connection.cancel()
        assert await listings(broker) == []
        assert (await join(broker)).generation == 1
