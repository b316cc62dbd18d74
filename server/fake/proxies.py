"""Objects of the broker's trio thread, called from other threads: the same methods with the same signatures.

A proxy class lists what can be called: `fetch = waiting(LogView.fetch)`, or `fetch = awaited(LogView.fetch)` for who
awaits the answer in a loop of asyncio. Signature and docstring are the method's own.

The views of a broker for programs without trio are listed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

import attrs

from ...protocol.errors import RequestError
from .clock import MovedClock
from .faults.requests import LoggedRequest
from .faults.rules import DiskRule, Rule
from .token_issuer import TokenIssuer
from .views.fault_views import FaultsView, FaultView, RequestsView
from .views.former import FormerLogCalls
from .views.groups_view import GroupsView
from .views.log_view import LogView
from .views.share_groups_view import ShareGroupsView
from .views.streams_groups_view import StreamsGroupsView

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
P = ParamSpec("P")


_PACKAGE: Final = __name__.rpartition(".fake.")[0]
_BETWEEN: Final = (
    "trio.",
    "outcome.",
    "concurrent.futures.",
    __name__,
    f"{_PACKAGE}.embedded.blocking",
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


class AwaitedCaller(Protocol):
    """Runs functions in the broker's trio thread, and is awaited meanwhile."""

    async def call(self, function: Callable[[], Awaitable[T]]) -> T: ...

    async def call_now(self, function: Callable[[], T]) -> T: ...


class StandsFor(Protocol[V_co, C_co]):
    """The interface that the functions below need of a class that lists methods."""

    @property
    def _target(self) -> V_co: ...

    @property
    def _caller(self) -> C_co: ...


@attrs.frozen(eq=False, repr=False)
class Proxy(Generic[V, C]):
    """Stands for one object; may be used from any thread, or in a loop of asyncio."""

    _target: V
    _caller: C

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"


def waiting(method: Callable[Concatenate[V, P], Awaitable[T]]) -> Callable[Concatenate[StandsFor[V, Caller], P], T]:
    """An async method of the target: the thread that calls waits for it."""
    return _blocking(method, "call")


def at_once(method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[StandsFor[V, Caller], P], T]:
    """A method of the target that does not wait, run in the broker's thread anyway."""
    return _blocking(method, "call_now")


