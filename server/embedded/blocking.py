"""A broker in a thread of its own, with a trio loop of its own, for programs without trio. Calls may come from any thread. Who
never ends it has it ended in order when the interpreter exits.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

import trio

from ...protocol.following import BlockingFollow as BlockingFollow
from ...protocol.following import BlockingFollowedRecord as BlockingFollowedRecord
from ...protocol.former import warn_former
from ..config.broker_config import Address
from ..fake.clock import MovedClock, clock_by
from ..fake.life import ForkedError
from ..fake.proxies import (
    BlockingClock,
    BlockingFaults,
    BlockingGroups,
    BlockingLog,
    BlockingRequests,
    BlockingShareGroups,
    BlockingStreamsGroups,
    BlockingTokens,
    Caller,
    Proxy,
    at_once,
    made,
    waiting,
)
from ..system.clock import system_now_ms
from . import opening
from .broker import EmbeddedBroker, describe_broker, open_fork
from .living import directory_like
from .options import OpenOptions, check_options, listening, shows_options
from .records import Transaction

T = TypeVar("T")
B = TypeVar("B")

_THREADS: Final[weakref.WeakSet[BrokerThread[Any]]] = weakref.WeakSet()
"""Those of this process that have begun."""


def clock_of(options: OpenOptions) -> MovedClock:
    """Return the broker's clock, which the thread's loop uses too, and put it into the options. Raises TypeError for an unknown
    option."""
    check_options(options)
    clock = options.get("clock") or clock_by(options.pop("now_ms", system_now_ms))
    options["clock"] = clock
    return clock


class BrokerThread(Generic[B]):
    """Owner of the thread, and of the broker that runs there."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[B]], clock: MovedClock) -> None:
        self._moved_clock = clock
        self._open = opened
        self._thread: threading.Thread | None = None
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._broker: B | None = None
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, not started or ended>" if self._broker is None else self._describe(self._broker)

    def _describe(self, running: B) -> str:
        return f"<{type(self).__name__} of {running!r}>"

    # ---- life ----------------------------------------------------------------------------------------------------------

    def begin(self, ready: Callable[[], None], ended: Callable[[], None]) -> None:
        """Start the thread. `ready`: called when the broker serves. `ended`: called last, even if it has never served."""
        if self._thread is not None:
            raise RuntimeError("the broker is already started")
        self._thread = threading.Thread(target=self._run, args=(ready, ended), name="triolog-broker", daemon=True)
        _THREADS.add(self)
        self._thread.start()

    def end(self) -> bool:
        """Ask it to stop in order. False: it does not run."""
        if self._thread is None or not self._thread.is_alive():
            return False
        if self._token is not None and self._stop is not None:
            with contextlib.suppress(trio.RunFinishedError):  # somebody else has stopped it
                self._token.run_sync_soon(self._stop.set)
        return True

    def join(self) -> None:
        """Wait until it has ended. Raises what has ended it before it was asked to."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def after_fork(self) -> None:
        """This is the copy in a process that was forked, where the thread is not."""
        self._broker = self._token = None
        self._failure = ForkedError()

    def _run(self, ready: Callable[[], None], ended: Callable[[], None]) -> None:
        try:
            trio.run(self._serve, ready, clock=self._moved_clock)
        except BaseException as exc:
            self._failure = exc
        finally:
            self._broker = None
            _THREADS.discard(self)
            ended()

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._stop = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with self._open() as self._broker, trio.open_nursery() as self._nursery:
            ready()
            await self._stop.wait()
            self._nursery.cancel_scope.cancel()

    @property
    def _target(self) -> B:
        """The broker that runs. Raises RuntimeError."""
        if self._broker is None:
            if isinstance(self._failure, ForkedError):
                raise ForkedError
            raise RuntimeError("the broker is not running. Use it inside the block that opens it") from self._failure
        return self._broker


class EmbeddedThread(BrokerThread[EmbeddedBroker]):
    """A thread whose broker belongs to this process alone, and the addresses of that broker."""

    def _describe(self, running: EmbeddedBroker) -> str:
        return describe_broker(self, is_running=running.life.is_running)

    @property
    def native(self) -> Address | None:
        """Return the address of the native listener; None without one."""
        return self._target.native

    @property
    def kafka(self) -> Address | None:
        """Return the address of the Kafka listener; None without one."""
        return self._target.kafka

    @property
    def metrics(self) -> Address | None:
        """Return the address of /metrics, /livez and /readyz; None without one."""
        return self._target.metrics

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for `bootstrap.servers` of Kafka clients. Raises RuntimeError without such a listener."""
        return self._target.bootstrap_servers

    @property
    def path(self) -> str:
        """The directory with the data."""
        return self._target.path


