"""What nobody expected of one connection ends that connection: it is said, counted, and what it held is given back."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NEED_DATA, LastError
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.counters import OUT_OF_MEMORY, ProtocolCounters, report_bug
from triolog.server.listeners.connections.sockets import Admission, Listener, Served
from triolog.server.listeners.connections.transport import Transport
from triolog.server.listeners.kafka import produce
from triolog.server.listeners.kafka.session import KafkaSession
from triolog.server.listeners.native import calls as native

from tests.support import kafka_server as support
from tests.support.attackers import both_listeners
from tests.support.brokers import until
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, kafka_server

LOCALHOST: Final = Address("127.0.0.1", 0)
PLACES: Final = 8
"""Of which two are for peers that have said nothing."""
ERRORS: Final = (
    OSError(errno.EMFILE, "Too many open files"),
    RecursionError("too deep"),
    KeyError("missing"),
    ImportError("not there"),
    AssertionError(),
    ExceptionGroup("several", [ValueError("one"), ExceptionGroup("deeper", [OSError(errno.EIO, "x")])]),
)


def admission() -> Admission:
    return Admission.with_limits(PLACES, 10**6)


def taken(shared: Admission) -> int:
    """Places that connections have."""
    return sum(len(each.connections) for each in shared.places._listeners)


def failing(error: BaseException, *, when_opened: bool = False) -> Callable[[Transport], Served]:
    """Sessions that end with an error: before they are there, or when a byte has come. A byte `.` is answered instead."""

    def open_session(transport: Transport) -> Served:
        if when_opened:
            raise error

        async def serve() -> None:
            async with transport.stream, trio.open_nursery() as nursery:
                nursery.start_soon(_serve, transport, error)

        return Served(serve, lambda: None)

    return open_session


async def _serve(transport: Transport, error: BaseException) -> None:
    if await transport.receive() != b".":
        raise error
    await transport.stream.send_all(b"!")


@asynccontextmanager
async def listening(shared: Admission, open_session: Callable[[Transport], Served]) -> AsyncIterator[tuple[Listener, Address]]:
    async with trio.open_nursery() as nursery:
        listener = Listener(LOCALHOST, shared, open_session)
        yield listener, await nursery.start(listener.run)
        nursery.cancel_scope.cancel()


async def at_rest(counters: ProtocolCounters) -> None:
    """No connection is left."""
    while counters.connections:
        await trio.testing.wait_all_tasks_blocked()


async def answered(address: Address, sent: bytes) -> bytes:
    """What comes until the end; a reset is one."""
    async with await trio.open_tcp_stream(*address) as stream:
        received = b""
        with trio.fail_after(30), suppress(trio.BrokenResourceError):
            await stream.send_all(sent)
            while data := await stream.receive_some(100):
                received += data
        return received


@pytest.mark.parametrize("when_opened", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
async def test_any_error_ends_its_own_connection(error: Exception, when_opened: bool, caplog: pytest.LogCaptureFixture) -> None:
    shared = admission()
    counters = shared.counters("other")
    async with listening(shared, failing(error, when_opened=when_opened)) as (listener, address):
        async with await trio.open_tcp_stream(*address) as beside:
            for _ in range(2 * PLACES):  # more than would be served if places were not given back
                assert await answered(address, b"x") == b""
            if not when_opened:
                await beside.send_all(b".")
                with trio.fail_after(30):
                    assert await beside.receive_some(10) == b"!"
        await at_rest(counters)
        assert taken(shared) == 0
        assert counters.bugs == 2 * PLACES + when_opened
        assert listener.connections == 0
    [record] = [each for each in caplog.records if "unhandled exception" in each.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[2] is not None
    assert record.getMessage().startswith("unhandled exception: the connection of 127.0.0.1:")


async def test_a_connection_without_memory_is_ended_counted_and_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """No bug: there is too little of it. Said once, however often a peer can bring that about."""
    shared = admission()
    counters = shared.counters("other")
    error = ExceptionGroup("in a nursery", [MemoryError(), KeyError("beside it")])
    async with listening(shared, failing(error)) as (_, address):
        for _ in range(2 * PLACES):
            assert await answered(address, b"x") == b""
        await at_rest(counters)
    assert taken(shared) == 0
    assert (counters.ended, counters.bugs) == ({OUT_OF_MEMORY: 2 * PLACES}, 2 * PLACES)
    assert len([each for each in caplog.records if "there was no memory for it" in each.getMessage()]) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(7)], ids=lambda each: type(each).__name__)
async def test_who_ends_the_process_is_not_contained(error: BaseException) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with listening(admission(), failing(error)) as (_, address):
            await answered(address, b"x")
    assert raised.group_contains(type(error), match="")


async def test_a_stop_is_not_held_up_by_a_connection_that_fails_in_it(caplog: pytest.LogCaptureFixture) -> None:
    """A group of a cancellation and an error: the error is said, the cancellation goes on."""

    def open_session(transport: Transport) -> Served:
        async def serve() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("at the end")

        return Served(serve, lambda: None)

    shared = admission()
    async with trio.open_nursery() as nursery:
        address = await nursery.start(Listener(LOCALHOST, shared, open_session).run)
        async with await trio.open_tcp_stream(*address):
            while not shared.counters("other").connections:
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert taken(shared) == 0
    assert shared.counters("other").bugs == 1


@attrs.define
class FailingListener:
    """A listening socket whose accepting fails; then it is not listened on any more."""

    errors: list[Exception]

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        raise self.errors.pop(0) if self.errors else OSError(errno.EBADF, "Bad file descriptor")

    async def __aenter__(self) -> FailingListener:
        return self

    async def __aexit__(self, *_: Any) -> None:
        pass


async def test_accepting_is_tried_again_whatever_is_lacking_and_said_once_a_minute(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    lacks = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EPERM, errno.EPROTO)
    errors: list[Exception] = [OSError(number, "lack") for number in lacks]
    fake: Any = FailingListener([*errors, MemoryError(), *[OSError(errno.EMFILE, "again")] * 1000])
    async with trio.open_nursery() as nursery:
        listener = Listener(LOCALHOST, admission(), failing(KeyError()))
        with pytest.raises(OSError, match="Bad file descriptor"):
            await listener._accept(fake, nursery)
    assert not fake.errors
    said = [record.getMessage() for record in caplog.records if "accepting" in record.getMessage()]
    assert len(said) == 2  # of 1,008 within 100 s
    assert ", 1 times since" in said[0]


async def test_bugs_at_different_places_are_both_said(caplog: pytest.LogCaptureFixture) -> None:
    counters = ProtocolCounters("p")

    def one() -> None:
        raise ValueError("first")

    def other() -> None:
        raise ValueError("second")

    for function in (one, other, one):
        try:
            function()
        except ValueError as exc:
            report_bug(counters, "x", exc)
    assert [record.exc_info[1].args[0] for record in caplog.records if record.exc_info] == ["first", "second"]
    assert counters.bugs == 3


async def broken(*_: Any) -> Any:
    raise MemoryError


async def test_a_native_call_is_told_of_a_bug_and_others_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(native._CALLS, messages.ListGroupsRequest, broken)
    monkeypatch.setattr(native.log_calls, "metadata", lambda *_: {}["missing"])
    async with both_listeners(tmp_path) as server:
        for message in (messages.ListGroupsRequest(), messages.MetadataRequest()):
            async with server.native_client() as client:
                await client.send(message)
                with trio.fail_after(30):
                    while (last := client.connection.next_event()) is NEED_DATA:
                        client.connection.receive_data(await client.stream.receive_some())
                    assert await client.stream.receive_some() == b""
            assert isinstance(last, LastError)
            assert last.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert server.admission.counters("native").bugs == 2


async def test_an_answer_that_cannot_be_made_leaves_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made by the log's actor, which all producers of the partition share."""

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    async with kafka_server(tmp_path) as server:
        await server.broker.topics.create(TOPIC, 1)
        with monkeypatch.context() as patched:
            patched.setattr(produce, "PRODUCED", SimpleNamespace(single=no_memory))
            async with server.connected() as client:
                await client.send(support.produce_request(batch("lost")), 9)
                assert await client.is_closed_by_server()
        async with server.connected() as client:
            assert await support.produced(client, batch("kept")) == 1
        assert server.admission.counters("kafka").bugs == 1


