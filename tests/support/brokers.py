"""Brokers without listeners for tests: a directory, a durability, a file system, and a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio
import trio.testing
from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Bytes, Record, TopicPartition
from triolog.server.broker import Broker, FetchPartition, open_broker_core
from triolog.server.config import Durability, LogConfig
from triolog.server.config.broker_config import BrokerConfig
from triolog.server.groups.values import GroupListing
from triolog.server.partitions.disk import WritesAtOnce
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.disk.filesystem import FileSystem

from tests.support.logs import START_MS, Clock

TOPIC: Final = "topic"
PARTITION: Final = TopicPartition(TOPIC, 0)
LARGE: Final = 2**31 - 1
PATIENCE_S: Final = 30.0
LOOKS_AT_ONCE: Final = 10
POLL_S: Final = 0.001


def broker_config(
    *directories: Path, durability: str = "os", topic: Mapping[str, str] | None = None, **keys: Any
) -> BrokerConfig:
    """A server on these directories, without a reserve; `topic` are defaults of all topics."""
    keys = {"disk_reserve_bytes": 0} | keys
    defaults = attrs.evolve(LogConfig(), durability=Durability.parse(durability)).overlay(topic or {})
    return BrokerConfig(data_dirs=tuple(str(path) for path in directories), topic_defaults=defaults, **keys)


@asynccontextmanager
async def running_broker(
    *directories: Path, fs: FileSystem | None = None, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Broker]:
    """A broker for the time of the block; settings as `broker_config` takes them."""
    async with open_broker_core(broker_config(*directories, **settings), fs=fs, now_ms=clock or Clock()) as broker:
        yield broker


@asynccontextmanager
async def one_partition(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker with the topic TOPIC of one partition; it is made when it is not there."""
    async with running_broker(directory, **settings) as broker:
        if TOPIC not in broker.topics.names():
            await broker.topics.create(TOPIC)
        yield broker


async def listings(broker: Broker, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
    """The groups of a broker, as ListGroups has them."""
    return await broker.in_steps(broker.groups.listing_steps(states, types))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so, as long as PATIENCE_S: for states that nobody announces.

    What is waited for needs the processor itself, mostly a thread of the disk, so a real clock is given a rest between looks.
    """
    is_real = not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    looks = 0
    with trio.fail_after(PATIENCE_S):
        while not condition():
            looks += 1
            if is_real and looks > LOOKS_AT_ONCE:
                await trio.sleep(POLL_S)
            else:
                await trio.lowlevel.checkpoint()


def with_quick_writes(broker: Broker) -> Broker:
    """The broker, whose small writes never seem slow: for tests that say what takes no thread."""
    broker.disk.at_once = WritesAtOnce(broker.disk.turns, clock=lambda: 0.0)
    return broker


def actor_of(broker: Broker, partition: TopicPartition = PARTITION) -> PartitionActor:
    """The owner of a partition's log. Raises what the broker would answer."""
    return broker._manager.topics.actor(partition)


async def values_from(
    broker: Broker, partition: TopicPartition = PARTITION, offset: int = 0, **waiting: Any
) -> list[bytes | None]:
    """Values of all readable records from `offset` on. Raises the partition's error."""
    return [record.value for record in await records_from(broker, partition, offset, **waiting)]


async def records_from(broker: Broker, partition: TopicPartition = PARTITION, offset: int = 0, **waiting: Any) -> list[Record]:
    return [
        record
        async for header, batch, _ in batches_from(broker, partition, offset, **waiting)
        for record in iter_records(batch, header)
        if record.offset >= offset
    ]


async def batches_from(
    broker: Broker, partition: TopicPartition, offset: int, **options: Any
) -> AsyncIterator[tuple[BatchHeader, Bytes, bool]]:
    """All readable batches from the one with `offset` on, and whether each is of a transaction that a reader of committed
    records leaves out. Options are the broker's. Raises the partition's error."""
    while True:
        [answer] = await broker.reader.fetch([FetchPartition(partition, offset, LARGE)], max_bytes=LARGE, **options)
        if answer.error is not None:
            raise answer.error
        assert answer.fetched is not None
        batches = list(iter_batches(answer.fetched.records))
        if not batches:
            return
        for header, batch in batches:
            is_aborted = not header.is_control and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in answer.fetched.aborted or ()
            )
            yield header, batch, is_aborted
        offset = batches[-1][0].next_offset


def value(text: str, timestamp: int = START_MS) -> list[tuple[int | None, bytes | None, bytes | None, tuple[()]]]:
    """One plain record."""
    return [(timestamp, None, text.encode(), ())]
