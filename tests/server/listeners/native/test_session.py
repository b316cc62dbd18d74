"""A session on its own, without a broker."""

from __future__ import annotations

import trio
import trio.testing
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NativeConnection
from triolog.protocol.native.state import Role
from triolog.server.listeners.connections.budget import FREE_BYTES, InFlightBudget
from triolog.server.listeners.connections.transport import Transport
from triolog.server.listeners.native.session import Session

from tests.support.in_steps import at_once


async def test_a_session_whose_socket_is_closed_can_still_be_told_to_stop() -> None:
    """The stop of a server meets connections whose task is between closing its socket and its end."""
    near, far = trio.socket.socketpair()
    session = Session(Transport(trio.SocketStream(near), "peer"), NativeConnection(Role.SERVER), InFlightBudget(MIB), at_once)
    await session.transport.stream.aclose()
    session.stop_reading()
    assert not session.lingers
    assert await session.next_request() is None
    far.close()


async def test_a_session_with_unread_bytes_lingers_when_it_is_told_to_stop() -> None:
    near, far = trio.socket.socketpair()
    session = Session(Transport(trio.SocketStream(near), "peer"), NativeConnection(Role.SERVER), InFlightBudget(MIB), at_once)
    await far.send(b"unread")
    session.stop_reading()
    assert session.lingers
    await session.transport.stream.aclose()
    far.close()


async def test_a_request_that_came_as_the_session_was_told_to_stop_is_not_waited_for() -> None:
    """Its task is awake already when the stop comes: what it takes up then would be cancelled and never answered."""
    near, far = trio.socket.socketpair()
    budget = InFlightBudget(1)
    session = Session(Transport(trio.SocketStream(near), "peer"), NativeConnection(Role.SERVER), budget, at_once)
    client = NativeConnection(Role.CLIENT)
    hello = client.send_request(1, "hello", messages.VERSION, {"padding": bytes(2 * FREE_BYTES)})
    other = budget.open_share()
    other.held = 2 * FREE_BYTES
    other.unread_bytes = lambda: other.held
    await other.charge()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_take_all, session)
            await trio.SocketStream(far).send_all(b"".join(hello))
            await trio.testing.wait_all_tasks_blocked()
            assert budget.is_waited_for
            other.close()
            session.stop_reading()
        await session.all_answered()
        session.drop_unread()
    assert (session.share.held, budget.used) == (0, 0)
    await session.transport.stream.aclose()
    far.close()


async def _take_all(session: Session) -> None:
    with session.reading:
        while await session.next_request() is not None:
            await trio.lowlevel.checkpoint()
