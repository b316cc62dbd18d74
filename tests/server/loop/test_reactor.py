"""Which sessions are served in a turn, and what a session that reads nothing is told of its peer."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
import trio.testing
from triolog.server.listeners.connections.states import HELD, READING, State
from triolog.server.loop.reactor import SOCKETS_PER_TURN, Reactor
from triolog.server.loop.turns import Gathering


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
