"""What only the client for trio does with its connections; what one does by itself is in test_greeted_connection."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.errors import RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.tools.client.connection import Client, connect
from triolog.tools.client.errors import ClosedError, ConnectionLostError

from tests.support.native_server import NativeServer

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
                await client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),), max_wait_ms=1000))
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


async def test_leaving_the_block_fails_calls_of_other_tasks_and_its_exception_leaves_as_it_was(
    server: NativeServer, clock: MockClock, nursery: trio.Nursery
) -> None:
    never = trio.Event()
    server.faults.append(lambda request: never if is_fetch(request) else None)
    failure: list[BaseException] = []

    async def fetch(client: Client) -> None:
        with pytest.raises(ConnectionLostError, match="the client was closed") as caught:
            await client.fetch(m.FetchRequest(()))
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
