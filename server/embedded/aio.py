"""A broker inside an asyncio program: `async with triolog.aio.open() as broker`.

It runs in a thread of its own, with a trio loop of its own. A call is handed to that loop, awaited without blocking the one of
asyncio, and its answer is handed back; there is no pool of threads in between. A task that is cancelled cancels its call, and
goes on when that has ended. What the broker raises is raised as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

import trio

from ...protocol.following import Follow as Follow
from ...protocol.following import FollowedRecord as FollowedRecord
from ...protocol.former import warn_former
from ..fake.proxies import AwaitedCaller, FaultCounts, Proxy, StandsFor, awaited, awaited_sync, made
from ..fake.token_issuer import TokenIssuer
from ..fake.views.fault_views import FaultsView, FaultView, RequestsView
from ..fake.views.former import FormerLogCalls
from ..fake.views.groups_view import GroupsView
from ..fake.views.log_view import LogView
from . import opening
from .blocking import BrokerThread, EmbeddedThread, clock_of
from .broker import EmbeddedBroker, open_fork
from .living import directory_like
from .options import OpenOptions, listening, shows_options
from .records import Transaction

T = TypeVar("T")
B = TypeVar("B")
V = TypeVar("V")
P = ParamSpec("P")


class Call(Generic[T]):
    """A call of a task. Owner: the task; `begin`, `cancel` and `run` are called in the broker's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[Callable[[], object]], None]) -> None:
        self.answered = loop.create_future()
        self._tell = tell
        self._scope = trio.CancelScope()
        self._is_over = False
        self._value: T | None = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[[], Awaitable[T]], nursery: trio.Nursery) -> None:
        """Have a task call an async function."""
        try:
            nursery.start_soon(self._run, function)
        except RuntimeError:  # it is closed
            self._answer(error=stopped())

    def begin_sync(self, function: Callable[[], T]) -> None:
        """Call a function."""
        try:
            self._answer(function())
        except BaseException as exc:
            self._answer(error=exc)

    def cancel(self) -> None:
        """Cancel what `begin` has begun."""
        self._scope.cancel()

    async def _run(self, function: Callable[[], Awaitable[T]]) -> None:
        try:
            with self._scope:
                self._answer(await function())
                return
        except trio.Cancelled:
            self._answer(error=stopped())
            raise
        except BaseException as exc:
            self._answer(error=exc)
            return
        self._answer(error=asyncio.CancelledError())

    def _answer(self, value: T | None = None, error: BaseException | None = None) -> None:
        self._tell(partial(self.settle, value, error))

    def settle(self, value: T | None = None, error: BaseException | None = None) -> None:
        """It has ended so. Called in the task's loop."""
        if self._is_over:
            return
        self._is_over, self._value, self._error = True, value, error
        if not self.answered.done():
            self.answered.set_result(None)

    async def ended(self) -> None:
        """Wait until it has ended, also when its task is cancelled again."""
        while not self._is_over:
            self.answered = asyncio.get_running_loop().create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await self.answered

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


def stopped() -> RuntimeError:
    return RuntimeError("the broker was stopped during the call; its outcome is unknown")


class AioThread(BrokerThread[B]):
    """A broker's thread whose callers are tasks of one asyncio loop, which has opened it."""

    _loop: asyncio.AbstractEventLoop
    _is_ready: asyncio.Event
    _has_ended: asyncio.Event
    _calls: set[Call[Any]]

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._is_ready, self._has_ended = asyncio.Event(), asyncio.Event()
        self._calls = set()
        self.begin(partial(self._tell, self._is_ready.set), partial(self._tell, self._end_calls))
        try:
            await self._is_ready.wait()
        except asyncio.CancelledError:
            await self._whatever_happens(self._is_ready)
            await self._stop_in_order()
            raise
        if self._failure is not None:
            self.join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_in_order()

    async def _stop_in_order(self) -> None:
        """Whatever happens meanwhile. Raises what the thread has failed with, CancelledError."""
        if not self.end():
            return
        is_cancelled = await self._whatever_happens(self._has_ended)
        self.join()
        if is_cancelled:
            raise asyncio.CancelledError

    @staticmethod
    async def _whatever_happens(event: asyncio.Event) -> bool:
        """Wait for an event; answers whether the task was cancelled meanwhile."""
        is_cancelled = False
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError:
                is_cancelled = True
        return is_cancelled

    def _end_calls(self) -> None:
        """Nothing answers any more."""
        for call in self._calls:
            call.settle(error=stopped())
        self._is_ready.set()
        self._has_ended.set()

    def _tell(self, call: Callable[[], object]) -> None:
        """Have the loop call it. Where that was closed nobody is left to be told."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    # ---- calls ---------------------------------------------------------------------------------------------------------

    @property
    def _caller(self) -> Self:
        return self

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the broker's thread. Raises RuntimeError when the broker does not run, or is stopped
        meanwhile. Cancelled, the function is cancelled, and this raises when that has ended."""
        call: Call[T] = self._new_call()
        assert self._nursery is not None
        return await self._answer(call, partial(call.begin, function, self._nursery))

    async def call_now(self, function: Callable[[], T]) -> T:
        """Run a function in the broker's thread. Raises RuntimeError as `call` does."""
        call: Call[T] = self._new_call()
        return await self._answer(call, partial(call.begin_sync, function))

    def _new_call(self) -> Call[Any]:
        _ = self._target
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the broker was opened by another event loop. Open one in each, or use triolog.blocking.open()")
        return Call(self._loop, self._tell)

    async def _answer(self, call: Call[T], begin: Callable[[], None]) -> T:
        self._calls.add(call)
        try:
            self._hand_over(begin)
            await call.answered
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):
                self._hand_over(call.cancel)
            await call.ended()
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def _hand_over(self, function: Callable[[], None]) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise stopped() from self._failure


