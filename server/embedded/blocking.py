"""The calls of a broker for programs without trio; they may come from any thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

from ...protocol.following import BlockingFollow as BlockingFollow
from ...protocol.following import BlockingFollowedRecord as BlockingFollowedRecord
from ..fake.proxies import Proxy, at_once, made, waiting
from ..fake.views.blocking_views import (
    BlockingClock,
    BlockingFaults,
    BlockingGroups,
    BlockingLog,
    BlockingRequests,
    BlockingShareGroups,
    BlockingStreamsGroups,
)
from .broker import EmbeddedBroker, Fork, open_fork
from .living import directory_like
from .opening import open_broker
from .thread import BlockingThread, clock_of
from .transaction import Transaction


class BlockingTransaction(Proxy[Transaction]):
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


class BlockingBroker(BlockingThread):
    """A broker for programs without trio: `with BlockingBroker() as broker`. It runs in a thread of its own.

    Takes what `open_broker` takes. The calls may come from any thread. One that is never stopped is stopped in order when the
    interpreter exits.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        clock = clock_of(options)
        super().__init__(partial(open_broker, path, clock=clock, **options), clock)

    @classmethod
    def forked(cls, fork: Fork) -> Self:
        """A broker that begins where another one is."""
        broker = cls.__new__(cls)
        BlockingThread.__init__(broker, partial(open_fork, fork), fork.clock)
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
            with BlockingBroker.forked(fork) as broker:
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
    topics = at_once(EmbeddedBroker.topics)
    describe_topic = at_once(EmbeddedBroker.describe_topic)

    append = waiting(EmbeddedBroker.append)
    append_by_key = waiting(EmbeddedBroker.append_by_key)
    fetch = waiting(EmbeddedBroker.fetch)
    follow = made(BlockingFollow, EmbeddedBroker.follow)
    transaction = made(BlockingTransaction, EmbeddedBroker.transaction)
    offset_for_time = waiting(EmbeddedBroker.offset_for_time)
    offsets_for_times = waiting(EmbeddedBroker.offsets_for_times)
