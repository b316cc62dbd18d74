"""What only the client in an asyncio program meets: asyncio's own cancellation, Ctrl-C, tasks that are left."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest
from triolog.protocol.native import messages as m
from triolog.tools.client.asyncio_loop import ASYNCIO
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.loops import Scope
from triolog.tools.client.producer import open_producer
from triolog.tools.client.running_loop import current_loop

from tests.support.native_server_thread import ServerThread, serving

METADATA = m.MetadataRequest()
WAITING = m.FetchRequest((m.FetchPartition("t", 0, 0),), max_wait_ms=60_000)


@pytest.fixture
def thread() -> Iterator[ServerThread]:
    with serving(t=2) as handle:
        yield handle


def test_cancelled_calls_give_their_places_back(thread: ServerThread) -> None:
    """Three places: those who wait for one are cancelled, too, before and after it is theirs."""
    thread.run(lambda server: setattr(server, "max_in_flight", 3))

    async def run() -> None:
        async with connect(thread.address) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.fetch("t", max_wait_s=60)
            tasks = [asyncio.create_task(client.metadata(METADATA)) for _ in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [len(each.topics) for each in found[1::2]] == [1] * 25  # type: ignore[union-attr]
            assert all(isinstance(each, asyncio.CancelledError) for each in found[::2])
            connection = await client.connected()
            assert len((await client.metadata(METADATA)).topics) == 1
            assert await client.connected() is connection
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_ctrl_c_leaves_a_connection_that_can_be_used_to_the_end(thread: ServerThread) -> None:
    answered = 0

    async def run() -> None:
        nonlocal answered
        async with connect(thread.address) as client:
            asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
            try:
                while True:
                    await client.metadata(METADATA)
            except asyncio.CancelledError:
                await client.append("t", [b"last"])
                answered += 1
                raise

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())
    assert answered == 1
    assert thread.run(lambda server: server.logs["t"][0].values()) == [b"last"]


def test_what_the_block_raises_is_raised_as_it_is_and_no_task_is_left(thread: ServerThread) -> None:
    async def fail() -> None:
        async with connect(thread.address) as client, open_producer(client) as producer:
            await producer.send("t", b"a")
            raise ZeroDivisionError

    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(ConnectionLostError, match=r"could not connect to 127\.0\.0\.1:1: "):
            async with connect(("127.0.0.1", 1), config=ClientConfig(connect_timeout_ms=1000)):
                raise AssertionError("connected to nobody")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_server_that_closes_fails_the_calls_that_wait(thread: ServerThread) -> None:
    async def run() -> None:
        async with connect(thread.address) as client:
            waiting = asyncio.create_task(client.call_fetch(WAITING))
            await client.metadata(METADATA)  # its answer comes after the server has read the fetch
            thread.run(lambda server: server.kill())
            with pytest.raises(ConnectionLostError):
                await waiting
            assert len((await client.metadata(METADATA)).topics) == 1

    asyncio.run(run())


def test_records_one_by_one_let_other_tasks_run(thread: ServerThread) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        async with connect(thread.address) as client, asyncio.TaskGroup() as tasks:
            counting = tasks.create_task(count())
            async with open_producer(client) as producer:
                for _ in range(2000):
                    await producer.send("t", b"a", partition=0)
            assert turns > 20
            async with open_consumer(client, follow=False) as consumer:
                await consumer.assign("t")
                assert len([record async for record in consumer.records()]) == 2000
            counting.cancel()

    asyncio.run(run())


def test_asyncios_own_cancellation_is_not_caught() -> None:
    """Alone, and at the same time as that of a scope."""

    async def wait(scope: Scope) -> None:
        with ASYNCIO.scope(deadline=ASYNCIO.now() + 60), scope:
            await asyncio.Event().wait()

    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await wait(ASYNCIO.scope())
        scope = ASYNCIO.scope()
        task = asyncio.create_task(wait(scope))
        await asyncio.sleep(0)
        scope.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not scope.cancelled_caught

    asyncio.run(run())


def test_a_nursery_whose_task_is_cancelled_while_it_waits_cancels_its_tasks() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def host() -> None:
        async with ASYNCIO.open_nursery() as nursery:
            nursery.start_soon(wait, "a")
            nursery.start_soon(wait, "b")

    async def run() -> None:
        task = asyncio.create_task(host())
        await asyncio.sleep(0)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["a", "b"]

    asyncio.run(run())


def test_clients_can_be_closed_by_another_task_and_in_the_order_in_which_they_were_opened(thread: ServerThread) -> None:
    """Fixtures are opened by one task and closed by another."""

    async def run() -> None:
        clients = [connect(thread.address) for _ in range(3)]
        first, second, third = [await asyncio.create_task(client.__aenter__()) for client in clients[:2]] + [
            await clients[2].__aenter__()
        ]
        for client in (first, second, third):
            assert len((await client.metadata(METADATA)).topics) == 1
        consumer = open_consumer(second)
        await asyncio.create_task(consumer.__aenter__())
        await consumer.__aexit__(None, None, None)
        async with connect(thread.address) as fourth:
            for client in clients:
                await client.__aexit__(None, None, None)
            assert len((await fourth.metadata(METADATA)).topics) == 1
        with pytest.raises(ClosedError):
            await first.metadata(METADATA)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_shield_that_ends_before_a_scope_inside_of_it_shields_nothing_any_longer() -> None:
    async def run() -> None:
        with ASYNCIO.scope() as outer:
            shield, inner = ASYNCIO.scope(shield=True), ASYNCIO.scope()
            shield.__enter__()
            inner.__enter__()
            shield.__exit__(None, None, None)
            outer.cancel()
            try:
                await asyncio.Event().wait()
            finally:
                inner.__exit__(None, None, None)
        assert outer.cancelled_caught

    asyncio.run(asyncio.wait_for(run(), 60))


def test_outside_of_a_loop_there_is_none() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        current_loop()

    async def inside() -> None:
        assert current_loop() is ASYNCIO

    asyncio.run(inside())
