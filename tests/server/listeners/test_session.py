"""A session on its own, without a broker."""

from __future__ import annotations

import trio
from triolog.protocol.limits import MIB
from triolog.protocol.native.connection import NativeConnection
from triolog.protocol.native.state import Role
from triolog.server.listeners.budget import InFlightBudget
from triolog.server.listeners.session import Session
from triolog.server.listeners.transport import Transport


async def test_a_session_whose_socket_is_closed_can_still_be_told_to_stop() -> None:
    """The stop of a server meets connections whose task is between closing its socket and its end."""
    near, far = trio.socket.socketpair()
    session = Session(Transport(trio.SocketStream(near), "peer"), NativeConnection(Role.SERVER), InFlightBudget(MIB))
    await session.transport.stream.aclose()
    session.stop_reading()
    assert not session.lingers
    assert await session.next_request() is None
    far.close()


async def test_a_session_with_unread_bytes_lingers_when_it_is_told_to_stop() -> None:
    near, far = trio.socket.socketpair()
    session = Session(Transport(trio.SocketStream(near), "peer"), NativeConnection(Role.SERVER), InFlightBudget(MIB))
    await far.send(b"unread")
    session.stop_reading()
    assert session.lingers
    await session.transport.stream.aclose()
    far.close()
