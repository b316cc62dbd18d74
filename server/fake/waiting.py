"""Waiting until a state is as a test wants it, for as long as the test has patience."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import trio

T = TypeVar("T")

PATIENCE_S: Final = 10.0
LOOK_S: Final = 0.005
"""How often a state is looked at that calls nobody."""


class Watched(Protocol):
    """A state that calls watchers at each change, from any thread."""

    def watch(self, watcher: Callable[[], None]) -> None: ...
    def unwatch(self, watcher: Callable[[], None]) -> None: ...


async def wait_until(watched: Watched, look: Callable[[], T | None], timeout_s: float, missing: Callable[[], str]) -> T:
    """Return the result of `look` as soon as it is not None. Raises TimeoutError that names the `missing` thing."""
    changed, token = trio.Event(), trio.lowlevel.current_trio_token()

    def look_again() -> None:
        changed.set()

    def wake() -> None:
        token.run_sync_soon(look_again, idempotent=True)

    watched.watch(wake)
    try:
        with trio.move_on_after(timeout_s):
            while (found := look()) is None:
                await changed.wait()
                changed = trio.Event()
            return found
    finally:
        watched.unwatch(wake)
    raise TimeoutError(f"{missing()} within {timeout_s:g} s")


async def look_until(look: Callable[[], Awaitable[T | None]], timeout_s: float, missing: Callable[[], str]) -> T:
    """`wait_until` for a state that calls no watchers."""
    with trio.move_on_after(timeout_s):
        while True:
            found = await look()
            if found is not None:
                return found
            await trio.sleep(LOOK_S)
    raise TimeoutError(f"{missing()} after {timeout_s:g} s")
