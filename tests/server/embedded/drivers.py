"""The three faces of an embedded broker behind one: cases are written once, with `await` before every call.

A call of the trio broker may answer at once, one of the blocking broker always does; `Face` awaits what is to be awaited. An
iterator becomes an async one, a block an async one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

import trio
from triolog.server.embedded import BlockingBroker, aio, open_broker


class Face:
    """Stands for a broker, or for what one of its calls has answered."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        if name in ("follow", "transaction", "log"):
            return lambda *arguments, **keywords: Face(found(*arguments, **keywords))
        if name in ("groups",):
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


Case = Callable[[Callable[..., AbstractAsyncContextManager[Any]]], Awaitable[None]]


@asynccontextmanager
async def _opened(opened: Callable[..., Any], path: Any = None, **options: Any) -> AsyncIterator[Any]:
    async with Face(opened(path, **{"native": None, **options})) as broker:
        yield broker


def in_trio(case: Case) -> None:
    """Run a case in a trio program."""
    trio.run(case, partial(_opened, open_broker))


def in_asyncio(case: Case) -> None:
    """Run a case in an asyncio program."""

    async def run() -> None:
        await case(partial(_opened, aio.open_broker))

    asyncio.run(run())


def blocking(case: Case) -> None:
    """Run a case in a program with neither: what is awaited has been answered."""
    running = case(partial(_opened, BlockingBroker))
    try:
        running.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("a blocking call has waited for a loop")


DRIVERS: Final[dict[str, Callable[[Case], None]]] = {"trio": in_trio, "asyncio": in_asyncio, "blocking": blocking}