class BlockingThread(BrokerThread[B]):
    """A thread whose callers block until they have their answer."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the thread, wait until the broker serves, and return it. Raises what keeps it from starting."""
        ready = threading.Event()
        self.begin(ready.set, ready.set)
        ready.wait()
        if self._failure is not None:
            self.join()
        return self

    def stop(self) -> None:
        """Stop in order and wait for it; stopping twice is fine."""
        if self.end():
            self.join()

    @property
    def _caller(self) -> Self:
        return self

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the broker's thread. Raises RuntimeError when the broker does not run, or is stopped
        meanwhile."""
        return self._outside_of_trio(lambda: trio.from_thread.run(function, trio_token=self._token))

    def call_now(self, function: Callable[[], T]) -> T:
        """Run a function in the broker's thread. Raises RuntimeError as `call` does."""
        return self._outside_of_trio(lambda: trio.from_thread.run_sync(function, trio_token=self._token))

    def _outside_of_trio(self, call: Callable[[], T]) -> T:
        """Call it in this thread, or in one of its own where this one runs another trio program, a test: trio would refuse.
        A call that the stop overtakes ends with an error that has a meaning outside of trio."""
        _ = self._target
        try:
            if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is self._token:
                return call()
            from concurrent.futures import ThreadPoolExecutor  # seldom needed, and not small

            with ThreadPoolExecutor(1, "triolog-call") as executor:
                return executor.submit(call).result()
        except (trio.Cancelled, trio.RunFinishedError):
            raise RuntimeError("the broker was stopped during the call. Its outcome is unknown") from self._failure


# ---- the process -----------------------------------------------------------------------------------------------------------


def _end_all() -> None:
    for each in list(_THREADS):
        if each.end():
            with contextlib.suppress(BaseException):
                each.join()


def _forked() -> None:
    for each in list(_THREADS):
        each.after_fork()


# Before the interpreter refuses new threads (from Python 3.12 on it does before `atexit`), which a stop may need for its disk
# work. `concurrent.futures` registers itself in the same way.
getattr(threading, "_register_atexit", atexit.register)(_end_all)
os.register_at_fork(after_in_child=_forked)


class BlockingTransaction(Proxy[Transaction, Caller]):
    """A transaction under a transactional id. As a block, it commits at its end and aborts on an exception; you can also call
    the methods."""

    begin = waiting(Transaction.begin)
    append = waiting(Transaction.append)
    commit_offsets = waiting(Transaction.commit_offsets)
    commit = waiting(Transaction.commit)
    abort = waiting(Transaction.abort)
    leave = waiting(Transaction.leave)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave(failed=kind is not None)


