"""Objects of the broker's trio thread, called from other threads: the same methods with the same signatures.

A proxy class lists what can be called: `records = waiting(LogView.records)`, or `records = awaited(LogView.records)` for who
awaits the answer in a loop of asyncio. Signature and docstring are the method's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import attrs

T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
P = ParamSpec("P")


class Caller(Protocol):
    """Runs functions in the broker's trio thread."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T: ...
    def call_now(self, function: Callable[[], T]) -> T: ...


class StandsFor(Protocol[V_co]):
    """What `waiting` and `at_once` need of a class that lists methods."""

    @property
    def _target(self) -> V_co: ...
    @property
    def _caller(self) -> Caller: ...


@attrs.frozen(eq=False, repr=False)
class Proxy(Generic[V]):
    """Stands for one object; may be used from any thread."""

    _target: V
    _caller: Caller


def waiting(method: Callable[Concatenate[V, P], Awaitable[T]]) -> Callable[Concatenate[StandsFor[V], P], T]:
    """An async method of the target: the thread that calls waits for it."""

    @wraps(method)
    def call(proxy: StandsFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        target = proxy._target
        return proxy._caller.call(lambda: method(target, *arguments, **keywords))

    return call


def at_once(method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[StandsFor[V], P], T]:
    """A method of the target that does not wait, run in the broker's thread all the same."""

    @wraps(method)
    def call(proxy: StandsFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        target = proxy._target
        return proxy._caller.call_now(lambda: method(target, *arguments, **keywords))

    return call


# ---- for asyncio -----------------------------------------------------------------------------------------------------------


class AwaitedCaller(Protocol):
    """Runs functions in the broker's trio thread, and is awaited meanwhile."""

    async def call(self, function: Callable[[], Awaitable[T]]) -> T: ...
    async def call_now(self, function: Callable[[], T]) -> T: ...


class AwaitedFor(Protocol[V_co]):
    """What `awaited` and `awaited_at_once` need of a class that lists methods."""

    @property
    def _target(self) -> V_co: ...
    @property
    def _caller(self) -> AwaitedCaller: ...


@attrs.frozen(eq=False, repr=False)
class AwaitedProxy(Generic[V]):
    """Stands for one object in a loop of asyncio."""

    _target: V
    _caller: AwaitedCaller


def awaited(
    method: Callable[Concatenate[V, P], Awaitable[T]],
) -> Callable[Concatenate[AwaitedFor[V], P], Coroutine[Any, Any, T]]:
    """An async method of the target."""

    @wraps(method)
    async def call(proxy: AwaitedFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        target = proxy._target
        return await proxy._caller.call(lambda: method(target, *arguments, **keywords))

    return call


def awaited_at_once(method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[AwaitedFor[V], P], Coroutine[Any, Any, T]]:
    """A method of the target that does not wait, run in the broker's thread all the same."""

    @wraps(method)
    async def call(proxy: AwaitedFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        target = proxy._target
        return await proxy._caller.call_now(lambda: method(target, *arguments, **keywords))

    return call