# ---- what stands for the broker and its parts ------------------------------------------------------------------------------


class AioLog(FormerLogCalls, Proxy[LogView, AwaitedCaller]):
    """The records of one topic. Raises RequestError where the broker would answer one."""

    append = awaited(LogView.append)
    fetch = awaited(LogView.fetch)
    values = awaited(LogView.values)
    wait_for = awaited(LogView.wait_for)
    start_offsets = awaited_sync(LogView.start_offsets)
    end_offsets = awaited_sync(LogView.end_offsets)
    delete_records = awaited(LogView.delete_records)
    compact = awaited(LogView.compact)
    skip_offsets = awaited(LogView.skip_offsets)
    append_empty_batch = awaited(LogView.append_empty_batch)
    append_old_format = awaited(LogView.append_old_format)
    lose_offsets = awaited(LogView.lose_offsets)
    generate = awaited(LogView.generate)
    discard = awaited_sync(LogView.discard)


class AioFault(FaultCounts[AwaitedCaller]):
    """A rule in force."""

    release = awaited_sync(FaultView.release)
    remove = awaited_sync(FaultView.remove)
    wait_fired = awaited(FaultView.wait_fired)


def _fault(
    method: Callable[Concatenate[V, P], FaultView],
) -> Callable[Concatenate[StandsFor[V, AwaitedCaller], P], Coroutine[Any, Any, AioFault]]:
    """A method that returns a rule."""

    @wraps(method)
    async def call(proxy: StandsFor[V, AwaitedCaller], /, *arguments: P.args, **keywords: P.kwargs) -> AioFault:
        return AioFault(await awaited_sync(method)(proxy, *arguments, **keywords), proxy._caller)

    return call


class AioFaults(Proxy[FaultsView, AwaitedCaller]):
    """`broker.faults`."""

    add = _fault(FaultsView.add)
    add_rule = _fault(FaultsView.add_rule)
    disk = _fault(FaultsView.disk)
    clear = awaited_sync(FaultsView.clear)

    async def of_disk(self) -> list[AioFault]:
        """The rules of the device."""
        return [AioFault(view, self._caller) for view in await self._caller.call_now(self._target.of_disk)]


class AioRequests(Proxy[RequestsView, AwaitedCaller]):
    """`broker.requests`: the last ones; `find()` returns all of them, oldest first. Only Kafka's protocol is noted."""

    @property
    def last(self) -> int:
        """The number of the newest request; 0 before the first."""
        return self._target.last

    find = awaited_sync(RequestsView.find)
    count = awaited_sync(RequestsView.count)
    clear = awaited_sync(RequestsView.clear)
    wait_for = awaited(RequestsView.wait_for)
    tail = awaited_sync(RequestsView.tail)


class AioGroups(Proxy[GroupsView, AwaitedCaller]):
    """`broker.groups`. Raises RequestError where the broker would answer one."""

    is_known = awaited_sync(GroupsView.is_known)
    committed = awaited(GroupsView.committed)
    commit = awaited(GroupsView.commit)
    lag = awaited(GroupsView.lag)
    wait_committed = awaited(GroupsView.wait_committed)
    wait_no_lag = awaited(GroupsView.wait_no_lag)
    state = awaited_sync(GroupsView.state)
    members = awaited_sync(GroupsView.members)
    wait_assigned = awaited(GroupsView.wait_assigned)
    kick = awaited(GroupsView.kick)
    rebalance = _fault(GroupsView.rebalance)
    freeze = _fault(GroupsView.freeze)


