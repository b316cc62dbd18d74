"""Methods of the blocking client: those of the objects that all programs share, run to their end by the client's loop.

A blocking object has the shared one as `_shared`, and its client's loop as `_loop`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs

from .loop import InPlaceLoop

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def blocking(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that runs this one of `_shared` to its end."""

    @functools.wraps(function)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._loop.run(function(self._shared, *arguments, **options))
        return result

    return call  # type: ignore[return-value]


def same(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method that calls this one of `_shared`, which waits for nothing."""

    @functools.wraps(function)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> T:
        return function(self._shared, *arguments, **options)

    return call  # type: ignore[return-value]


def made(kind: Callable[[InPlaceLoop, T], R], function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], R]:
    """The method that makes an object for blocking programs of the one that this method of `_shared` makes."""

    @functools.wraps(function)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> R:
        return kind(self._loop, function(self._shared, *arguments, **options))

    return call  # type: ignore[return-value]


@attrs.frozen
class InPlace:
    """Runs coroutines of a follow."""

    _loop: InPlaceLoop

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a coroutine."""
        return self._loop.run(function())  # type: ignore[arg-type]
