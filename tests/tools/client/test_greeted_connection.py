"""One connection, asked through a client that has no other."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.errors import LocalProtocolError, UnsupportedVersionError
from triolog.protocol.native import messages as m
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.errors import ConnectionLostError

from tests.support.native_server import NativeServer

from .doors import WrappedStream
from .test_connection import is_fetch, produce_request


async def test_answers_overtake_each_other(server: NativeServer, clock: MockClock, nursery: trio.Nursery) -> None:
    release = trio.Event()
    server.faults.append(lambda request: release if is_fetch(request) else None)
    order: list[str] = []
    async with connect(open_stream=server.open_stream) as client:

        async def fetch() -> None:
            await client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),)))
            order.append("fetch")

        async with trio.open_nursery() as calls:
            calls.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(3):
                await client.metadata(m.MetadataRequest())
                order.append("metadata")
            release.set()
    assert order == ["metadata"] * 3 + ["fetch"]


async def test_many_calls_keep_to_the_servers_limit(server: NativeServer, clock: MockClock) -> None:
    server.max_in_flight = 3
    async with connect(open_stream=server.open_stream) as client, trio.open_nursery() as calls:
        for _ in range(50):
            calls.start_soon(client.metadata, m.MetadataRequest())
    assert sum(isinstance(request, m.MetadataRequest) for request in server.requests) == 50


async def test_cancelled_call_gives_its_place_back_when_its_answer_comes(server: NativeServer, clock: MockClock) -> None:
    server.max_in_flight = 1
    release = trio.Event()
    server.faults.append(lambda request: release if is_fetch(request) else None)
    async with connect(open_stream=server.open_stream) as client:
        with trio.move_on_after(1):
            await client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),)))
        with trio.move_on_after(1) as scope:
            await client.metadata(m.MetadataRequest())
        assert scope.cancelled_caught, "the place is taken until the answer comes"
        release.set()
        assert len((await client.metadata(m.MetadataRequest())).topics) == 1
        assert server.connections == 1


class Throttled(WrappedStream):
    """A stream that sends one byte at a time, and calls `byte_sent` after each."""

    byte_sent: Callable[[], None]

    async def send_all(self, data: Any) -> None:
        for position in range(len(data)):
            await trio.lowlevel.checkpoint()
            await super().send_all(bytes(data[position : position + 1]))
            self.byte_sent()


@pytest.mark.parametrize("cancel_at", [0, 1, 5, 40, 200])
async def test_call_cancelled_half_sent_leaves_the_connection_whole(
    server: NativeServer, clock: MockClock, cancel_at: int
) -> None:
    scope = trio.CancelScope()
    sent = 0

    def byte_sent() -> None:
        nonlocal sent
        sent += 1
        if sent == hello_bytes + cancel_at:
            scope.cancel()

    hello_bytes = 10**9

    async def open_stream() -> Any:
        stream = Throttled(await server.open_stream())
        stream.byte_sent = byte_sent
        return stream

    async with connect(open_stream=open_stream) as client:
        hello_bytes = sent
        with scope:
            if cancel_at == 0:
                scope.cancel()
            await client.produce(produce_request())
        assert len((await client.metadata(m.MetadataRequest())).topics) == 1
        assert server.connections == 1
        assert server.logs["t"][0].high_watermark == (0 if cancel_at == 0 else 1)


@pytest.mark.parametrize("phase", ["opening", "greeting"])
async def test_cancelled_connect_leaves_nothing_open(server: NativeServer, clock: MockClock, phase: str) -> None:
    streams: list[Any] = []

    async def open_stream() -> Any:
        if phase == "opening":
            await trio.sleep_forever()
        stream, peer = trio.testing.memory_stream_pair()  # nobody answers
        streams.append(peer)
        return stream

    with trio.move_on_after(1) as scope:
        async with connect(open_stream=open_stream):
            raise AssertionError("connected to nobody")
    assert scope.cancelled_caught
    for peer in streams:
        await peer.receive_some()  # hello
        assert await peer.receive_some() == b"", "the client's end is closed"


async def test_refused_hello_is_the_servers_error_and_nonsense_a_lost_connection(
    server: NativeServer, clock: MockClock
) -> None:
    server.faults.append(lambda request: UnsupportedVersionError("too new") if isinstance(request, m.HelloRequest) else None)
    with pytest.raises(UnsupportedVersionError, match="too new"):
        async with connect(open_stream=server.open_stream):
            raise AssertionError("greeted")

    async def open_stream() -> Any:
        mine, theirs = trio.testing.memory_stream_pair()
        await theirs.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        return mine

    with pytest.raises(ConnectionLostError, match=r"could not connect: a frame claims 1213486160 bytes"):
        async with connect(open_stream=open_stream):
            raise AssertionError("greeted")


async def test_request_too_large_is_refused_here_and_changes_nothing(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream, config=ClientConfig(max_frame_bytes=1000)) as client:
        connection = await client.connected()
        connection._protocol.adopt_limits(max_frame_bytes=1000, max_in_flight=64)
        large = m.ProduceRequest((m.ProducePartition("t", 0, bytes(2000)),))
        with pytest.raises(LocalProtocolError, match="expected at most 1000"):
            await client.produce(large)
        await client.metadata(m.MetadataRequest(("t",)))


class _InterruptedStream(WrappedStream):
    """Does something between the arrival of data and its return, as a task that runs in the same tick may."""

    on_data: Callable[[], None] | None = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = await super().receive_some(max_bytes)
        if self.on_data is not None:
            self.on_data()
        return data


async def test_a_stream_that_does_not_send_is_a_lost_connection(server: NativeServer, clock: MockClock) -> None:
    stream = WrappedStream(await server.open_stream())

    async def open_stream() -> trio.abc.Stream:
        return stream

    async def fail(_: Any) -> None:
        raise trio.BrokenResourceError("pipe")

    async with connect(open_stream=open_stream) as client:
        stream.send_all = fail
        with pytest.raises(ConnectionLostError, match="sending failed"):
            await client.metadata(m.MetadataRequest())


async def test_answer_that_arrives_as_the_client_closes_is_dropped(server: NativeServer, clock: MockClock) -> None:
    stream = _InterruptedStream(await server.open_stream())

    async def open_stream() -> trio.abc.Stream:
        return stream

    async with connect(open_stream=open_stream) as client:
        stream.on_data = client.close
        with pytest.raises(ConnectionLostError, match="closed"):
            await client.metadata(m.MetadataRequest())


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("task", ["_read", "_write"])
def test_ctrl_c_leaves_a_connection_that_can_be_used_to_the_end(task: str) -> None:
    """The signal comes while a task of the connection runs; trio.run takes signals only where no test's clock is."""
    answered = 0

    async def interrupted() -> None:
        nonlocal answered
        async with trio.open_nursery() as nursery:
            server = NativeServer(nursery, t=1)

            async def opened() -> trio.abc.Stream:
                return Interrupting(await server.open_stream(), task)

            async with connect(open_stream=opened) as client:
                try:
                    while True:
                        await client.metadata(m.MetadataRequest())
                except (KeyboardInterrupt, trio.Cancelled):
                    with trio.CancelScope(shield=True):
                        await client.metadata(m.MetadataRequest())
                    answered += 1
                    raise

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(interrupted)
    assert raised.group_contains(KeyboardInterrupt)
    assert answered == 1


class Interrupting(WrappedStream):
    """Ctrl-C is pressed as soon as something is received, or sent, behind the greeting."""

    def __init__(self, stream: trio.abc.Stream, task: str) -> None:
        super().__init__(stream)
        self._calls_before = {task: 2}

    def _step(self, task: str) -> None:
        left = self._calls_before.get(task, 0)
        self._calls_before[task] = left - 1
        if left == 1:
            signal.raise_signal(signal.SIGINT)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = await super().receive_some(max_bytes)
        self._step("_read")
        return data

    async def send_all(self, data: Any) -> None:
        self._step("_write")
        await super().send_all(data)
