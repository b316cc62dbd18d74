"""Runs the shared coroutines to their end, over a driver whose calls have returned when they are awaited."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but such a driver."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError(f"{coroutine!r} waits for something other than a call")


def blocking(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that runs this one of `_shared` to its end."""

    @functools.wraps(function)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> T:
        return finished(function(self._shared, *arguments, **options))

    return call  # type: ignore[return-value]


def made(kind: Callable[[T], R], function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], R]:
    """The method that makes an object for blocking programs of the one that this method of `_shared` makes."""

    @functools.wraps(function)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> R:
        return kind(function(self._shared, *arguments, **options))

    return call  # type: ignore[return-value]


class InPlace:
    """Runs coroutines of a follow."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a coroutine."""
        return finished(function())  # type: ignore[arg-type]
