"""The three faces of an embedded broker as one: a case is written once, with `await` before every call, and tests each.

A call of the trio broker may answer at once, one of the blocking broker always does; `Face` awaits what is to be awaited. An
iterator becomes an async one, a block an async one.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

import pytest
import sniffio
import trio
import triolog
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker, EmbeddedBroker, aio, opening
from triolog.server.embedded import blocking as blocking_face
from triolog.tools.client.blocking import BlockingClient
from triolog.tools.client.connection import connect
from triolog.tools.client.log_calls import LogCalls

from tests.support.brokers import PATIENCE_S


class Face:
    """Stands for a broker, or for what one of its calls has answered."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        if name in ("follow", "transaction", "log"):
            return lambda *arguments, **keywords: Face(found(*arguments, **keywords))
        if name in ("groups", "faults", "requests"):
            return Face(found)
        return partial(_awaited, found) if callable(found) else found

    def __aiter__(self) -> Face:
        return self

    async def __anext__(self) -> Face:
        if hasattr(self.target, "__anext__"):
            return Face(await self.target.__anext__())
        try:
            return Face(next(self.target))
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Face:
        if hasattr(self.target, "__aenter__"):
            return Face(await self.target.__aenter__())
        return Face(self.target.__enter__())

    async def __aexit__(self, *error: Any) -> Any:
        if hasattr(self.target, "__aexit__"):
            return await self.target.__aexit__(*error)
        return self.target.__exit__(*error)


async def _awaited(call: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    answer = call(*arguments, **keywords)
    return await answer if inspect.isawaitable(answer) else answer


class Beside(Protocol):
    """A call in a task of its own."""

    async def cancel(self) -> None:
        """Cancel it, and wait until it has ended by that."""


class TrioTask:
    """Owner: a nursery around the case."""

    def __init__(self, nursery: trio.Nursery, call: Callable[[], Awaitable[object]]) -> None:
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        nursery.start_soon(self._run, call)

    async def _run(self, call: Callable[[], Awaitable[object]]) -> None:
        with self._scope:
            await call()
        self._ended.set()

    async def cancel(self) -> None:
        self._scope.cancel()
        await self._ended.wait()
        assert self._scope.cancelled_caught


class AsyncioTask:
    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self._task = asyncio.ensure_future(call())

    async def cancel(self) -> None:
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task


async def inside(broker: Face, call: Callable[[EmbeddedBroker], Any]) -> Any:
    """Call a function with the broker of the trio thread, where that runs."""
    if isinstance(broker, ClientFace):
        return await inside(Face(broker.broker), call)
    if isinstance(broker.target, EmbeddedBroker):
        return await _awaited(call, broker.target)
    return await _awaited(broker.target.call, partial(_awaited, call, broker.target._target))


async def turn() -> None:
    """Let other tasks have theirs."""
    await (trio.lowlevel.checkpoint() if sniffio.current_async_library() == "trio" else asyncio.sleep(0))


async def until_waited_for(broker: Face, topic: str, count: int = 1) -> None:
    """Until so many calls wait for records of the topic's partition 0."""
    partition = TopicPartition(topic, 0)
    while await inside(broker, lambda own: len(own.core._manager.topics.actor(partition).waiters)) != count:
        await turn()


Opened = Callable[..., AbstractAsyncContextManager[Any]]
Case = Callable[[Opened, Callable[..., Beside]], Awaitable[None]]


@asynccontextmanager
async def _opened(opened: Callable[..., Any], path: Any = None, **options: Any) -> AsyncIterator[Any]:
    async with Face(opened(path, **options)) as broker:
        yield broker


def in_trio(case: Case, opened: Opened | None = None) -> None:
    """Run a case in a trio program."""

    async def run() -> None:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                await case(opened or partial(_opened, opening.open), partial(TrioTask, nursery))

    trio.run(run)


def in_asyncio(case: Case, opened: Opened | None = None) -> None:
    """Run a case in an asyncio program, of which no task is left."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await case(opened or partial(_opened, aio.open), AsyncioTask)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def blocking(case: Case, opened: Opened | None = None) -> None:
    """Run a case in a program with neither: what is awaited has been answered."""
    running = case(opened or partial(_opened, blocking_face.open), _no_tasks)
    try:
        running.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("a blocking call has waited for a loop")


# ---- clients of a server, which have the same calls on logs ------------------------------------------------------------------


class ClientFace(Face):
    """A client; calls that it has not go to the broker that it is a client of."""

    def __init__(self, client: Any, broker: BlockingBroker) -> None:
        super().__init__(client)
        self.broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(Face(self.target if hasattr(LogCalls, name) else self.broker), name)


@asynccontextmanager
async def _connected(connect: Callable[..., Any], path: Any = None, **options: Any) -> AsyncIterator[Any]:
    with triolog.blocking.open(path, native="127.0.0.1:0", **options) as broker:
        async with Face(connect(f"127.0.0.1:{broker.native.port}")) as client:
            yield ClientFace(client.target, broker)


def client_in_trio(case: Case) -> None:
    in_trio(case, partial(_connected, connect))


def client_in_asyncio(case: Case) -> None:
    in_asyncio(case, partial(_connected, connect))


def client_in_place(case: Case) -> None:
    blocking(case, partial(_connected, BlockingClient))


def _no_tasks(call: object) -> Beside:
    raise AssertionError("a blocking program has no tasks")


DRIVERS: Final[dict[str, Callable[[Case], None]]] = {"trio": in_trio, "asyncio": in_asyncio, "blocking": blocking}
WITH_TASKS: Final = ("trio", "asyncio")
CLIENTS: Final = {"trio client": client_in_trio, "asyncio client": client_in_asyncio, "blocking client": client_in_place}
"""They have the calls on logs, over the network."""
EVERYWHERE: Final = (*DRIVERS, *CLIENTS)
WITH_TASKS_EVERYWHERE: Final = (*WITH_TASKS, "trio client", "asyncio client")


def _in_their_tiers(faces: Sequence[str]) -> list[Any]:
    """The commit tier has the first face, and the client in trio: the others call the same code. What waits on sockets
    differs between systems, so suites as macOS would run them have all."""
    if os.environ.get("TRIOLOG_TEST_WATCHER"):
        return list(faces)
    return [each if each in (faces[0], "trio client") else pytest.param(each, marks=pytest.mark.merge) for each in faces]


def on_every_face(
    path: Any = None, *, faces: Iterable[str] = DRIVERS, **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test for each face of an async function. It is called with what it names: `broker`, one that is opened with
    these options, or `opened`, which opens some; `begin`, which calls a function in a task of its own; and fixtures."""

    def decorate(case: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        names = list(inspect.signature(case).parameters)

        async def run(fixtures: dict[str, Any], opened: Any, begin: Any) -> None:
            given = {name: each for name, each in {"opened": opened, "begin": begin}.items() if name in names} | fixtures
            if "broker" not in names:
                await case(**given)
                return
            async with opened(path, **options) as broker:
                await case(broker=broker, **given)

        def test(face: str, **fixtures: Any) -> None:
            (DRIVERS | CLIENTS)[face](partial(run, fixtures))

        test.__name__, test.__doc__, test.__module__ = case.__name__, case.__doc__, case.__module__
        asked = ["face", *(name for name in names if name not in ("broker", "opened", "begin"))]
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in asked]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("face", _in_their_tiers(tuple(faces)))(test)

    return decorate
