"""`open_or_join` for programs without an event loop: the trio program of `joining` runs in a thread of its own.

The thread begins with the first call, in a forked process too. So a server that loads its application before it forks can have
the object in a module: each of its processes joins when it calls first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from ...protocol.following import BlockingFollow
from ...tools.client.transaction import LogTransaction
from ..fake.clock import MovedClock
from ..fake.proxies import Caller, Proxy, made, waiting
from . import joining
from .blocking import BlockingThread
from .joining import JoinedBroker
from .options import JoinOptions, check_options


class BlockingJoinedTransaction(Proxy[LogTransaction, Caller]):
    """A transaction under a transactional id. As a block, it commits at its end and aborts on an exception; you can also call
    the methods."""

    begin = waiting(LogTransaction.begin)
    append = waiting(LogTransaction.append)
    commit_offsets = waiting(LogTransaction.commit_offsets)
    commit = waiting(LogTransaction.commit)
    abort = waiting(LogTransaction.abort)
    _leave = waiting(LogTransaction.__aexit__)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(kind, error, trace)


class BlockingJoinedBroker(BlockingThread[JoinedBroker]):
    """A directory that several processes share. Calls may come from any thread; the first one joins. Use `open_or_join`."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[JoinedBroker]]) -> None:
        super().__init__(opened, MovedClock())
        self._starting = threading.Lock()

    def start(self) -> Self:
        """Join now. Raises as `triolog.open_or_join`; then the next call tries again."""
        try:
            return super().start()
        except BaseException:
            self._thread = self._failure = None
            raise

    def after_fork(self) -> None:
        """Begin again with the next call."""
        self._thread = self._broker = self._token = self._failure = None
        self._starting = threading.Lock()

    @property
    def _target(self) -> JoinedBroker:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self.start()
        return super()._target

    create_topic = waiting(JoinedBroker.create_topic)
    delete_topic = waiting(JoinedBroker.delete_topic)
    topics = waiting(JoinedBroker.topics)
    describe_topic = waiting(JoinedBroker.describe_topic)

    append = waiting(JoinedBroker.append)
    append_by_key = waiting(JoinedBroker.append_by_key)
    fetch = waiting(JoinedBroker.fetch)
    follow = made(BlockingFollow, JoinedBroker.follow)
    transaction = made(BlockingJoinedTransaction, JoinedBroker.transaction)
    offset_for_time = waiting(JoinedBroker.offset_for_time)
    offsets_for_times = waiting(JoinedBroker.offsets_for_times)


def open_or_join(path: str | os.PathLike[str], **options: Unpack[JoinOptions]) -> BlockingJoinedBroker:
    """Share a directory with other processes: `log = triolog.blocking.open_or_join("data")`.

    The first process that calls runs the broker, and the others call it. When its process ends, another one runs it.
    `path`: the directory with the data, which is created if need be. `options`: those of `JoinOptions`, the same ones in
    every process. The end of a block, `stop`, and the exit of the interpreter leave the directory. Raises TypeError for an
    unknown option.
    """
    check_options(options, "open_or_join", JoinOptions)
    return BlockingJoinedBroker(partial(joining.open_or_join, path, **options))
