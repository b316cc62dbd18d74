"""A session on its own, without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NativeConnection, NativeRequest
from triolog.protocol.native.state import Role
from triolog.server.actors.disk.gathering import Gathering
from triolog.server.listeners.connections.budget import FREE_BYTES, InFlightBudget
from triolog.server.listeners.connections.reactor import Reactor
from triolog.server.listeners.connections.transport import Transport
from triolog.server.listeners.native.session import NativeSession

from tests.support.in_steps import at_once


@attrs.define(eq=False)
class Served:
    """A session, the peer's end of its socket, and the requests that it has taken up, which nobody answers."""

    session: NativeSession
    far: trio.SocketStream
    taken: list[NativeRequest] = attrs.field(factory=list)


@asynccontextmanager
async def session_of(budget: InFlightBudget | None = None) -> AsyncIterator[Served]:
    near, far = trio.socket.socketpair()
    reactor = Reactor(Gathering())
    transport = Transport(trio.SocketStream(near), "peer", reactor=reactor)
    taken: list[NativeRequest] = []
    session = NativeSession(
        transport=transport,
        connection=NativeConnection(Role.SERVER),
        budget=budget or InFlightBudget(MIB),
        open_calls=lambda _: taken.append,
        in_steps=at_once,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reactor.run)
        yield Served(session, trio.SocketStream(far), taken)
        nursery.cancel_scope.cancel()
    reactor.close()
    far.close()
    near.close()


async def test_a_session_whose_socket_is_closed_can_still_be_told_to_stop() -> None:
    """The stop of a server meets connections whose task is between closing its socket and its end."""
    async with session_of() as served:
        await served.session.transport.stream.aclose()
        served.session.stop_reading()
        assert not served.session.lingers
        assert not served.session.wants_bytes


async def test_a_session_with_unread_bytes_lingers_when_it_is_told_to_stop() -> None:
    async with session_of() as served:
        await served.far.send_all(b"unread")
        served.session.stop_reading()
        assert served.session.lingers


async def test_a_request_that_came_as_the_session_was_told_to_stop_is_not_waited_for() -> None:
    """Its task is awake already when the stop comes: what it takes up then would be cancelled and never answered."""
    budget = InFlightBudget(1)
    client = NativeConnection(Role.CLIENT)
    hello = client.send_request(1, "hello", messages.VERSION, {"padding": bytes(2 * FREE_BYTES)})
    other = budget.open_share()
    other.held = 2 * FREE_BYTES
    other.unread_bytes = lambda: other.held
    await other.charge()
    with trio.fail_after(30):
        async with session_of(budget) as served, trio.open_nursery() as nursery:
            nursery.start_soon(served.session.serve)
            await served.far.send_all(b"".join(hello))
            await trio.testing.wait_all_tasks_blocked()
            assert budget.is_waited_for
            other.close()
            served.session.stop_reading()
            await served.far.aclose()
    assert not served.taken
    assert (served.session.share.held, budget.used) == (0, 0)


async def test_what_was_taken_when_the_session_was_told_to_stop_is_answered_before_it_ends() -> None:
    async with session_of() as served, trio.open_nursery() as nursery:
        nursery.start_soon(served.session.serve)
        await served.far.send_all(b"".join(NativeConnection(Role.CLIENT).send_request(1, "hello", messages.VERSION, {})))
        await trio.testing.wait_all_tasks_blocked()
        [request] = served.taken
        served.session.stop_reading()
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        served.session.respond(request.correlation_id, None, {})
        assert await served.far.receive_some(1000)
        await served.far.aclose()
