"""What the coordinators of groups whose assignments the server makes do alike, tried with each kind: locks, deadlines, records
before answers."""

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
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server import broker as door
from triolog.server.groups.share.groups import ShareHeartbeat

from tests.support.brokers import PARTITION, PATIENCE_S, TOPIC, listings, one_partition, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import Clock
from tests.support.share_groups import KeptShareStates
from tests.support.streams_groups import WORD_COUNT, joining
from tests.support.transactions import committed_offset

GROUP: Final = "group"
SESSION_S: Final = 45.0
DAY_MS: Final = 86_400_000


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of these groups: the heartbeat that joins, and a change that a later heartbeat may report."""

    name: str
    join: Any
    news: dict[str, object]
    states: KeptShareStates = attrs.field(factory=KeptShareStates)
    """Of share groups, over restarts."""

    @asynccontextmanager
    async def serving(self, path: Path, **settings: Any) -> AsyncIterator[door.Broker]:
        immediate = {"group_initial_rebalance_delay_ms": 0, "group_streams_initial_rebalance_delay_ms": 0}
        async with one_partition(path, **immediate, **settings) as broker:
            broker.groups.share.states = self.states
            yield broker

    def coordinator(self, broker: door.Broker) -> Any:
        return getattr(broker.groups, "consumers" if self.name == "consumer" else self.name)

    async def heartbeat(self, broker: door.Broker, request: Any = None, **changes: Any) -> Any:
        return await self.coordinator(broker).heartbeat(attrs.evolve(request or self.join, **changes))

    async def refusal(self, broker: door.Broker, request: Any = None, **changes: Any) -> object:
        with pytest.raises(RequestError) as refused:
            await self.heartbeat(broker, request, **changes)
        return refused.value.code

    async def settled(self, broker: door.Broker, **changes: Any) -> Any:
        """Join and beat until nothing is new; answers the heartbeat that would follow."""
        joining = attrs.evolve(self.join, **changes)
        answer = await self.heartbeat(broker, joining)
        while True:
            beat = type(joining)(group_id=GROUP, member_id=joining.member_id, member_epoch=answer.member_epoch)
            again = await self.heartbeat(broker, beat)
            if (again.member_epoch, again.assignment) == (answer.member_epoch, None):
                return beat
            answer = again

    def described(self, broker: door.Broker) -> Any:
        return self.coordinator(broker).describe(GROUP)

    def members(self, broker: door.Broker) -> set[str]:
        return {member.member_id for member in self.described(broker).members}


CONSUMER: Final = door.ConsumerHeartbeat(
    group_id=GROUP, member_id="a", rebalance_timeout_ms=60_000, topic_names=(TOPIC,), owned=frozenset()
)
SHARE: Final = ShareHeartbeat(group_id=GROUP, member_id="a", topic_names=(TOPIC,), client_id="client", client_host="/host")
STREAMS: Final[door.StreamsHeartbeat] = joining(GROUP, "a", TOPIC)
CLASSIC: Final = door.Join(
    group_id=GROUP,
    protocol_type="consumer",
    protocols=(("range", b""),),
    session_timeout_ms=10_000,
    requires_known_member_id=False,
)


@pytest.fixture(params=["consumer", "share", "streams"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return {
        "consumer": Kind(name="consumer", join=CONSUMER, news={"topic_names": ("other",)}),
        "share": Kind(name="share", join=SHARE, news={"rack_id": "r"}),
        "streams": Kind(name="streams", join=STREAMS, news={"process_id": "another"}),
    }[request.param]


async def test_heartbeats_that_come_at_once_take_turns(fast_path: Path, kind: Kind) -> None:
    epochs: set[int] = set()
    async with kind.serving(fast_path) as broker:

        async def join(number: int) -> None:
            epochs.add((await kind.heartbeat(broker, member_id=f"m{number}")).member_epoch)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(join, number)
        assert len(kind.members(broker)) == len(epochs) == 20
        assert GROUP not in kind.coordinator(broker)._locks


async def test_a_heartbeat_without_news_is_answered_at_once(fast_path: Path, kind: Kind, mock_clock: MockClock) -> None:
    async with kind.serving(fast_path) as broker:
        beat = await kind.settled(broker)
        for _ in range(3):
            mock_clock.jump(SESSION_S - 1)
            with trio.testing.assert_no_checkpoints():
                answer = kind.coordinator(broker).try_heartbeat(beat)
            assert answer == await kind.heartbeat(broker, beat)
            assert (answer.member_epoch, answer.assignment) == (beat.member_epoch, None)
        assert kind.members(broker) == {"a"}


async def test_a_heartbeat_that_changes_or_waits_is_not_answered_at_once(fast_path: Path, kind: Kind) -> None:
    async with kind.serving(fast_path) as broker:
        coordinator = kind.coordinator(broker)
        assert coordinator.try_heartbeat(kind.join) is None
        assert GROUP not in coordinator
        beat = await kind.settled(broker)
        for news in ({"member_epoch": -1}, {"member_epoch": 9}, {"member_id": "b"}, kind.news):
            assert coordinator.try_heartbeat(attrs.evolve(beat, **news)) is None, news
        async with coordinator._locks.hold(GROUP):
            assert coordinator.try_heartbeat(beat) is None, "somebody else's change comes first"
        coordinator.close()
        assert coordinator.try_heartbeat(beat) is None


async def test_a_silent_member_is_removed_in_memory_and_in_the_log(fast_path: Path, kind: Kind, mock_clock: MockClock) -> None:
    async with kind.serving(fast_path) as broker:
        await kind.heartbeat(broker, member_id="b")
        await kind.settled(broker)
        mock_clock.jump(SESSION_S - 1)
        await kind.settled(broker)
        mock_clock.jump(1.01)
        await until(lambda: kind.members(broker) == {"a"})
        before = kind.described(broker)
    async with kind.serving(fast_path) as broker:
        assert kind.described(broker) == before
        mock_clock.jump(SESSION_S + 0.01)
        await until(lambda: kind.members(broker) == set())
    async with kind.serving(fast_path) as broker:
        assert kind.members(broker) == set()


async def test_a_member_exists_once_it_is_on_the_device(fast_path: Path, kind: Kind, fs: GateFileSystem) -> None:
    async with kind.serving(fast_path, fs=fs, durability="fsync") as broker:
        await broker.offsets.commit("other", [(PARTITION, 1, None)])
        async with held(fs.hold("sync", ".log"), kind.heartbeat, broker) as nursery:
            with pytest.raises(RequestError, match="not found"):
                kind.described(broker)
            nursery.cancel_scope.cancel()
        assert kind.members(broker) == {"a"}


async def test_a_change_that_cannot_be_written_has_not_happened(fast_path: Path, kind: Kind, fs: GateFileSystem) -> None:
    async with kind.serving(fast_path, fs=fs) as broker:
        await kind.settled(broker)
        before = kind.described(broker)
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        assert await kind.refusal(broker, member_id="b") is ErrorCode.NOT_COORDINATOR
        assert kind.described(broker) == before
        await kind.heartbeat(broker, member_id="b")
        assert kind.members(broker) == {"a", "b"}


async def test_a_removal_that_cannot_be_written_is_tried_again(
    fast_path: Path, kind: Kind, fs: GateFileSystem, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kind.serving(fast_path, fs=fs) as broker:
        await kind.heartbeat(broker)
        fs.fail("write", f"{OFFSETS_TOPIC}-0/00000000000000000000.log")
        mock_clock.jump(SESSION_S + 0.01)
        await until(lambda: "could not persist" in caplog.text)
        assert kind.members(broker) == {"a"}
        mock_clock.jump(1.01)
        await until(lambda: kind.members(broker) == set())


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_group_continues_after_a_stop_or_a_kill(fast_path: Path, kind: Kind, end: str) -> None:
    async with kind.serving(fast_path / "stop") as broker:
        await kind.heartbeat(broker, member_id="b")
        beat = await kind.settled(broker)
        before = kind.described(broker)
        shutil.copytree(fast_path / "stop", fast_path / "kill")
    async with kind.serving(fast_path / end) as broker:
        assert kind.described(broker) == before
        answer = await kind.heartbeat(broker, beat)
        assert (answer.member_epoch, answer.assignment) == (beat.member_epoch, None)
    assert await kind.refusal(broker) is ErrorCode.NOT_COORDINATOR, "it has stopped"


async def test_only_an_empty_group_is_deleted(fast_path: Path, kind: Kind) -> None:
    async with kind.serving(fast_path) as broker:
        beat = await kind.settled(broker)
        [listing] = await listings(broker, ["stable"], [kind.name])
        assert listing == door.GroupListing(GROUP, kind.name, kind.described(broker).state, kind.name)
        assert await listings(broker, ["empty"]) == await listings(broker, [], ["classic"]) == []
        if kind.name != "share":  # whose offsets are not committed
            member = door.CommittingMember(generation=beat.member_epoch, member_id="a")
            assert await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member) == [None]
        with pytest.raises(RequestError, match="NON_EMPTY_GROUP"):
            await broker.groups.delete(GROUP)
        await kind.heartbeat(broker, beat, member_epoch=-1)
        assert [each.group_id for each in await listings(broker, ["Empty"])] == [GROUP]
        await broker.groups.delete(GROUP)
        assert await listings(broker) == []
        assert await broker.offsets.fetch(GROUP) == []
    async with kind.serving(fast_path) as broker:
        assert await listings(broker) == []
        with pytest.raises(RequestError, match="GROUP_ID_NOT_FOUND"):
            await broker.groups.delete(GROUP)


@pytest.fixture
async def empty(fast_path: Path, kind: Kind) -> AsyncIterator[door.Broker]:
    """A broker with a group without members."""
    async with kind.serving(fast_path) as broker:
        await kind.heartbeat(broker, await kind.settled(broker), member_epoch=-1)
        yield broker


async def test_several_who_delete_a_group_at_once_do_not_wait_for_each_other(empty: door.Broker) -> None:
    codes: list[object] = []

    async def delete() -> None:
        try:
            await empty.groups.delete(GROUP)
        except RequestError as exc:
            codes.append(exc.code)
        else:
            codes.append(ErrorCode.NONE)

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(delete)
    assert ErrorCode.NONE in codes
    assert set(codes) <= {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}
    assert await listings(empty) == []


@pytest.mark.parametrize("kind", ["consumer", "streams"], indirect=True)
async def test_classic_members_that_take_an_empty_group_over_at_once_do_not_wait_for_each_other(empty: door.Broker) -> None:
    asked = door.Sync(group_id=GROUP, generation=1, member_id="a", assignments=())
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(empty.groups.join, CLASSIC)
        nursery.start_soon(empty.groups.sync, asked)
        await until(lambda: len(empty.groups.describe(GROUP).members) == 3)
        nursery.cancel_scope.cancel()
    [listing] = await listings(empty)
    assert listing.group_type == "classic"


@pytest.mark.parametrize("kind", ["consumer", "streams"], indirect=True)
async def test_an_empty_group_goes_when_its_offsets_have_expired(fast_path: Path, kind: Kind, clock: Clock) -> None:
    async with kind.serving(fast_path, clock=clock) as broker:
        beat = await kind.settled(broker)
        member = door.CommittingMember(generation=beat.member_epoch, member_id="a")
        assert await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member) == [None]
        clock.advance(30 * DAY_MS)
        assert await broker.groups.expire() == 0
        await kind.heartbeat(broker, beat, member_epoch=-1)
        assert await committed_offset(broker, GROUP, PARTITION) == 5
        assert await broker.groups.expire() == 1
        assert (await listings(broker), GROUP in kind.coordinator(broker)) == ([], False)
    async with kind.serving(fast_path, clock=clock) as broker:
        assert await listings(broker) == []


async def test_members_of_three_kinds_that_come_at_once_make_one_kind(fast_path: Path) -> None:
    kinds = [Kind(name="consumer", join=CONSUMER, news={}), Kind(name="streams", join=STREAMS, news={})]
    async with kinds[1].serving(fast_path) as broker:
        outcomes: dict[str, object] = {}

        async def beat(kind: Kind) -> None:
            try:
                await kind.heartbeat(broker)
            except RequestError as exc:
                outcomes[kind.name] = exc.code
            else:
                outcomes[kind.name] = ErrorCode.NONE

        async def classic() -> None:
            outcomes["classic"] = (await broker.groups.join(CLASSIC)).error

        await kinds[1].heartbeat(broker, await kinds[1].settled(broker), member_epoch=-1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(classic)
            for each in kinds:
                nursery.start_soon(beat, each)
        won = [kind for kind, code in outcomes.items() if code is ErrorCode.NONE]
        assert len(won) == 1, outcomes
        refused = {code for kind, code in outcomes.items() if kind not in won}
        assert refused <= {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        [listing] = await listings(broker)
        assert listing.group_type == won[0]


@pytest.mark.parametrize("kind", ["streams"], indirect=True)
async def test_heartbeats_with_missing_topics_or_tasks_to_give_up_have_to_wait(fast_path: Path, kind: Kind) -> None:
    """The caller of `heartbeat` creates the topics, which takes its time."""
    async with kind.serving(fast_path / "1") as broker:
        await broker.topics.create("words")
        joined = await kind.heartbeat(broker, topology=WORD_COUNT)
        assert joined.missing_topics
        beat = door.StreamsHeartbeat(group_id=GROUP, member_id="a", member_epoch=joined.member_epoch)
        assert broker.groups.streams.try_heartbeat(beat) is None
        assert (await kind.heartbeat(broker, beat)).missing_topics == joined.missing_topics
    async with kind.serving(fast_path / "2") as broker:
        beat = await kind.settled(broker)
        await kind.heartbeat(broker, member_id="b")
        assert broker.groups.streams.try_heartbeat(beat) is None


@pytest.mark.parametrize("kind", ["consumer"], indirect=True)
async def test_members_of_a_consumer_group_commit_at_their_epoch_and_follow_topics(fast_path: Path, kind: Kind) -> None:
    async with kind.serving(fast_path) as broker:
        beat = await kind.settled(broker)
        member = door.CommittingMember(generation=2, member_id="a")
        assert await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member) == [None]
        broker.groups.consumers.check_fetch(GROUP, "a", 2)
        with pytest.raises(RequestError, match="expected member epoch 2"):
            broker.groups.consumers.check_fetch(GROUP, "a", 3)
        for stale, code in (
            (door.CommittingMember(generation=3, member_id="a"), "STALE_MEMBER_EPOCH"),
            (door.CommittingMember(), "UNKNOWN_MEMBER_ID"),
        ):
            with pytest.raises(RequestError, match=code):
                await broker.offsets.commit(GROUP, [(PARTITION, 6, None)], member=stale)
        [error] = await broker.offsets.delete(GROUP, [PARTITION])
        assert error is not None
        assert error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await broker.topics.create_partitions(TOPIC, 3)
        answer = await kind.heartbeat(broker, beat)
        wanted = frozenset((broker.topics.id_of(TOPIC), number) for number in range(3))
        assert (answer.member_epoch, answer.assignment) == (3, wanted)
        await broker.topics.delete(TOPIC)
        answer = await kind.heartbeat(broker, beat, member_epoch=3, owned=frozenset())
        assert (answer.member_epoch, answer.assignment) == (4, frozenset())
        assert (await kind.heartbeat(broker, beat, member_epoch=-1)).member_epoch == -1
        await broker.topics.create(TOPIC)
        assert await broker.offsets.commit(GROUP, [(PARTITION, 7, None)]) == [None]
        assert await committed_offset(broker, GROUP, PARTITION) == 7


async def classic_join(broker: door.Broker) -> door.JoinAnswer:
    """One classic member with an assignment, or why it cannot be."""
    joined = await broker.groups.join(CLASSIC)
    if joined.error is ErrorCode.NONE:
        await broker.groups.sync(door.Sync(group_id=GROUP, generation=joined.generation, member_id=joined.member_id))
    return joined


@pytest.mark.parametrize("kind", ["consumer"], indirect=True)
async def test_a_group_without_members_changes_its_kind_and_keeps_its_offsets(fast_path: Path, kind: Kind) -> None:
    async with kind.serving(fast_path) as broker:
        joined = await classic_join(broker)
        member = door.CommittingMember(generation=joined.generation, member_id=joined.member_id)
        await broker.offsets.commit(GROUP, [(PARTITION, 5, None)], member=member)
        assert await kind.refusal(broker) is ErrorCode.GROUP_ID_NOT_FOUND
        await broker.groups.leave(GROUP, [door.LeavingMember(joined.member_id)])
        beat = await kind.settled(broker)
        [listing] = await listings(broker)
        assert listing.group_type == "consumer"
        assert broker.groups.describe(GROUP).state is door.GroupState.DEAD
        assert await committed_offset(broker, GROUP, PARTITION) == 5
    async with kind.serving(fast_path) as broker:
        assert await listings(broker, types=["Consumer"]) == [listing]
        assert await listings(broker, types=["classic"]) == []
        assert len(broker.groups._members) == 0
        assert (await classic_join(broker)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await kind.heartbeat(broker, beat, member_epoch=-1)
        assert (await classic_join(broker)).error is ErrorCode.NONE
        assert broker.groups.describe(GROUP).state is door.GroupState.STABLE
        with pytest.raises(RequestError, match="not found"):
            kind.described(broker)
    async with kind.serving(fast_path) as broker:
        assert [each.group_type for each in await listings(broker)] == ["classic"]
        assert await committed_offset(broker, GROUP, PARTITION) == 5
