"""What only the client for trio does with its connections, and one connection, asked through a client that has no other."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import triolog.tools.client
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock
from triolog.protocol.errors import LocalProtocolError, RequestError, UnsupportedVersionError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.tools.client.backoff import JITTER, Backoff
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import Client, connect
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.exchange import JOINED_BYTES, following, joined, remove_sent

from tests.support.native_server import NativeServer
from tests.tools.client.doors import WrappedStream

BATCH = build_batch([(5, None, b"value", ())])


def produce_request(topic: str = "t", acks: int = -1) -> m.ProduceRequest:
    return m.ProduceRequest((m.ProducePartition(topic, 0, BATCH),), acks)


def is_fetch(request: m.RequestMessage) -> bool:
    return isinstance(request, m.FetchRequest)


async def test_cancelled_reconnect_is_made_by_the_next_call(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client:
        server.kill()
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0):
            await client.metadata(m.MetadataRequest())
        assert len((await client.metadata(m.MetadataRequest())).topics) == 1


async def test_lost_connection_fails_what_waits_and_the_next_call_connects_anew(server: NativeServer, clock: MockClock) -> None:
    server.faults.append(lambda request: "drop" if is_fetch(request) and server.connections == 1 else None)
    async with connect(open_stream=server.open_stream) as client:
        failures: list[RequestError] = []

        async def fetch() -> None:
            try:
                await client.call_fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),), max_wait_ms=1000))
            except ConnectionLostError as exc:
                failures.append(exc)

        async with trio.open_nursery() as calls:
            for _ in range(3):
                calls.start_soon(fetch)
        assert len(failures) == 3
        assert all(failure.retriable for failure in failures)
        await client.metadata(m.MetadataRequest())
        assert server.connections == 2


async def test_server_that_is_down_is_said_at_once_and_found_when_it_is_back(server: NativeServer, clock: MockClock) -> None:
    server.is_down = True
    with pytest.raises(ConnectionLostError, match="could not connect: the test's server is down"):
        async with connect(open_stream=server.open_stream):
            raise AssertionError("connected to nobody")
    server.is_down = False
    async with connect(open_stream=server.open_stream) as client:
        server.is_down = True
        server.kill()
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        for _ in range(5):
            with pytest.raises(ConnectionLostError):
                await client.metadata(m.MetadataRequest())
        assert 0.5 < trio.current_time() - started < 2, "attempts are spaced"
        failed = 0

        async def call() -> None:
            nonlocal failed
            with pytest.raises(ConnectionLostError, match="the test's server is down"):
                await client.metadata(m.MetadataRequest())
            failed += 1

        started = trio.current_time()
        async with trio.open_nursery() as calls:
            for _ in range(50):
                calls.start_soon(call)
        assert failed == 50
        assert trio.current_time() - started < 2, "calls that wait for one attempt fail with it"
        server.is_down = False
        await client.metadata(m.MetadataRequest())


async def test_leaving_the_block_fails_other_calls(server: NativeServer, clock: MockClock, nursery: trio.Nursery) -> None:
    never = trio.Event()
    server.faults.append(lambda request: never if is_fetch(request) else None)
    failure: list[BaseException] = []

    async def fetch(client: Client) -> None:
        with pytest.raises(ConnectionLostError, match="the client was closed") as caught:
            await client.call_fetch(m.FetchRequest(()))
        failure.append(caught.value)

    async with connect(open_stream=server.open_stream) as client:
        nursery.start_soon(fetch, client)
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    assert len(failure) == 1
    with pytest.raises(ClosedError):
        await client.metadata(m.MetadataRequest())
    with pytest.raises(KeyError, match="mine"):
        async with connect(open_stream=server.open_stream):
            raise KeyError("mine")


async def test_answers_overtake_each_other(server: NativeServer, clock: MockClock, nursery: trio.Nursery) -> None:
    release = trio.Event()
    server.faults.append(lambda request: release if is_fetch(request) else None)
    order: list[str] = []
    async with connect(open_stream=server.open_stream) as client:

        async def fetch() -> None:
            await client.call_fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),)))
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
            await client.call_fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),)))
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
async def test_call_cancelled_half_sent_breaks_nothing(server: NativeServer, clock: MockClock, cancel_at: int) -> None:
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


async def test_refused_hello_is_an_error_and_nonsense_a_lost_connection(server: NativeServer, clock: MockClock) -> None:
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


PIECES = st.lists(st.integers(0, 3 * JOINED_BYTES).map(lambda size: bytes([size % 251]) * size), max_size=6)


@given(pieces=PIECES)
def test_joined_buffers_are_the_same_bytes(pieces: list[bytes]) -> None:
    assert b"".join(joined(pieces)) == b"".join(pieces)
    large = [piece for piece in pieces if len(piece) > JOINED_BYTES]
    kept = [buffer for buffer in joined(pieces) if len(buffer) > JOINED_BYTES]
    assert all(buffer is piece for buffer, piece in zip(kept, large, strict=True)), "large ones are never copied"


@given(pieces=PIECES, cuts=st.lists(st.integers(1, JOINED_BYTES), min_size=1, max_size=5))
def test_what_short_sends_leave_is_the_rest(pieces: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(pieces)
    buffers = list(pieces)
    sent = b""
    for cut in cuts:
        left = b"".join(buffers)
        sent += left[:cut]
        remove_sent(buffers, min(cut, len(left)))
    assert sent + b"".join(buffers) == whole


def test_correlation_ids_start_again_above_zero() -> None:
    assert following(1) == 2
    assert following(2**32 - 1) == 1


class Middle(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_pauses_double_up_to_the_limit_and_a_reset_begins_again() -> None:
    backoff = Backoff(100, 1000, Middle())
    assert [round(backoff.pause_s(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for _ in range(100):
        assert backoff.pause_s() == 1.0
    assert backoff.failures == 106
    backoff.reset()
    assert backoff.pause_s() == pytest.approx(0.1)


def test_jitter_stays_within_its_part_and_differs() -> None:
    pauses = {Backoff(100, 1000, random.Random(seed)).pause_s() for seed in range(50)}
    assert len(pauses) > 40
    assert 0.1 * (1 - JITTER) <= min(pauses) <= max(pauses) <= 0.1 * (1 + JITTER)


FOLDER = Path(*triolog.tools.client.__path__)
MODULES = sorted(
    ".".join(("triolog.tools.client", *path.relative_to(FOLDER).with_suffix("").parts))
    for path in FOLDER.rglob("*.py")
    if path.stem != "__init__"
)
WITHOUT_TRIO = [name for name in MODULES if not name.endswith(".trio_loop")]


def imported_by(*modules: str) -> set[str]:
    """The top packages, and triolog's parts, that a fresh interpreter has after importing `modules`."""
    program = (
        f"import json, sys\nfor name in {modules!r}: __import__(name)\n"
        "print(json.dumps(['.'.join(name.split('.')[:2]) if name.startswith('triolog.') else name.split('.')[0]"
        " for name in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return set(json.loads(result.stdout))


@pytest.mark.merge
def test_client_imports_neither_the_server_nor_the_command_lines_libraries_and_trio_only_for_its_loop() -> None:
    imported = imported_by(*MODULES)
    assert "triolog.protocol" in imported
    assert not imported & {"triolog.server", "rich", "click"}
    assert len(WITHOUT_TRIO) > 1
    assert "trio" not in imported_by(*WITHOUT_TRIO)
