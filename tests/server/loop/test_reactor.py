"""Which sessions are served in a turn, and what a session that reads nothing is told of its peer."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.server.listeners.connections.states import HELD, READING, State
from triolog.server.loop.alarm import Alarm, deadline_now_ms
from triolog.server.loop.reactor import SOCKETS_PER_TURN, Reactor
from triolog.server.loop.turns import STEPS_PER_TURN, Gathering, Turns


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


@pytest.fixture
async def reactor() -> AsyncIterator[Reactor]:
    reactor = Reactor(Gathering())
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
    peer = peer_of(reactor)
    peer.state = HELD
    if sends_first:
        peer.far.send(b"x")
        await settled()
    if is_gone:
        peer.far.close()
    else:
        peer.far.shutdown(socket.SHUT_WR)
    await settled()
    assert peer.departures == [is_gone]
    peer.state = READING
    reactor.expect(peer)
    while b"" not in peer.read:
        await trio.lowlevel.checkpoint()
    assert peer.read[0] == (b"x" if sends_first else b"")
    assert peer.departures == [is_gone]
    let_go(reactor, peer)


async def test_one_that_asks_for_it_in_a_turn_goes_on_in_the_next_one_with_those_that_are_ready(reactor: Reactor) -> None:
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


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, TypeError])
async def test_a_session_that_raises_is_ended_and_the_others_are_served(reactor: Reactor, error: type[Exception]) -> None:
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


def test_the_step_that_fills_a_turn_is_the_last_and_the_next_turn_is_empty() -> None:
    turns = Turns()
    assert [turns.spend(STEPS_PER_TURN // 3) for _ in range(6)] == [False, False, True] * 2


def test_what_does_not_fit_is_not_done_and_whoever_spends_next_is_the_last() -> None:
    turns = Turns()
    assert turns.fit(STEPS_PER_TURN - 1)
    assert not turns.fit(1)
    assert not turns.fit(1)
    assert turns.spend(1)
    assert turns.fit(STEPS_PER_TURN - 1)


def test_a_turn_that_begins_has_room() -> None:
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
            gathering.send_later(peer)
            for who in (first, second, first):
                gathering.write_later(who)
        assert (done, gathering.is_open) == ([], True), "a turn in a turn ends with the outermost"
    assert done == ["first", "second", "peer"]


def test_what_the_end_of_a_turn_causes_is_done_before_it_is_over() -> None:
    done: list[str] = []
    gathering = Gathering()
    log = Work("log", done)
    peer = Work("peer", done, lambda: gathering.write_later(log) if done.count("peer") == 1 else None)
    log.causes = lambda: gathering.send_later(peer)
    with gathering:
        gathering.send_later(peer)
    assert done == ["peer", "log", "peer"]
    assert not gathering.is_open


def test_an_error_at_the_end_of_a_turn_is_raised_and_the_next_turn_does_what_was_left() -> None:
    done: list[str] = []
    gathering = Gathering()

    def fail() -> None:
        raise ZeroDivisionError

    def turn() -> None:
        with gathering:
            gathering.write_later(Work("broken", done, fail))
            gathering.write_later(Work("other", done))

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