async def test_a_bug_at_one_departure_leaves_other_peers_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kafka_server(tmp_path) as server:
        await server.broker.topics.create(TOPIC, 1)
        with monkeypatch.context() as patched:
            patched.setattr(KafkaSession, "peer_left", broken_departure)
            async with server.connected() as client:
                await client.send(fetch_request(fetch_partition(), max_wait_ms=300_000), 12)
                await until(lambda: is_parked(server))
            await until(lambda: server.listener.connections == 0)
        assert server.admission.counters("kafka").bugs == 1
        async with server.connected() as client:
            await client.send(fetch_request(fetch_partition(), max_wait_ms=300_000), 12)
            await until(lambda: is_parked(server))
        await until(lambda: server.listener.connections == 0)
        assert server.admission.counters("kafka").bugs == 1


def is_parked(server: KafkaServer) -> bool:
    return any(session._parked is not None for session in server.sessions())


def broken_departure(*_: Any) -> None:
    raise RecursionError


async def test_a_bug_at_the_end_of_a_turn_ends_its_own_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are sent together at the end of a turn; so are appends. What that raises is nobody else's matter."""
    async with kafka_server(tmp_path) as server:
        await server.broker.topics.create(TOPIC, 1)
        async with server.connected() as beside:
            with monkeypatch.context() as patched:
                patched.setattr(Transport, "_send_piece", broken_departure)
                async with server.connected() as client:
                    await client.send(support.produce_request(batch("stored")), 9)
                    assert await client.is_closed_by_server()
            assert await support.produced(beside, batch("kept")) == 1
        assert server.admission.counters("kafka").bugs == 1
        await until(lambda: server.listener.connections == 0)
