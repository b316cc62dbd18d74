"""A session on its own, without a broker; and produces with acks 0, which have no answer. Every field of a native request is
read by the code that serves it. A client of the native protocol that is above its quota: it is not told, and read from no more
until its time is over."""

from __future__ import annotations

import ast
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NEED_DATA, LastError, NativeConnection, NativeRequest
from triolog.protocol.native.messages import FetchPartition, FetchRequest, MetadataRequest, ProducePartition, ProduceRequest
from triolog.protocol.native.state import Role
from triolog.protocol.native.structs import RequestMessage, Struct, fields_of
from triolog.server.embedded import BlockingBroker
from triolog.server.listeners.connections.budget import FREE_BYTES, InFlightBudget
from triolog.server.listeners.connections.states import DRAINING
from triolog.server.listeners.connections.transport import Transport
from triolog.server.listeners.native.session import NativeSession
from triolog.server.loop.reactor import Reactor
from triolog.server.loop.turns import Gathering

from tests.support.attackers import NativeStream, both_listeners
from tests.support.brokers import PARTITION, until, values_from
from tests.support.in_steps import at_once
from tests.support.kafka_quotas import FETCHED, PRODUCED, altering
from tests.support.kafka_server import TOPIC, batch
from tests.support.kafka_wire import KafkaWire
from tests.support.wire_client import WireClient


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


ROOT: Final = Path(__file__).resolve().parents[4]
READERS: Final = ("server/listeners/native", "protocol/native/calls", "protocol/native/structs.py")
"""The handlers, and what messages answer of themselves."""


def read_names() -> set[str]:
    """Every attribute that is read."""
    paths = [path for each in READERS for path in ((ROOT / each).rglob("*.py") if (ROOT / each).is_dir() else [ROOT / each])]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


def structs_in(shape: Any) -> Iterator[type[Struct]]:
    inner = shape if isinstance(shape, list) else list(shape.values()) if isinstance(shape, dict) else [shape]
    return (each for each in inner if isinstance(each, type) and issubclass(each, Struct))


def request_fields() -> Iterator[tuple[str, str]]:
    """(structure, field) of every request."""
    classes = [each for each in vars(messages).values() if isinstance(each, type)]
    left = [each for each in classes if issubclass(each, RequestMessage) and each is not RequestMessage]
    while left:
        cls: type[Struct] = left.pop()
        for field in fields_of(cls):
            yield cls.__name__, field.name
            left.extend(structs_in(field.shape))


def test_every_field_of_every_request_is_read() -> None:
    fields, read = set(request_fields()), read_names()
    assert len(fields) > 100
    assert sorted((cls, name) for cls, name in fields if name not in read) == []


KILOBYTES = batch("x" * 20_000)
PRODUCE = ProduceRequest((ProducePartition(TOPIC, 0, KILOBYTES),))
FETCH = FetchRequest((FetchPartition(TOPIC, 0, 0, 30_000),), max_bytes=30_000)


def connected(broker: BlockingBroker) -> WireClient:
    return WireClient.connect(broker.native)


def limit(broker: BlockingBroker, key: str) -> None:
    with KafkaWire.connect(broker.kafka) as admin:
        [entry] = admin.call(altering(([("client-id", "wire-client")], [(key, 100.0)])), 1).entries
        assert entry.error_code == 0


@pytest.mark.parametrize(
    ("key", "request_", "is_muted"),
    [(PRODUCED, PRODUCE, True), (FETCHED, FETCH, True), (PRODUCED, FETCH, False), (FETCHED, PRODUCE, False)],
)
def test_what_follows_a_call_above_the_quota_waits_for_its_time(
    broker: BlockingBroker, key: str, request_: messages.RequestMessage, is_muted: bool
) -> None:
    with connected(broker) as client, connected(broker) as other:
        client.call(PRODUCE)
        limit(broker, key)
        client.call(request_)
        asked = client.send(MetadataRequest())
        if is_muted:
            broker.clock.advance(100)
            other.call(MetadataRequest())
            readable, _, _ = select.select([client.socket], [], [], 0)
            assert not readable
            broker.clock.advance(200)
        assert client.receive_answer(asked)
