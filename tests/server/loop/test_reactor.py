"""The loop: turns, the reactor, work that waits, procedures, alarms and locks."""

from __future__ import annotations

import select
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native import messages
from triolog.server.fake.clock import MovedClock
from triolog.server.listeners.connections.states import HELD, READING, State
from triolog.server.loop.procedures import ELEMENTS_PER_TURN, PAUSE, Procedure, Reply, mapped, perform
from triolog.server.loop.reactor import CHECK_S, Deadlines, Reactor
from triolog.server.loop.readiness import SOCKETS_PER_TURN, EpollWatcher, KqueueWatcher, PortableWatcher, Watcher
from triolog.server.loop.turns import STEPS_PER_TURN, Gathering, Turns
from triolog.server.loop.waiting import Alarm, KeyedLocks, Waiters, deadline_now_ms, waiting_on

from tests.support import kqueue
from tests.support.attackers import BothListeners, both_listeners
from tests.support.brokers import until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_server import TOPIC, batch, produce_request


@attrs.define(eq=False)
class Peer:
    """A session that reads a byte at a time, and the other end of its socket."""

    near: socket.socket
    far: socket.socket
    gathering: Gathering
    state: State = READING
    read: list[bytes] = attrs.field(factory=list)
    departures: list[bool] = attrs.field(factory=list)
    errors: list[Exception] = attrs.field(factory=list)

    @property
    def descriptor(self) -> int:
        return self.near.fileno()

    def on_bytes(self) -> None:
        assert self.gathering.is_open
        self.read.append(self.near.recv(1))

    def on_departure(self, is_gone: bool) -> None:
        self.departures.append(is_gone)

    def on_next_turn(self) -> None:
        self.read.append(b"again")

    def end_with(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture(params=["epoll", "kqueue", "portable"])
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """Each one; kqueue by its imitation where there is none."""
    if request.param == "epoll":
        if not hasattr(select, "epoll"):
            pytest.skip("the names of epoll are hidden")
        return EpollWatcher()
    if request.param == "portable":
        return PortableWatcher()
    if hasattr(select, "kqueue"):
        return KqueueWatcher()
    for name, value in {"kqueue": kqueue.Kqueue, "kevent": kqueue.Kevent}.items():
        monkeypatch.setattr(select, name, value, raising=False)
    for name in kqueue.NAMES:
        monkeypatch.setattr(select, name, getattr(kqueue, name), raising=False)
    return KqueueWatcher()


@pytest.fixture
async def reactor(watcher: Watcher) -> AsyncIterator[Reactor]:
    reactor = Reactor(Gathering(), watcher=watcher)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reactor.run)
        yield reactor
        nursery.cancel_scope.cancel()
    reactor.close()


def peer_of(reactor: Reactor, kind: type[Peer] = Peer) -> Peer:
    near, far = socket.socketpair()
    peer = kind(near, far, reactor.gathering)
    reactor.add(peer)
    return peer


