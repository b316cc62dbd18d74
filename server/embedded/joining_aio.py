"""`open_or_join` for asyncio programs: the trio program of `joining` runs in a thread of its own, and tasks call into it."""

from __future__ import annotations

import os
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from ...tools.client.transaction import LogTransaction
from ..fake.clock import MovedClock
from ..fake.proxies import AwaitedCaller, Proxy, awaited, made
from . import joining
from .aio import AioThread, for_tasks
from .joining import JoinedBroker
from .options import JoinOptions, check_options


class AioJoinedTransaction(Proxy[LogTransaction, AwaitedCaller]):
    """A transaction under a transactional id. As a block, it commits at its end and aborts on an exception; you can also call
    the methods."""

    begin = awaited(LogTransaction.begin)
    append = awaited(LogTransaction.append)
    commit_offsets = awaited(LogTransaction.commit_offsets)
    commit = awaited(LogTransaction.commit)
    abort = awaited(LogTransaction.abort)
    _leave = awaited(LogTransaction.__aexit__)

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(kind, error, trace)


class AioJoinedBroker(AioThread[JoinedBroker]):
    """A directory that several processes share, for the tasks of the loop that has opened it. Use `open_or_join`."""

    create_topic = awaited(JoinedBroker.create_topic)
    delete_topic = awaited(JoinedBroker.delete_topic)
    topics = awaited(JoinedBroker.topics)
    describe_topic = awaited(JoinedBroker.describe_topic)

    append = awaited(JoinedBroker.append)
    append_by_key = awaited(JoinedBroker.append_by_key)
    fetch = awaited(JoinedBroker.fetch)
    follow = made(for_tasks, JoinedBroker.follow)
    transaction = made(AioJoinedTransaction, JoinedBroker.transaction)
    offset_for_time = awaited(JoinedBroker.offset_for_time)
    offsets_for_times = awaited(JoinedBroker.offsets_for_times)


def open_or_join(path: str | os.PathLike[str], **options: Unpack[JoinOptions]) -> AioJoinedBroker:
    """Share a directory with other processes for the time of the block: `async with triolog.aio.open_or_join("data") as log`.

    The first process runs the broker, and the others call it. When its process ends, another one runs it. `path`: the
    directory with the data, which is created if need be. `options`: those of `JoinOptions`, the same ones in every process.
    Entering the block raises as `triolog.open_or_join`. Raises TypeError for an unknown option.
    """
    check_options(options, "open_or_join", JoinOptions)
    return AioJoinedBroker(partial(joining.open_or_join, path, **options), MovedClock())
