"""The client in an asyncio loop of another thread, for tests that await it in trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio
from triolog.protocol.following import Follow
from triolog.tools.client.admin import Admin
from triolog.tools.client.appender import Appender
from triolog.tools.client.connection import Client
from triolog.tools.client.consumer import Consumer, Records
from triolog.tools.client.producer import Producer, SentRecord
from triolog.tools.client.transaction import Transaction

KINDS = (Admin, Appender, Client, Consumer, Follow, Producer, Records, SentRecord, Transaction)
AT_ONCE = frozenset({"position", "positions", "high_watermark", "transaction", "follow", "records", "value", "add_listener"})
"""Calls that wait for nothing; those of a follow's `positions` do."""


class AsyncioThread:
    """A thread with an asyncio loop. Of its tasks none is left when it stops."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio")
        self._thread.start()

    def stop(self) -> None:
        left = asyncio.run_coroutine_threadsafe(_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        assert left == [], "tasks of the client are left"

    async def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return self.wrapped(await trio.to_thread.run_sync(future.result))

    def wrapped(self, found: Any) -> Any:
        return InAsyncio(self, found) if isinstance(found, KINDS) else found

    def entered(self, block: Callable[[], AbstractAsyncContextManager[Any]]) -> Held:
        return Held(self, block)


async def _others() -> list[Any]:
    await asyncio.sleep(0.01)  # transports close
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@attrs.define(eq=False)
class Held:
    """A block that one task of the loop enters and leaves."""

    thread: AsyncioThread
    block: Callable[[], AbstractAsyncContextManager[Any]]
    _leaving: asyncio.Queue[BaseException | None] = attrs.field(factory=asyncio.Queue)
    _task: asyncio.Task[None] | None = None

    async def _hold(self, entered: asyncio.Future[Any]) -> None:
        try:
            async with self.block() as value:
                entered.set_result(value)
                if (error := await self._leaving.get()) is not None:
                    raise error
        except BaseException as exc:
            if entered.done():
                raise
            entered.set_exception(exc)

    async def _enter(self) -> Any:
        entered = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(entered))
        return await entered

    async def _leave(self, error: BaseException | None) -> bool:
        assert self._task is not None
        self._leaving.put_nowait(error)
        try:
            await self._task
        except BaseException as exc:
            if exc is not error:
                raise
            return False
        return True

    async def __aenter__(self) -> Any:
        return await self.thread.run(self._enter())

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        return bool(await self.thread.run(self._leave(error)))


@attrs.frozen(eq=False)
class InAsyncio:
    """An object of the client in asyncio, with its own face for trio."""

    _thread: AsyncioThread
    target: Any

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        if not callable(found):
            return found
        if name in AT_ONCE and not (name == "positions" and isinstance(self.target, Follow)):
            return lambda *arguments, **options: self._thread.wrapped(found(*arguments, **options))
        return lambda *arguments, **options: self._thread.run(found(*arguments, **options))

    def __await__(self) -> Any:
        return self._thread.run(self.target.wait()).__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (value := await self._thread.run(_next(self.target.__aiter__()))) is not None:
            yield value

    async def __aenter__(self) -> Any:
        held = self._thread.entered(lambda: self.target)
        HELD.setdefault(self.target, []).append(held)
        return await held.__aenter__()

    async def __aexit__(self, *error: Any) -> bool:
        return await HELD[self.target].pop().__aexit__(*error)


HELD: dict[Any, list[Held]] = {}


async def _next(values: Any) -> Any:
    return await anext(values, None)
