"""A session on its own, without a broker; and produces with acks 0, which have no answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NEED_DATA, LastError, NativeConnection, NativeRequest
from triolog.protocol.native.state import Role
from triolog.server.listeners.connections.budget import FREE_BYTES, InFlightBudget
from triolog.server.listeners.connections.states import DRAINING
from triolog.server.listeners.connections.transport import Transport
from triolog.server.listeners.native.session import NativeSession
from triolog.server.loop.reactor import Reactor
from triolog.server.loop.turns import Gathering

from tests.support.attackers import NativeStream, both_listeners
from tests.support.brokers import PARTITION, until, values_from
from tests.support.in_steps import at_once
from tests.support.kafka_server import TOPIC, batch


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
        assert served.session.state == DRAINING


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


async def produce_unacknowledged(client: NativeStream, topic: str, records: bytes) -> None:
    request = messages.ProduceRequest((messages.ProducePartition(topic, 0, records),), acks=0)
    pieces = client.connection.send_request(99, request.api, messages.VERSION, request.to_body(), expects_answer=False)
    await client.send_raw(b"".join(pieces))


async def test_a_produce_with_acks_0_is_appended_and_never_answered(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server, server.native_client() as client:
        await produce_unacknowledged(client, TOPIC, batch("value"))
        await client.send(messages.MetadataRequest())
        assert (await client.receive()).correlation_id != 99
        await until(lambda: server.kafka.broker.reader.snapshot(PARTITION).log_end_offset == 1)


@pytest.mark.parametrize(
    ("topic", "records", "code"),
    [
        ("absent", batch("value"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, batch("value")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    ],
)
async def test_a_failed_produce_with_acks_0_is_told_why(fast_path: Path, topic: str, records: bytes, code: ErrorCode) -> None:
    async with both_listeners(fast_path) as server, server.native_client() as client:
        await produce_unacknowledged(client, topic, records)
        with trio.fail_after(30):
            while (event := client.connection.next_event()) is NEED_DATA:
                client.connection.receive_data(await client.stream.receive_some())
        assert isinstance(event, LastError)
        assert event.error.code is code
        assert await values_from(server.kafka.broker) == []
