"""The calls of a broker for programs without trio; they may come from any thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from ..control.clock import MovedClock
from ..control.proxies import at_once, waiting
from ..control.views.blocking_views import (
    BlockingClock,
    BlockingFaults,
    BlockingGroups,
    BlockingLog,
    BlockingRequests,
    BlockingShareGroups,
    BlockingStreamsGroups,
)
from ..settings.broker_config import Address
from ..system.clock import system_now_ms
from .broker import EmbeddedBroker, Fork, open_fork
from .living import directory_like
from .opening import open_broker
from .thread import BrokerThread


class BlockingBroker(BrokerThread):
    """A broker for programs without trio: `with BlockingBroker() as broker`. It runs in a thread of its own.

    Takes what `open_broker` takes. The calls may come from any thread.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        clock = settings.pop("clock", None) or MovedClock(settings.pop("now_ms", system_now_ms))
        super().__init__(partial(open_broker, path, clock=clock, **settings), clock)

    @classmethod
    def forked(cls, fork: Fork) -> Self:
        """A broker that begins where another one is."""
        broker = cls.__new__(cls)
        BrokerThread.__init__(broker, partial(open_fork, fork), fork.clock)
        return broker

    @property
    def native(self) -> Address | None:
        """Where the native protocol listens."""
        return self._target.native

    @property
    def kafka(self) -> Address | None:
        """Where Kafka's protocol listens."""
        return self._target.kafka

    @property
    def bootstrap_servers(self) -> str:
        """What Kafka clients are configured with. Raises RuntimeError without such a listener."""
        return self._target.bootstrap_servers

    @property
    def path(self) -> str:
        """The directory with the data."""
        return self._target.path

    @property
    def faults(self) -> BlockingFaults:
        """What goes wrong; see docs/testing-with-triolog.md."""
        return BlockingFaults(self._target.faults, self)

    @property
    def requests(self) -> BlockingRequests:
        """What Kafka clients asked for."""
        return BlockingRequests(self._target.requests, self)

    @property
    def groups(self) -> BlockingGroups:
        """What groups have committed, and what upsets them."""
        return BlockingGroups(self._target.groups, self)

    @property
    def share_groups(self) -> BlockingShareGroups:
        """What share groups have begun in partitions, and who has it until when."""
        return BlockingShareGroups(self._target.share_groups, self)

    @property
    def streams_groups(self) -> BlockingStreamsGroups:
        """What applications of Kafka Streams consist of, who runs which tasks, and what is wrong."""
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
    fetch = waiting(EmbeddedBroker.fetch)
    offset_for_time = waiting(EmbeddedBroker.offset_for_time)
    offsets_for_times = waiting(EmbeddedBroker.offsets_for_times)
