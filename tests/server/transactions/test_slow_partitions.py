"""Transactions that the coordinators end by themselves do not wait for each other, nor does anybody wait for a look at many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import MockClock
from triolog.protocol.coordinator.transactions import TransactionState
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.server.listeners.test_turns import short_turns
from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker, until
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer, is_stable

OTHER: Final = TopicPartition(TOPIC, 1)
SLOW_LOG: Final = "topic-0/00000000000000000000.log"
LIMIT_S: Final = 900
IDS: Final = 300
HANGING: Final = 150


@pytest.fixture
async def broker(tmp_path: Path, fs: GateFileSystem) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        yield broker


async def append_without_joining(broker: Broker, partition: TopicPartition, producer_id: int) -> None:
    records = [(START_MS, None, b"lost", ())]
    batch = build_batch(records, producer_id=producer_id, producer_epoch=4, base_sequence=0, is_transactional=True)
    await broker.writer.append(partition, batch)


async def test_a_partition_that_takes_no_marker_holds_up_no_other_transaction(
    broker: Broker, fs: GateFileSystem, mock_clock: MockClock
) -> None:
    for name, partition in (("slow", PARTITION), ("quick", OTHER)):
        producer = await TransactionalProducer.start(broker, name, timeout_ms=5000)
        await producer.produce(partition, name)
    quick = broker.transactions.ids.owners["quick"]
    with fs.hold("write", SLOW_LOG):
        mock_clock.jump(10)
        await until(lambda: quick.value is not None and quick.value.state is TransactionState.COMPLETE_ABORT)
        assert not is_stable(broker, PARTITION)
        again = await TransactionalProducer.start(broker, "again", timeout_ms=5000)
        await again.produce(OTHER, "again")
        mock_clock.jump(10)
        await until(lambda: is_stable(broker, OTHER))
    await until(lambda: is_stable(broker, PARTITION))


async def test_a_partition_that_takes_no_marker_holds_up_no_other_hanging_transaction(
    broker: Broker, fs: GateFileSystem, mock_clock: MockClock
) -> None:
    for partition in (PARTITION, OTHER):
        await append_without_joining(broker, partition, 77)
    await broker._coordinators.hanging.abort_overdue()
    with fs.hold("write", SLOW_LOG):
        mock_clock.jump(LIMIT_S + 60)
        await until(lambda: is_stable(broker, OTHER))
        assert not is_stable(broker, PARTITION)
    await until(lambda: is_stable(broker, PARTITION))


async def test_a_look_for_hanging_transactions_takes_no_long_turn(broker: Broker) -> None:
    broker._coordinators._scope.cancel()
    for number in range(IDS):
        producer = await TransactionalProducer.start(broker, f"id-{number}")
        await broker.transactions.add_partitions(*producer.identity, [OTHER])
    for number in range(HANGING):
        await append_without_joining(broker, PARTITION, 2**50 + number)
    with short_turns():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker._coordinators.hanging.abort_overdue)
            nursery.start_soon(broker.transactions.finish_overdue)
    assert actor_of(broker).log.producers.first_unstable_offset == 0