def let_go(reactor: Reactor, *peers: Peer) -> None:
    for peer in peers:
        reactor.remove(peer)
        peer.near.close()
        peer.far.close()


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_all_that_are_ready_are_served_in_one_turn_up_to_a_number(reactor: Reactor) -> None:
    turns: list[int] = []

    class Count(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            served = sum(len(each.read) for each in peers)
            if served > sum(turns):
                turns.append(served - sum(turns))

    peers = [peer_of(reactor) for _ in range(SOCKETS_PER_TURN + 3)]
    for peer in peers:
        peer.far.send(b"x")
    trio.lowlevel.add_instrument(counting := Count())
    await settled()
    trio.lowlevel.remove_instrument(counting)
    assert turns == [SOCKETS_PER_TURN, 3]
    assert [peer.read for peer in peers] == [[b"x"]] * len(peers)
    let_go(reactor, *peers)


async def test_one_that_floods_takes_one_turn_in_each(reactor: Reactor) -> None:
    flood, other = peer_of(reactor), peer_of(reactor)
    flood.far.send(b"x" * 100)
    other.far.send(b"ab")
    while len(other.read) < 2:
        await trio.lowlevel.checkpoint()
    assert len(flood.read) <= 3
    let_go(reactor, flood, other)


async def test_one_that_wants_no_bytes_is_left_alone_until_it_does(reactor: Reactor) -> None:
    peer = peer_of(reactor)
    peer.state = HELD
    peer.far.send(b"xy")
    await settled()
    assert (peer.read, peer.departures) == ([], [])
    peer.state = READING
    await settled()
    assert peer.read == [], "it is not asked for again until it says so"
    reactor.expect(peer)
    await settled()
    assert peer.read == [b"x", b"y"]
    let_go(reactor, peer)


@pytest.mark.parametrize("sends_first", [False, True])
@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_departure_is_told_once_while_nobody_reads(reactor: Reactor, *, is_gone: bool, sends_first: bool) -> None:
    """The portable watcher does not see the end of one direction before the bytes ahead of it were read."""
    is_seen = is_gone or not sends_first or not isinstance(reactor._watcher, PortableWatcher)
    peer = peer_of(reactor)
    peer.state = HELD
    if sends_first:
        peer.far.send(b"x")
        await settled()
    if is_gone:
        peer.far.close()
    else:
        peer.far.shutdown(socket.SHUT_WR)
    if is_seen:
        await until(lambda: bool(peer.departures))
    await settled()
    assert peer.departures == [is_gone] * is_seen
    peer.state = READING
    reactor.expect(peer)
    while b"" not in peer.read:
        await trio.lowlevel.checkpoint()
    assert peer.read[0] == (b"x" if sends_first else b"")
    assert peer.departures == [is_gone] * is_seen
    let_go(reactor, peer)


async def test_a_connection_that_was_reset_is_gone_and_one_that_was_closed_may_still_read(reactor: Reactor) -> None:
    """TCP: a peer that closed looks like one that only sends no more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for linger, is_gone in ((None, False), (struct.pack("ii", 1, 0), True)):
            far = socket.create_connection(server.getsockname())
            peer = Peer(server.accept()[0], far, reactor.gathering, state=HELD)
            reactor.add(peer)
            if linger is not None:
                far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            far.close()
            await until(lambda peer=peer: bool(peer.departures))  # type: ignore[misc]
            assert peer.departures == [is_gone]
            let_go(reactor, peer)


async def test_one_that_asks_for_it_goes_on_in_the_next_turn_with_those_ready(reactor: Reactor) -> None:
    @attrs.define(eq=False)
    class Goes(Peer):
        def on_bytes(self) -> None:
            super().on_bytes()
            assert reactor.again(self)

    near, far = socket.socketpair()
    first, second = Goes(near, far, reactor.gathering), peer_of(reactor)
    reactor.add(first)
    assert not reactor.again(first), "outside of a turn nobody would begin the next"
    first.far.send(b"x")
    await settled()
    assert first.read == [b"x", b"again"]
    first.far.send(b"y")
    second.far.send(b"z")
    await settled()
    assert (first.read[2:], second.read) == ([b"y", b"again"], [b"z"])
    let_go(reactor, first, second)


async def test_one_that_was_removed_is_not_served_and_may_be_removed_after_a_departure(reactor: Reactor) -> None:
    removed, gone = peer_of(reactor), peer_of(reactor)
    gone.state = HELD
    gone.far.close()
    await settled()
    reactor.remove(removed)
    removed.far.send(b"x")
    await settled()
    assert removed.read == []
    let_go(reactor, removed, gone)


async def test_those_that_leave_while_they_become_ready_disturb_nobody(reactor: Reactor) -> None:
    stays = peer_of(reactor)
    for passes in range(60):
        leaves = peer_of(reactor)
        stays.far.send(b"x")
        leaves.far.send(b"x")
        for _ in range(passes % 4):
            await trio.lowlevel.checkpoint()
        let_go(reactor, leaves)
        await trio.lowlevel.checkpoint()
    await settled()
    assert stays.read == [b"x"] * 60
    let_go(reactor, stays)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, TypeError])
async def test_only_the_session_that_raises_is_ended(reactor: Reactor, error: type[Exception]) -> None:
    @attrs.define(eq=False)
    class Broken(Peer):
        def on_bytes(self) -> None:
            super().on_bytes()
            if error is ZeroDivisionError:
                raise error
            reactor.again(self)

        def on_departure(self, is_gone: bool) -> None:
            raise KeyError

        def on_next_turn(self) -> None:
            raise TypeError

    broken, other = peer_of(reactor, Broken), peer_of(reactor)
    broken.state = HELD if error is KeyError else READING
    broken.far.send(b"xy")
    other.far.send(b"ab")
    if error is KeyError:
        broken.far.close()
    await settled()
    assert [type(each) for each in broken.errors] == [error]
    assert other.read == [b"a", b"b"]
    let_go(reactor, broken, other)


def test_a_turn_has_as_many_steps_as_it_says() -> None:
    turns = Turns()
    assert [turns.spend(STEPS_PER_TURN // 3) for _ in range(6)] == [False, False, True] * 2
    turns = Turns()
    assert turns.fit(STEPS_PER_TURN - 1)
    assert not turns.fit(1)
    assert not turns.fit(1)
    assert turns.spend(1)
    assert turns.fit(STEPS_PER_TURN - 1)
    turns = Turns()
    assert not turns.fit(STEPS_PER_TURN), "it never does"
    turns.begin()
    assert not turns.spend(1)
    assert turns.fit(STEPS_PER_TURN - 2)


@attrs.define(eq=False)
class Work:
    name: str
    done: list[str]
    causes: Callable[[], None] = lambda: None

    def end_turn(self) -> None:
        self.done.append(self.name)
        self.causes()


def test_writes_come_before_sends_each_once_and_in_the_order_they_were_asked_for() -> None:
    done: list[str] = []
    gathering = Gathering()
    first, second, peer = (Work(name, done) for name in ("first", "second", "peer"))
    with gathering:
        with gathering:
            gathering.senders[peer] = None
            for who in (first, second, first):
                gathering.writers[who] = None
        assert (done, gathering.is_open) == ([], True), "a turn in a turn ends with the outermost"
    assert done == ["first", "second", "peer"]


def test_what_the_end_of_a_turn_causes_is_done_before_it_is_over() -> None:
    done: list[str] = []
    gathering = Gathering()
    log = Work("log", done)
    peer = Work("peer", done, lambda: gathering.writers.update({log: None}) if done.count("peer") == 1 else None)
    log.causes = lambda: gathering.senders.update({peer: None})
    with gathering:
        gathering.senders[peer] = None
    assert done == ["peer", "log", "peer"]
    assert not gathering.is_open


def test_an_error_at_the_end_of_a_turn_is_raised_and_the_next_turn_does_what_was_left() -> None:
    done: list[str] = []
    gathering = Gathering()

    def fail() -> None:
        raise ZeroDivisionError

    def turn() -> None:
        with gathering:
            gathering.writers[Work("broken", done, fail)] = None
            gathering.writers[Work("other", done)] = None

    with pytest.raises(ZeroDivisionError):
        turn()
    assert not gathering.is_open
    with gathering:
        pass
    assert done == ["broken", "other"]


async def test_it_wakes_just_after_the_earliest_deadline_that_it_has_or_gets(autojump_clock: MockClock) -> None:
    alarm, begun_ms = Alarm(), deadline_now_ms()
    await Alarm().wait(begun_ms + 5000)
    assert 5000 < deadline_now_ms() - begun_ms <= 5002
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.wait, None)
        await trio.testing.wait_all_tasks_blocked()
        alarm.bring_forward(deadline_now_ms() + 1)
    begun_ms = deadline_now_ms()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.wait, begun_ms + 5000)
        await trio.testing.wait_all_tasks_blocked()
        alarm.bring_forward(begun_ms + 6000)
        alarm.bring_forward(None)
        await trio.sleep(1)
        assert len(nursery.child_tasks) == 1
        alarm.bring_forward(begun_ms + 4000)
    assert deadline_now_ms() - begun_ms < 2000


@attrs.define(eq=False)
class Waits:
    ended: list[float] = attrs.field(factory=list)

    def expire(self) -> None:
        self.ended.append(trio.current_time())


@asynccontextmanager
async def running() -> AsyncIterator[Deadlines]:
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines()
        nursery.start_soon(deadlines.run)
        yield deadlines
        nursery.cancel_scope.cancel()


async def test_each_is_told_once_within_a_check_behind_its_time(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as deadlines:
        waiting = [Waits() for _ in range(3)]
        start = trio.current_time()
        for number, each in enumerate(waiting):
            deadlines.add(each, 10 * number)
        await trio.sleep(100)
        for number, each in enumerate(waiting):
            [at] = each.ended
            assert 0 <= at - start - 10 * number <= 2 * CHECK_S
        assert not len(deadlines)


async def test_who_was_removed_is_not_told(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as deadlines:
        answered, late = Waits(), Waits()
        for each in (answered, late):
            deadlines.add(each, 0)
        deadlines.pop(answered, None)
        await trio.sleep(10)
        assert (answered.ended, len(late.ended)) == ([], 1)


async def test_nobody_is_woken_while_nothing_waits(autojump_clock: trio.testing.MockClock) -> None:
    """The clock jumps only over waits: with a check each second this would take a million of them."""
    steps = 0

    class Count(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Deadlines().run)
        trio.lowlevel.add_instrument(counting := Count())
        await trio.sleep(1_000_000)
        trio.lowlevel.remove_instrument(counting)
        nursery.cancel_scope.cancel()
    assert steps < 10


async def test_who_was_told_is_not_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as deadlines:
        late = Waits()
        kept = weakref.ref(late)
        deadlines.add(late, 0)
        del late
        await trio.sleep(10)
        assert kept() is None


def test_the_time_of_one_that_begins_to_wait_as_the_clock_is_moved_is_not_over_at_once() -> None:
    clock = MovedClock()

    async def main() -> None:
        async with running() as deadlines:
            first, late = Waits(), Waits()
            deadlines.add(first, 100)
            await trio.testing.wait_all_tasks_blocked()
            clock.advance(2)
            await until(lambda: deadlines[first] > 0)
            clock.advance(200)
            deadlines.add(late, 100)
            await until(lambda: bool(first.ended))
            assert not late.ended
            clock.advance(200)
            await until(lambda: bool(late.ended))

    trio.run(main, clock=clock)


LONG_MS = 600_000


@asynccontextmanager
async def held_up(path: Path) -> AsyncIterator[BothListeners]:
    """A server whose device takes nothing within the block."""
    fs = GateFileSystem()
    async with both_listeners(path, fs=fs) as server:
        with fs.hold("write", ".log"):
            yield server


def native_produce(timeout_ms: int) -> messages.ProduceRequest:
    return messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, batch("x")),), timeout_ms=timeout_ms)


async def test_a_native_produce_is_answered_when_its_timeout_is_over(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.server.loop.reactor.CHECK_S", 0.01)
    async with held_up(fast_path) as server, server.native_client() as client:
        with trio.fail_after(30):
            answer = await client.call(native_produce(1))
        assert answer.partitions[0].error.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("protocol", ["kafka", "native"])
async def test_what_has_a_timeout_is_forgotten_with_its_connection(fast_path: Path, protocol: str) -> None:
    async with held_up(fast_path) as server:
        listener = server.kafka.listener if protocol == "kafka" else server.native
        deadlines = listener._reactor.deadlines
        if protocol == "kafka":
            async with server.kafka_client() as client:
                await client.send(produce_request(batch("x"), timeout_ms=LONG_MS), 9)
                await until(lambda: len(deadlines) == 1)
                await client.reset()
        else:
            async with server.native_client() as native:
                await native.send(native_produce(LONG_MS))
                await until(lambda: len(deadlines) == 1)
        listener.stop(0)
        await until(lambda: listener.connections == 0)
        assert len(deadlines) == 0


async def test_waking_wakes_all_who_wait() -> None:
    waiters = Waiters()
    woken: list[int] = []

    async def wait(number: int) -> None:
        with waiting_on([waiters]) as moved:
            await moved.wait()
            woken.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        assert len(waiters) == 5
        waiters.wake_all()
    assert sorted(woken) == list(range(5))
    assert len(waiters) == 0


async def test_any_of_several_partitions_wakes_and_all_forget() -> None:
    several = [Waiters() for _ in range(3)]
    for moving in several:
        with waiting_on(several) as moved:
            assert [len(each) for each in several] == [1, 1, 1]
            moving.wake_all()
            assert moved.is_set()
            with trio.fail_after(30):
                await moved.wait()  # a move between the look and the wait is not missed
        assert [len(each) for each in several] == [0, 0, 0]
    with trio.move_on_after(0), waiting_on(several) as moved:
        await moved.wait()
    assert [len(each) for each in several] == [0, 0, 0], "a task that is cancelled is forgotten"
    with waiting_on([several[0], several[0]]) as moved:
        several[0].wake_all()
        assert moved.is_set()
    assert len(several[0]) == 0


async def half(number: int) -> int:
    await trio.lowlevel.checkpoint()
    if number % 2:
        raise ValueError(number)
    return number // 2


def halves(*numbers: int) -> Procedure[list[int | str]]:
    found: list[int | str] = []
    for number in numbers:
        try:
            found.append((yield partial(half, number)))
        except ValueError as exc:
            found.append(f"not {exc}")
    return found


async def test_results_are_sent_into_a_procedure_and_errors_thrown_into_it() -> None:
    assert await perform(halves(4, 3, 2)) == [2, "not 3", 1]
    assert await perform(halves()) == []
    begun = halves(4, 3)
    wait = next(begun)
    assert await perform(begun, wait) == [2, "not 3"]


async def test_an_exception_of_a_procedure_is_raised() -> None:
    def fails() -> Procedure[None]:
        yield PAUSE
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        await perform(fails())


async def test_a_cancelled_procedure_is_closed_where_it_waits() -> None:
    closed = []

    def waits() -> Procedure[None]:
        try:
            yield trio.sleep_forever
        finally:
            closed.append(True)

    with trio.move_on_after(0):
        await perform(waits())
    assert closed == [True]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_reply_is_awaited_or_calls_back(is_known: bool) -> None:
    def asks(reply: Reply) -> Procedure[str]:
        return f"it was {(yield reply)}"

    awaited, called = Reply(), Reply()
    found: list[int] = []
    if is_known:
        awaited.put(7)
        assert await perform(asks(awaited)) == "it was 7"
        return
    called.then = found.append
    async with trio.open_nursery() as nursery:
        nursery.start_soon(perform, asks(awaited))
        await trio.testing.wait_all_tasks_blocked()
        awaited.put(7)
        called.put(8)
    assert found == [8]


def test_mapped_pauses_after_every_few_elements() -> None:
    results: list[str] = []

    def keeps() -> Procedure[None]:
        results.extend((yield from mapped(str, range(4 * ELEMENTS_PER_TURN))))

    assert list(keeps()) == [PAUSE] * 3
    assert results == [str(number) for number in range(4 * ELEMENTS_PER_TURN)]
    with pytest.raises(StopIteration):
        next(mapped(str, range(ELEMENTS_PER_TURN)))


async def test_a_lock_is_held_by_one_task_at_a_time_in_the_order_of_requests() -> None:
    locks, order = KeyedLocks[str](), list[str]()
    release = trio.Event()

    async def take(name: str) -> None:
        async with locks.hold("group"):
            order.append(name)
            await release.wait()

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(take, name)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["a"]
        async with locks.hold("other"):
            assert "other" in locks
        assert "group" in locks
        release.set()
    assert order == ["a", "b", "c"]
    assert "group" not in locks
    assert "other" not in locks


async def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    locks = KeyedLocks[str]()
    async with locks.hold("group"):
        with trio.move_on_after(0):
            async with locks.hold("group"):
                raise AssertionError("two hold it at once")
        assert "group" in locks
    assert "group" not in locks