class AioTokens(Proxy[TokenIssuer, AwaitedCaller]):
    """`broker.tokens`: the issuer of tokens for OAUTHBEARER."""

    issue = awaited_sync(TokenIssuer.issue)
    rotate_keys = awaited_sync(TokenIssuer.rotate_keys)
    refuse = awaited_sync(TokenIssuer.refuse)
    accept = awaited_sync(TokenIssuer.accept)
    logins = awaited_sync(TokenIssuer.logins)
    jwks = awaited_sync(TokenIssuer.jwks)


class AioTransaction(Proxy[Transaction, AwaitedCaller]):
    """A transaction under a transactional id. As a block, it commits at its end and aborts on an exception; you can also call
    the methods."""

    begin = awaited(Transaction.begin)
    append = awaited(Transaction.append)
    commit_offsets = awaited(Transaction.commit_offsets)
    commit = awaited(Transaction.commit)
    abort = awaited(Transaction.abort)
    leave = awaited(Transaction.leave)

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(failed=kind is not None)


def for_tasks(follow: Follow, caller: AioThread[Any]) -> Follow:
    return follow.through(caller.call)


class AioBroker(AioThread[EmbeddedBroker], EmbeddedThread):
    """A running broker, to be called from the tasks of the loop that has opened it. `open` opens it."""

    @property
    def faults(self) -> AioFaults:
        """Return a view of injected faults; see docs/testing-with-triolog.md."""
        return AioFaults(self._target.faults, self)

    @property
    def requests(self) -> AioRequests:
        """Return a view of the requests of Kafka clients."""
        return AioRequests(self._target.requests, self)

    @property
    def groups(self) -> AioGroups:
        """Return a view of groups: their committed offsets, and faults that disturb them."""
        return AioGroups(self._target.groups, self)

    @property
    def tokens(self) -> AioTokens:
        """Return the issuer of the tokens with which users log in by OAUTHBEARER. Raises RuntimeError without one."""
        return AioTokens(self._target.tokens, self)

    def log(self, topic: str) -> AioLog:
        """The records of a topic."""
        return AioLog(self._target.log(topic), self)

    @asynccontextmanager
    async def fork(self) -> AsyncIterator[AioBroker]:
        """Another broker for the time of the block, with what this one has now: data, settings and time. It has ports of its
        own, no clients, and no faults; from then on each goes its own way."""
        running = self._target
        with directory_like(self.path) as directory:
            fork = await self.call(lambda: running.forked_into(directory))
            async with AioBroker(partial(open_fork, fork), fork.clock) as broker:
                yield broker

    crash = awaited(EmbeddedBroker.crash)
    restart = awaited(EmbeddedBroker.restart)
    start_schema_registry = awaited(EmbeddedBroker.start_schema_registry)
    reset = awaited(EmbeddedBroker.reset)
    snapshot = awaited(EmbeddedBroker.snapshot)
    apply_retention = awaited(EmbeddedBroker.apply_retention)
    statistics = awaited(EmbeddedBroker.statistics)

    create_topic = awaited(EmbeddedBroker.create_topic)
    delete_topic = awaited(EmbeddedBroker.delete_topic)
    alter_config = awaited(EmbeddedBroker.alter_config)
    alter_group_config = awaited(EmbeddedBroker.alter_group_config)
    create_partitions = awaited(EmbeddedBroker.create_partitions)
    delete_records = awaited(EmbeddedBroker.delete_records)
    story = awaited_sync(EmbeddedBroker.story)
    topics = awaited_sync(EmbeddedBroker.topics)
    describe_topic = awaited_sync(EmbeddedBroker.describe_topic)

    append = awaited(EmbeddedBroker.append)
    append_by_key = awaited(EmbeddedBroker.append_by_key)
    fetch = awaited(EmbeddedBroker.fetch)
    follow = made(for_tasks, EmbeddedBroker.follow)
    transaction = made(AioTransaction, EmbeddedBroker.transaction)
    offset_for_time = awaited(EmbeddedBroker.offset_for_time)
    offsets_for_times = awaited(EmbeddedBroker.offsets_for_times)


@shows_options(opening.open)
def open(path: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]) -> AioBroker:
    """Open a broker for the time of the block: `async with triolog.aio.open("data") as broker`.

    `path`: its directory; None for a temporary directory that is removed at the end, `":memory:"` for one in memory.
    `OpenOptions` describes the other options. A TCP port is opened only if `native`, `kafka`, `metrics` or `settings` name it.

    The end of the block is a clean stop, also when its task is cancelled. Entering the block raises InvalidConfigError,
    StorageError, OSError or RequestError when the broker cannot start. Raises TypeError for an unknown option.
    """
    clock = clock_of(options)
    return AioBroker(partial(opening.open, path, **options), clock)


def open_broker(path: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]) -> AioBroker:
    """The former name of `open`, kept for one release. By default it listens for native clients on a port of 127.0.0.1 that the
    system chooses."""
    warn_former("aio.open_broker()", "triolog.aio.open()")
    return open(path, **listening(options))
