"""The calls of a broker for programs without trio; they may come from any thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from ...protocol.errors import RequestError
from ...protocol.limits import MIB
from ...protocol.types import Bytes, Record, TopicPartition
from ..broker import PlainRecord, TopicDescription
from ..broker_config import Address
from ..clock import system_now_ms
from ..control.blocking_views import BlockingClock, BlockingFaults, BlockingGroups, BlockingLog, BlockingRequests
from ..control.clock import MovedClock
from ..storage.append import AppendResult
from ..storage.segment_view import TimestampAndOffset
from .broker import Fork, open_fork
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

    # ---- calls, as EmbeddedBroker's --------------------------------------------------------------------------------------

    @property
    def native(self) -> Address | None:
        """Where the native protocol listens."""
        return self._running().native

    @property
    def kafka(self) -> Address | None:
        """Where Kafka's protocol listens."""
        return self._running().kafka

    @property
    def bootstrap_servers(self) -> str:
        """See EmbeddedBroker.bootstrap_servers."""
        return self._running().bootstrap_servers

    @property
    def path(self) -> str:
        """The directory with the data."""
        return self._running().path

    @property
    def faults(self) -> BlockingFaults:
        """See EmbeddedBroker.faults."""
        return BlockingFaults(lambda: self._running().faults, self)

    @property
    def requests(self) -> BlockingRequests:
        """See EmbeddedBroker.requests."""
        return BlockingRequests(lambda: self._running().requests, self)

    @property
    def groups(self) -> BlockingGroups:
        """See EmbeddedBroker.groups."""
        return BlockingGroups(lambda: self._running().groups, self)

    @property
    def clock(self) -> BlockingClock:
        """The broker's time, deadlines included."""
        return BlockingClock(self._moved_clock, self)

    def log(self, topic: str) -> BlockingLog:
        """See EmbeddedBroker.log."""
        return BlockingLog(self._running().log(topic), self)

    def crash(self) -> None:
        """See EmbeddedBroker.crash."""
        self._call(self._running().crash)

    def restart(self) -> None:
        """See EmbeddedBroker.restart."""
        self._call(self._running().restart)

    def reset(self) -> None:
        """See EmbeddedBroker.reset."""
        self._call(self._running().reset)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """See EmbeddedBroker.snapshot."""
        self._call(self._running().snapshot, path)

    @contextmanager
    def fork(self) -> Iterator[BlockingBroker]:
        """See EmbeddedBroker.fork."""
        running = self._running()
        with directory_like(self.path) as directory:
            fork = self._call(running.forked_into, directory)
            with BlockingBroker.forked(fork) as broker:
                yield broker

    def node_down(self, node: int) -> None:
        """See EmbeddedBroker.node_down."""
        self._call(self._running().node_down, node)

    def node_up(self, node: int) -> None:
        """See EmbeddedBroker.node_up."""
        self._call(self._running().node_up, node)

    def move_leader(self, topic: str, partition: int, node: int) -> int:
        """See EmbeddedBroker.move_leader."""
        return self._call(self._running().move_leader, topic, partition, node)

    def move_coordinator(self, name: str, node: int) -> None:
        """See EmbeddedBroker.move_coordinator."""
        self._call_now(self._running().move_coordinator, name, node)

    def apply_retention(self) -> int:
        """See EmbeddedBroker.apply_retention."""
        return self._call(self._running().apply_retention)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """See EmbeddedBroker.create_topic."""
        self._call(self._running().create_topic, name, partitions, config)

    def delete_topic(self, name: str) -> None:
        """See EmbeddedBroker.delete_topic."""
        self._call(self._running().delete_topic, name)

    def alter_config(self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = ()) -> None:
        """See EmbeddedBroker.alter_config."""
        self._call(self._running().alter_config, name, changes, deletes)

    def create_partitions(self, name: str, total: int) -> None:
        """See EmbeddedBroker.create_partitions."""
        self._call(self._running().create_partitions, name, total)

    def delete_records(self, topic: str, before_offset: int = -1, *, partition: int = 0) -> int:
        """See EmbeddedBroker.delete_records."""
        running = self._running()
        return self._call(lambda: running.delete_records(topic, before_offset, partition=partition))

    def topics(self) -> list[str]:
        """See EmbeddedBroker.topics."""
        return self._call_now(self._running().topics)

    def describe_topic(self, name: str) -> TopicDescription:
        """See EmbeddedBroker.describe_topic."""
        return self._call_now(self._running().describe_topic, name)

    def append(
        self, topic: str, records: Bytes | Sequence[PlainRecord | bytes], *, partition: int = 0, acks: int = -1
    ) -> AppendResult:
        """See EmbeddedBroker.append."""
        broker = self._running()

        async def call() -> AppendResult:
            return await broker.append(topic, records, partition=partition, acks=acks)

        return self._call(call)

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, max_bytes: int = MIB, max_wait_s: float = 0.0
    ) -> list[Record]:
        """See EmbeddedBroker.fetch."""
        broker = self._running()

        async def call() -> list[Record]:
            return await broker.fetch(topic, offset, partition=partition, max_bytes=max_bytes, max_wait_s=max_wait_s)

        return self._call(call)

    def offset_for_time(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> TimestampAndOffset:
        """See EmbeddedBroker.offset_for_time."""
        broker = self._running()

        async def call() -> TimestampAndOffset:
            return await broker.offset_for_time(topic, timestamp_ms, partition=partition)

        return self._call(call)

    def offsets_for_times(self, questions: Sequence[tuple[TopicPartition, int]]) -> list[TimestampAndOffset | RequestError]:
        """See EmbeddedBroker.offsets_for_times."""
        return self._call(self._running().offsets_for_times, questions)