class BlockingBroker(BlockingThread[EmbeddedBroker], EmbeddedThread):
    """A broker for programs without an event loop: `with triolog.blocking.open() as broker`. It runs in a thread of its own.

    The calls may come from any thread. A broker that is never stopped is stopped cleanly when the interpreter exits.

    `BlockingBroker(...)` is the former name of `triolog.blocking.open(...)`, kept for one release. By default it listens for
    native clients on a port of 127.0.0.1 that the system chooses.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]) -> None:
        warn_former("BlockingBroker()", "triolog.blocking.open()")
        clock = clock_of(options)
        super().__init__(partial(opening.open, path, **listening(options)), clock)

    @classmethod
    def of(cls, opened: Callable[[], AbstractAsyncContextManager[EmbeddedBroker]], clock: MovedClock) -> Self:
        """Return a broker that `opened` opens in the thread, by this clock."""
        broker = cls.__new__(cls)
        BlockingThread.__init__(broker, opened, clock)
        return broker

    @property
    def faults(self) -> BlockingFaults:
        """Return a view of injected faults; see docs/testing-with-triolog.md."""
        return BlockingFaults(self._target.faults, self)

    @property
    def requests(self) -> BlockingRequests:
        """Return a view of the requests of Kafka clients."""
        return BlockingRequests(self._target.requests, self)

    @property
    def groups(self) -> BlockingGroups:
        """Return a view of groups: their committed offsets, and faults that disturb them."""
        return BlockingGroups(self._target.groups, self)

    @property
    def share_groups(self) -> BlockingShareGroups:
        """Return a view of share groups: their progress in partitions, and the record locks of members."""
        return BlockingShareGroups(self._target.share_groups, self)

    @property
    def streams_groups(self) -> BlockingStreamsGroups:
        """Return a view of Kafka Streams applications: their topologies, the tasks of members, and their statuses."""
        return BlockingStreamsGroups(self._target.streams_groups, self)

    @property
    def clock(self) -> BlockingClock:
        """The broker's time, deadlines included."""
        return BlockingClock(self._moved_clock, self)

    @property
    def tokens(self) -> BlockingTokens:
        """Return the issuer of the tokens with which users log in by OAUTHBEARER. Raises RuntimeError without one."""
        return BlockingTokens(self._target.tokens, self)

    @property
    def schema_registry_url(self) -> str:
        """Return the URL of the schema registry, which starts when this is first read (extra `registry`). Raises
        InvalidConfigError without the packages of the extra."""
        return self.call(self._target.start_schema_registry)

    def log(self, topic: str) -> BlockingLog:
        """The records of a topic."""
        return BlockingLog(self._target.log(topic), self)

    @contextmanager
    def fork(self) -> Iterator[BlockingBroker]:
        """Another broker for the time of the block, with what this one has now: data, settings and time. It has ports of its
        own, no clients, and no faults; from then on each goes its own way."""
        running = self._target
        with directory_like(self.path) as directory:
            fork = self.call(lambda: running.forked_into(directory))
            with BlockingBroker.of(partial(open_fork, fork), fork.clock) as broker:
                yield broker

    crash = waiting(EmbeddedBroker.crash)
    restart = waiting(EmbeddedBroker.restart)
    reset = waiting(EmbeddedBroker.reset)
    snapshot = waiting(EmbeddedBroker.snapshot)
    apply_retention = waiting(EmbeddedBroker.apply_retention)
    statistics = waiting(EmbeddedBroker.statistics)

    node_down = waiting(EmbeddedBroker.node_down)
    node_up = waiting(EmbeddedBroker.node_up)
    move_leader = waiting(EmbeddedBroker.move_leader)
    move_coordinator = at_once(EmbeddedBroker.move_coordinator)

    create_topic = waiting(EmbeddedBroker.create_topic)
    delete_topic = waiting(EmbeddedBroker.delete_topic)
    alter_config = waiting(EmbeddedBroker.alter_config)
    alter_group_config = waiting(EmbeddedBroker.alter_group_config)
    create_partitions = waiting(EmbeddedBroker.create_partitions)
    delete_records = waiting(EmbeddedBroker.delete_records)
    story = at_once(EmbeddedBroker.story)
    topics = at_once(EmbeddedBroker.topics)
    describe_topic = at_once(EmbeddedBroker.describe_topic)

    append = waiting(EmbeddedBroker.append)
    append_by_key = waiting(EmbeddedBroker.append_by_key)
    fetch = waiting(EmbeddedBroker.fetch)
    follow = made(BlockingFollow, EmbeddedBroker.follow)
    transaction = made(BlockingTransaction, EmbeddedBroker.transaction)
    offset_for_time = waiting(EmbeddedBroker.offset_for_time)
    offsets_for_times = waiting(EmbeddedBroker.offsets_for_times)


@shows_options(opening.open)
def open(path: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]) -> BlockingBroker:
    """Open a broker for the time of the block: `with triolog.blocking.open("data") as broker`.

    Without a block, call `start` and `stop`.

    `path`: its directory; None for a temporary directory that is removed at the end, `":memory:"` for one in memory.
    `OpenOptions` describes the other options. A TCP port is opened only if `native`, `kafka`, `metrics` or `settings` name it.

    The end of the block is a clean stop. Its start raises InvalidConfigError, StorageError, OSError or RequestError when the
    broker cannot start. Raises TypeError for an unknown option.
    """
    clock = clock_of(options)
    return BlockingBroker.of(partial(opening.open, path, **options), clock)