def _blocking(method: Callable[..., Any], way: str) -> Callable[..., Any]:
    @wraps(method)
    def call(proxy: StandsFor[Any, Any], /, *arguments: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        target = proxy._target
        try:
            return getattr(proxy._caller, way)(lambda: method(target, *arguments, **keywords))
        except Exception as exc:
            raise without_frames_between(exc)  # noqa: B904

    return call


def awaited(
    method: Callable[Concatenate[V, P], Awaitable[T]],
) -> Callable[Concatenate[StandsFor[V, AwaitedCaller], P], Coroutine[Any, Any, T]]:
    """An async method of the target."""
    return _awaited(method, "call")


def awaited_sync(
    method: Callable[Concatenate[V, P], T],
) -> Callable[Concatenate[StandsFor[V, AwaitedCaller], P], Coroutine[Any, Any, T]]:
    """A method of the target that does not wait, run in the broker's thread anyway."""
    return _awaited(method, "call_now")


def _awaited(method: Callable[..., Any], way: str) -> Callable[..., Any]:
    @wraps(method)
    async def call(proxy: StandsFor[Any, Any], /, *arguments: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        target = proxy._target
        try:
            return await getattr(proxy._caller, way)(lambda: method(target, *arguments, **keywords))
        except Exception as exc:
            raise without_frames_between(exc)  # noqa: B904

    return call


def made(kind: Callable[[T, C], R], method: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[StandsFor[V, C], P], R]:
    """A method whose result is used from there, too: `kind` makes it of what the target's method makes."""

    @wraps(method)
    def call(proxy: StandsFor[V, C], /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return kind(method(proxy._target, *arguments, **keywords), proxy._caller)

    return call


class FaultCounts(Proxy[FaultView, C]):
    """A rule in force, and its effects so far."""

    @property
    def number(self) -> int:
        return self._target.number

    @property
    def rule(self) -> Rule | DiskRule:
        return self._target.rule

    @property
    def matched(self) -> int:
        """Return the number of requests that the rule has matched."""
        return self._target.matched

    @property
    def fired(self) -> int:
        """Return the number of requests that the rule has acted on."""
        return self._target.fired


# ---- the views of a broker, for programs without trio --------------------------------------------------------------------


class BlockingFault(FaultCounts[Caller]):
    """A rule in force."""

    release = at_once(FaultView.release)
    remove = at_once(FaultView.remove)
    wait_fired = waiting(FaultView.wait_fired)


def _fault(method: Callable[Concatenate[V, P], FaultView]) -> Callable[Concatenate[StandsFor[V, Caller], P], BlockingFault]:
    """A method that answers a rule."""

    @wraps(method)
    def call(proxy: StandsFor[V, Caller], /, *arguments: P.args, **keywords: P.kwargs) -> BlockingFault:
        return BlockingFault(at_once(method)(proxy, *arguments, **keywords), proxy._caller)

    return call


class BlockingFaults(Proxy[FaultsView, Caller]):
    """`broker.faults`."""

    def __iter__(self) -> Iterator[BlockingFault]:
        views = self._caller.call_now(lambda: list(self._target))
        return (BlockingFault(view, self._caller) for view in views)

    __len__ = at_once(FaultsView.__len__)
    add = _fault(FaultsView.add)
    add_rule = _fault(FaultsView.add_rule)
    disk = _fault(FaultsView.disk)
    clear = at_once(FaultsView.clear)

    def of_disk(self) -> list[BlockingFault]:
        """The rules of the device."""
        return [BlockingFault(view, self._caller) for view in self._caller.call_now(lambda: self._target.of_disk())]


class BlockingRequests(Proxy[RequestsView, Caller]):
    """`broker.requests`: the last ones, oldest first. Only Kafka's protocol is noted."""

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self._caller.call_now(lambda: list(self._target)))

    @property
    def last(self) -> int:
        """The number of the newest request; 0 before the first."""
        return self._target.last

    __len__ = at_once(RequestsView.__len__)
    find = at_once(RequestsView.find)
    count = at_once(RequestsView.count)
    clear = at_once(RequestsView.clear)
    wait_for = waiting(RequestsView.wait_for)
    tail = at_once(RequestsView.tail)


class BlockingLog(FormerLogCalls, Proxy[LogView, Caller]):
    """The records of one topic. Raises RequestError where the broker would answer one."""

    append = waiting(LogView.append)
    fetch = waiting(LogView.fetch)
    values = waiting(LogView.values)
    wait_for = waiting(LogView.wait_for)
    start_offsets = at_once(LogView.start_offsets)
    end_offsets = at_once(LogView.end_offsets)
    delete_records = waiting(LogView.delete_records)
    compact = waiting(LogView.compact)
    skip_offsets = waiting(LogView.skip_offsets)
    append_empty_batch = waiting(LogView.append_empty_batch)
    append_old_format = waiting(LogView.append_old_format)
    lose_offsets = waiting(LogView.lose_offsets)
    generate = waiting(LogView.generate)
    discard = at_once(LogView.discard)


class BlockingGroups(Proxy[GroupsView, Caller]):
    """`broker.groups`. Raises RequestError where the broker would answer one."""

    is_known = at_once(GroupsView.is_known)
    committed = waiting(GroupsView.committed)
    commit = waiting(GroupsView.commit)
    lag = waiting(GroupsView.lag)
    wait_committed = waiting(GroupsView.wait_committed)
    wait_no_lag = waiting(GroupsView.wait_no_lag)
    state = at_once(GroupsView.state)
    members = at_once(GroupsView.members)
    wait_assigned = waiting(GroupsView.wait_assigned)
    kick = waiting(GroupsView.kick)
    rebalance = _fault(GroupsView.rebalance)
    freeze = _fault(GroupsView.freeze)


class BlockingShareGroups(Proxy[ShareGroupsView, Caller]):
    """`broker.share_groups`. Raises RequestError where the broker would answer one."""

    groups = at_once(ShareGroupsView.groups)
    partitions = at_once(ShareGroupsView.partitions)
    start_offsets = at_once(ShareGroupsView.start_offsets)
    locks = at_once(ShareGroupsView.locks)
    delivery_counts = at_once(ShareGroupsView.delivery_counts)
    in_state = at_once(ShareGroupsView.in_state)
    assignments = at_once(ShareGroupsView.assignments)
    lag = at_once(ShareGroupsView.lag)
    wait_done = waiting(ShareGroupsView.wait_done)


class BlockingStreamsGroups(Proxy[StreamsGroupsView, Caller]):
    """`broker.streams_groups`. Raises RequestError where the broker would answer one."""

    groups = at_once(StreamsGroupsView.groups)
    describe = at_once(StreamsGroupsView.describe)
    assignments = at_once(StreamsGroupsView.assignments)
    statuses = at_once(StreamsGroupsView.statuses)
    lag = waiting(StreamsGroupsView.lag)
    wait_stable = waiting(StreamsGroupsView.wait_stable)
    wait_status = waiting(StreamsGroupsView.wait_status)
    wait_done = waiting(StreamsGroupsView.wait_done)


class BlockingTokens(Proxy[TokenIssuer, Caller]):
    """`broker.tokens`: the issuer of tokens for OAUTHBEARER."""

    issue = at_once(TokenIssuer.issue)
    rotate_keys = at_once(TokenIssuer.rotate_keys)
    refuse = at_once(TokenIssuer.refuse)
    accept = at_once(TokenIssuer.accept)
    logins = at_once(TokenIssuer.logins)
    jwks = at_once(TokenIssuer.jwks)


class BlockingClock(Proxy[MovedClock, Caller]):
    """The broker's time. Deadlines move with it, as the broker's thread runs by it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._target.now_ms()

    advance = at_once(MovedClock.advance)
    freeze = at_once(MovedClock.freeze)
    unfreeze = at_once(MovedClock.unfreeze)
