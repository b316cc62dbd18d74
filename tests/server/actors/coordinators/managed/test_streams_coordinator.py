"""The coordinator of Streams groups: turns, deadlines, records before answers, and names that change their kind."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
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
    ConsumerHeartbeat,
    Join,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
)

from tests.support.brokers import PARTITION, TOPIC, one_partition, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import Clock
from tests.support.streams_groups import GROUP, WORD_COUNT, joining
from tests.support.transactions import committed_offset

SESSION_S = 45.0
DAY_MS = 86_400_000
AT_ONCE: dict[str, Any] = {"group_streams_initial_rebalance_delay_ms": 0}
JOIN = joining(GROUP, "a", TOPIC)
CONSUMER = ConsumerHeartbeat(
    group_id=GROUP, member_id="c", rebalance_timeout_ms=60_000, topic_names=(TOPIC,), owned=frozenset()
)
CLASSIC = Join(
    group_id=GROUP,
    protocol_type="consumer",
    protocols=(("range", b""),),
    session_timeout_ms=10_000,
    requires_known_member_id=False,
)
BEAT = StreamsHeartbeat(group_id=GROUP, member_id="a", member_epoch=2)


async def heartbeat(broker: Broker, request: StreamsHeartbeat = JOIN, **changes: Any) -> StreamsHeartbeatAnswer:
    return await broker.groups.streams_heartbeat(attrs.evolve(request, **changes))


async def refusal(broker: Broker, request: StreamsHeartbeat = JOIN, **changes: Any) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        await heartbeat(broker, request, **changes)
    assert isinstance(refused.value.code, ErrorCode)
    return refused.value.code


def described(broker: Broker) -> StreamsGroupDescription:
    return broker.groups.streams.describe(GROUP)


def members(broker: Broker) -> set[str]:
    return {member.member_id for member in described(broker).members}


async def test_heartbeats_of_a_group_that_come_at_once_take_turns(tmp_path: Path) -> None:
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(lambda number=number: heartbeat(broker, member_id=f"m{number}"))
        assert len(members(broker)) == 20
        assert described(broker).group_epoch == 21


async def test_a_silent_member_is_out_in_memory_and_in_the_log(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        await heartbeat(broker)
        mock_clock.jump(SESSION_S + 0.01)
        await until(lambda: members(broker) == set())
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        assert members(broker) == set()


async def test_a_heartbeat_without_news_is_answered_on_the_spot_and_keeps_the_session(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        streams = broker.groups.streams
        await heartbeat(broker)
        for _ in range(3):
            mock_clock.jump(SESSION_S - 1)
            with trio.testing.assert_no_checkpoints():
                answer = streams.heartbeat_now(BEAT)
            assert answer == await heartbeat(broker, BEAT)
            assert answer is not None
            assert (answer.member_epoch, answer.assignment, answer.statuses) == (2, None, ())
        assert members(broker) == {"a"}


async def test_a_heartbeat_that_changes_or_waits_is_not_answered_on_the_spot(tmp_path: Path) -> None:
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        streams = broker.groups.streams
        assert streams.heartbeat_now(JOIN) is None
        assert GROUP not in streams
        await heartbeat(broker)
        for news in ({"member_epoch": -1}, {"member_epoch": 9}, {"member_id": "b"}, {"process_id": "another"}):
            assert streams.heartbeat_now(attrs.evolve(BEAT, **news)) is None, news
        async with streams._turns.of(GROUP):
            assert streams.heartbeat_now(BEAT) is None, "somebody else's change comes first"
        await heartbeat(broker, member_id="b")
        assert streams.heartbeat_now(BEAT) is None, "it has a task to give up"
        streams.close()
        assert streams.heartbeat_now(BEAT) is None


async def test_a_heartbeat_that_finds_topics_missing_is_not_answered_on_the_spot(tmp_path: Path) -> None:
    """Whoever asks `heartbeat` makes them, and that takes its time."""
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        await broker.topics.create("words")
        joined = await heartbeat(broker, topology=WORD_COUNT)
        assert joined.missing_topics
        beat = attrs.evolve(BEAT, member_epoch=joined.member_epoch)
        assert broker.groups.streams.heartbeat_now(beat) is None
        assert (await heartbeat(broker, beat)).missing_topics == joined.missing_topics


async def test_nobody_is_a_member_before_it_is_on_the_device(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync", **AT_ONCE) as broker:
        await broker.offsets.commit("other", [(PARTITION, 1, None)])
        async with held(fs.hold("sync", ".log"), heartbeat, broker):
            with pytest.raises(RequestError, match="not found"):
                described(broker)
        assert members(broker) == {"a"}


async def test_what_cannot_be_written_has_not_happened_and_the_next_one_may(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, **AT_ONCE) as broker:
        await heartbeat(broker)
        before = described(broker)
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        assert await refusal(broker, member_id="b") is ErrorCode.NOT_COORDINATOR
        assert described(broker) == before
        await heartbeat(broker, member_id="b")
        assert members(broker) == {"a", "b"}


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_group_goes_on_after_the_server_was_stopped_or_killed(tmp_path: Path, end: str) -> None:
    async with one_partition(tmp_path / "1", **AT_ONCE) as broker:
        await heartbeat(broker)
        await heartbeat(broker, member_id="b")
        await heartbeat(broker, BEAT)
        before = described(broker)
        if end == "kill":
            shutil.copytree(tmp_path / "1", tmp_path / "2")
    async with one_partition(tmp_path / ("2" if end == "kill" else "1"), **AT_ONCE) as broker:
        assert described(broker) == before
        assert (await heartbeat(broker, BEAT, member_epoch=3)).member_epoch == 3


async def test_a_coordinator_that_stops_sends_members_away(tmp_path: Path) -> None:
    async with one_partition(tmp_path, **AT_ONCE) as broker:
        await heartbeat(broker)
        broker.groups.close()
        assert await refusal(broker, BEAT) is ErrorCode.NOT_COORDINATOR


async def test_a_group_without_members_goes_when_its_offsets_have_expired(tmp_path: Path, clock: Clock) -> None:
    async with one_partition(tmp_path, clock=clock, **AT_ONCE) as broker:
        await heartbeat(broker)
        member = CommittingMember(generation=2, member_id="a")
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member)
        clock.advance(8 * DAY_MS)
        assert await broker.groups.expire() == 0
        await heartbeat(broker, BEAT, member_epoch=-1)
        assert await committed_offset(broker, GROUP, PARTITION) == 5
        assert await broker.groups.expire() == 1
        assert GROUP not in broker.groups.streams
        assert broker.groups.listings() == []


async def test_members_of_three_kinds_that_come_at_once_make_one_kind(tmp_path: Path) -> None:
    async with one_partition(tmp_path, group_initial_rebalance_delay_ms=0, **AT_ONCE) as broker:
        outcomes: dict[str, object] = {}

        async def beat(kind: str, send: Callable[[], Awaitable[object]]) -> None:
            try:
                await send()
            except RequestError as exc:
                outcomes[kind] = exc.code
            else:
                outcomes[kind] = ErrorCode.NONE

        async def classic() -> None:
            outcomes["classic"] = (await broker.groups.join(CLASSIC)).error

        await heartbeat(broker)
        await heartbeat(broker, BEAT, member_epoch=-1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(classic)
            nursery.start_soon(beat, "consumer", lambda: broker.groups.consumer_heartbeat(CONSUMER))
            nursery.start_soon(beat, "streams", lambda: heartbeat(broker))
        won = [kind for kind, code in outcomes.items() if code is ErrorCode.NONE]
        assert len(won) == 1, outcomes
        assert {code for kind, code in outcomes.items() if kind not in won} <= {
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        }
        [listing] = broker.groups.listings()
        assert listing.group_type == won[0]
