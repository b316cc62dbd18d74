"""Transactions that the coordinators end by themselves do not wait for each other; those without an owner are watched, then
aborted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.coordinator.transactions import TransactionState
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.internal_topic import store
from triolog.server.storage.log.prepare import prepare_marker

from tests.server.listeners.test_turns import short_turns
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TransactionalProducer, committed_values, is_stable

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


async def append_without_joining(broker: Broker, partition: TopicPartition = PARTITION, producer_id: int = 77) -> None:
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
        await append_without_joining(broker, partition)
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


async def append_unwatched(broker: Broker, producer_id: int = 77) -> None:
    """As a producer whose coordinator's log was left behind. From then on the test says when it is looked."""
    broker._coordinators._scope.cancel()
    await append_without_joining(broker, producer_id=producer_id)


async def abort_overdue(broker: Broker) -> int:
    return await broker._coordinators.hanging.abort_overdue()


async def test_a_transaction_without_owner_is_aborted_in_the_end(tmp_path: Path, clock: Clock, mock_clock: MockClock) -> None:
    async with one_partition(tmp_path, clock=clock) as broker:
        await append_unwatched(broker)
        await broker.writer.append(PARTITION, [(START_MS, None, b"behind", ())])
        assert await abort_overdue(broker) == 0
        mock_clock.jump(LIMIT_S - 1)
        clock.advance(365 * 86_400_000)
        assert await abort_overdue(broker) == 0
        assert await committed_values(broker, PARTITION) == []
        mock_clock.jump(1)
        assert await abort_overdue(broker) == 1
        assert is_stable(broker, PARTITION)
        assert await committed_values(broker, PARTITION) == ["behind"]
        assert await abort_overdue(broker) == 0


async def test_a_transaction_that_the_coordinator_knows_is_left_to_it(broker: Broker, mock_clock: MockClock) -> None:
    producer = await TransactionalProducer.start(broker, timeout_ms=900_000)
    await producer.produce(PARTITION, "a")
    assert not await broker._coordinators.hanging._hanging_on(actor_of(broker))
    assert broker.transactions.ids.may_be_open(producer.producer_id, PARTITION)
    assert not broker.transactions.ids.may_be_open(producer.producer_id, TopicPartition("other", 0))
    await producer.commit()
    assert not broker.transactions.ids.may_be_open(producer.producer_id, PARTITION)


async def test_another_transaction_of_the_producer_is_watched_anew(broker: Broker, mock_clock: MockClock) -> None:
    await append_unwatched(broker)
    assert await abort_overdue(broker) == 0
    mock_clock.jump(LIMIT_S / 2)
    await append_unwatched(broker, producer_id=78)
    await abort_overdue(broker)
    mock_clock.jump(LIMIT_S / 2)
    assert await abort_overdue(broker) == 1
    assert actor_of(broker).log.producers.first_unstable_offset == 1


@pytest.mark.parametrize("times", [1, 2])
async def test_a_failed_abort_is_tried_again(broker: Broker, fs: GateFileSystem, mock_clock: MockClock, times: int) -> None:
    await append_unwatched(broker)
    await abort_overdue(broker)
    mock_clock.jump(LIMIT_S)
    fs.fail("write", "topic-0/00000000000000000000.log", times=times)
    assert [await abort_overdue(broker) for _ in range(times + 1)] == [0] * times + [1]


async def test_a_transaction_that_began_while_the_abort_waited_stays_open(
    broker: Broker, fs: GateFileSystem, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """With the same epoch, behind the end of the one that was overdue."""
    await append_unwatched(broker)
    await abort_overdue(broker)
    mock_clock.jump(LIMIT_S)
    actor = actor_of(broker)
    ended = prepare_marker(producer_id=77, producer_epoch=4, commit=True, coordinator_epoch=0, now_ms=START_MS)
    records = [(START_MS, None, b"begun", ())]
    batch = build_batch(records, producer_id=77, producer_epoch=4, base_sequence=1, is_transactional=True)
    async with held(fs.hold("write", "topic-0/00000000000000000000.log"), store, actor, ended, lambda _: None) as nursery:
        nursery.start_soon(broker.writer.append, PARTITION, batch)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(abort_overdue, broker)
        await trio.testing.wait_all_tasks_blocked()
    assert actor.log.producers.ongoing == {77: 2}
    assert "producer 77" not in caplog.text
