"""Objects of the broker's trio thread, called from other threads: the same methods with the same signatures.

A proxy class lists what can be called: `records = waiting(LogView.records)`, or `records = awaited(LogView.records)` for who
awaits the answer in a loop of asyncio. Signature and docstring are the method's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

import attrs

from ...protocol.errors import RequestError

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
P = ParamSpec("P")


_PACKAGE: Final = __name__.rpartition(".fake.")[0]
_BETWEEN: Final = (
    "trio.",
    "outcome.",
    "concurrent.futures.",
    __name__,
    f"{_PACKAGE}.embedded.thread",
    f"{_PACKAGE}.embedded.aio",
)
"""Modules that have a call run in the broker's thread."""


def without_frames_between(error: Exception) -> Exception:
    """An error of a call, to be raised to the caller, whose traceback shows the caller and the broker, and nothing in between.
    An error that is the broker's answer needs no traceback of the broker either."""
    frames, kept = error.__traceback__, list[TracebackType]()
    while frames is not None and not isinstance(error, RequestError | TimeoutError):
        if not str(frames.tb_frame.f_globals.get("__name__")).startswith(_BETWEEN):
            kept.append(frames)
        frames = frames.tb_next
    trace: TracebackType | None = None
    for each in reversed(kept):
        trace = TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return error.with_traceback(trace)


class Caller(Protocol):
    """Runs functions in the broker's trio thread."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T: ...
    def call_now(self, function: Callable[[], T]) -> T: ...


class StandsFor(Protocol[V_co]):
    """The interface that `waiting` and `at_once` need of a class that lists methods."""

    @property
    def _target(self) -> V_co: ...
    @property
    def _caller(self) -> Caller: ...


@attrs.frozen(eq=False, repr=False)
class Proxy(Generic[V]):
    """Stands for one object; may be used from any thread."""

    _target: V
    _caller: Caller

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"


def waiting(method: Callable[Concatenate[V, P], Awaitable[T]]) -> Callable[Concatenate[StandsFor[V], P], T]:
    """An async method of the target: the thread that calls waits for it."""
    return _blocking(method, "call")


def at_once(method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[StandsFor[V], P], T]:
    """A method of the target that does not wait, run in the broker's thread all the same."""
    return _blocking(method, "call_now")


def _blocking(method: Callable[..., Any], way: str) -> Callable[..., Any]:
    @wraps(method)
    def call(proxy: StandsFor[Any], /, *arguments: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        target = proxy._target
        try:
            return getattr(proxy._caller, way)(lambda: method(target, *arguments, **keywords))
        except Exception as exc:
            raise without_frames_between(exc)  # noqa: B904

    return call


def made(kind: Callable[[T, Caller], R], method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[StandsFor[V], P], R]:
    """A method whose result is used from any thread, too: `kind` makes it of what the target's method makes."""

    @wraps(method)
    def call(proxy: StandsFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return kind(method(proxy._target, *arguments, **keywords), proxy._caller)

    return call


# ---- for asyncio -----------------------------------------------------------------------------------------------------------


class AwaitedCaller(Protocol):
    """Runs functions in the broker's trio thread, and is awaited meanwhile."""

    async def call(self, function: Callable[[], Awaitable[T]]) -> T: ...
    async def call_now(self, function: Callable[[], T]) -> T: ...


class AwaitedFor(Protocol[V_co]):
    """The interface that `awaited` and `awaited_at_once` need of a class that lists methods."""

    @property
    def _target(self) -> V_co: ...
    @property
    def _caller(self) -> AwaitedCaller: ...


@attrs.frozen(eq=False, repr=False)
class AwaitedProxy(Generic[V]):
    """Stands for one object in a loop of asyncio."""

    _target: V
    _caller: AwaitedCaller

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"


def awaited(
    method: Callable[Concatenate[V, P], Awaitable[T]],
) -> Callable[Concatenate[AwaitedFor[V], P], Coroutine[Any, Any, T]]:
    """An async method of the target."""
    return _awaited(method, "call")


def awaited_at_once(method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[AwaitedFor[V], P], Coroutine[Any, Any, T]]:
    """A method of the target that does not wait, run in the broker's thread all the same."""
    return _awaited(method, "call_now")


def _awaited(method: Callable[..., Any], way: str) -> Callable[..., Any]:
    @wraps(method)
    async def call(proxy: AwaitedFor[Any], /, *arguments: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        target = proxy._target
        try:
            return await getattr(proxy._caller, way)(lambda: method(target, *arguments, **keywords))
        except Exception as exc:
            raise without_frames_between(exc)  # noqa: B904

    return call


def made_for_tasks(
    kind: Callable[[T, AwaitedCaller], R], method: Callable[Concatenate[V, P], T]
) -> Callable[Concatenate[AwaitedFor[V], P], R]:
    """`made` for asyncio."""

    @wraps(method)
    def call(proxy: AwaitedFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return kind(method(proxy._target, *arguments, **keywords), proxy._caller)

    return call
