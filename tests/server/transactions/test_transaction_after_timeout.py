"""A producer whose transaction the server has aborted can abort, too, and continue; a lost answer can be requested again.

Kafka 4.3 does the same since KIP-890: the abort raises the epoch as the producer's own EndTxn would.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.internal_topic import store
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.transactions.transaction_states import LAST_CLIENT_EPOCH, prepared

from tests.server.listeners.test_turns import short_turns
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TIMEOUT_MS, TransactionalProducer, committed_values, is_stable

Abort = Callable[[Broker], Awaitable[None]]


@pytest.fixture
async def broker(tmp_path: Path, fs: GateFileSystem) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        yield broker


def state_of(broker: Broker, name: str = "mover") -> TransactionLogValue:
    value = broker.transactions.ids.owners[name].value
    assert value is not None
    return value


async def time_out(broker: Broker) -> None:
    broker.transactions.ids.owners["mover"].deadline = 0.0
    await broker.transactions.finish_overdue()


async def abort_by_hand(broker: Broker) -> None:
    await broker.transactions.abort("mover")


ABORTS: Final = pytest.mark.parametrize("abort", [time_out, abort_by_hand])


async def start_at(broker: Broker, epoch: int) -> TransactionalProducer:
    producer = await TransactionalProducer.start(broker)
    broker.transactions.ids.owners["mover"].value = attrs.evolve(state_of(broker), producer_epoch=epoch)
    return attrs.evolve(producer, producer_epoch=epoch)


async def init_again(producer: TransactionalProducer) -> tuple[int, int]:
    return await producer.broker.producers.init("mover", TIMEOUT_MS, (producer.producer_id, producer.producer_epoch))


async def code_of(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(RequestError) as raised:
        await call
    return raised.value.code


async def continue_as(producer: TransactionalProducer, identity: tuple[int, int]) -> None:
    new = attrs.evolve(producer, producer_id=identity[0], producer_epoch=identity[1])
    new.sequences.clear()
    await new.produce(PARTITION, "next")
    await producer.broker.transactions.end(*new.identity, commit=True, client_version=2)
    assert await committed_values(producer.broker, PARTITION) == ["next"]


@ABORTS
@pytest.mark.parametrize("epoch", [0, 7, LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH])
async def test_producer_aborts_what_the_server_has_aborted_and_continues(broker: Broker, abort: Abort, epoch: int) -> None:
    producer = await start_at(broker, epoch)
    await producer.produce(PARTITION, "late")
    await abort(broker)
    assert state_of(broker).state is TransactionState.COMPLETE_ABORT
    assert await code_of(producer.produce(PARTITION, "later")) is ErrorCode.PRODUCER_FENCED
    end = broker.transactions.end
    assert await code_of(end(*producer.identity, commit=True, client_version=2)) is ErrorCode.INVALID_TXN_STATE
    identity = await end(*producer.identity, commit=False, client_version=2)
    assert await end(*producer.identity, commit=False, client_version=2) == identity, "again: the same"
    if epoch == LAST_CLIENT_EPOCH:
        assert identity[0] != producer.producer_id
    else:
        assert identity == (producer.producer_id, epoch + 1)
    await continue_as(producer, identity)


@ABORTS
@pytest.mark.parametrize("epoch", [0, LAST_CLIENT_EPOCH])
async def test_producer_starts_again_under_its_id_and_continues(broker: Broker, abort: Abort, epoch: int) -> None:
    producer = await start_at(broker, epoch)
    await producer.produce(PARTITION, "late")
    await abort(broker)
    assert await code_of(producer.commit()) is ErrorCode.PRODUCER_FENCED, "EndTxn before version 5"
    identity = await init_again(producer)
    assert await init_again(producer) == identity
    assert identity == (state_of(broker).producer_id, 0 if epoch == LAST_CLIENT_EPOCH else epoch + 1)
    await continue_as(producer, identity)


async def test_new_instance_after_a_timeout_fences_the_old_one(broker: Broker) -> None:
    old = await TransactionalProducer.start(broker)
    await old.produce(PARTITION, "late")
    await time_out(broker)
    new = await TransactionalProducer.start(broker)
    for call in (init_again(old), broker.transactions.end(*old.identity, commit=False, client_version=2)):
        assert await code_of(call) is ErrorCode.PRODUCER_FENCED
    await continue_as(new, (new.producer_id, new.producer_epoch))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("epoch", [7, LAST_CLIENT_EPOCH])
@pytest.mark.parametrize("is_open", [False, True])
async def test_lost_answer_to_a_start_is_given_again(tmp_path: Path, epoch: int, is_restarted: bool, is_open: bool) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 2)
        producer = await start_at(broker, epoch)
        if is_open:
            await producer.produce(PARTITION, "open")
        first = await init_again(producer)
        assert (first[0] == producer.producer_id) is (epoch != LAST_CLIENT_EPOCH)
        assert await init_again(producer) == first
        if not is_restarted:
            await continue_as(producer, first)
    if is_restarted:
        async with running_broker(tmp_path) as broker:
            producer = attrs.evolve(producer, broker=broker)
            assert await init_again(producer) == first
            await continue_as(producer, first)


@pytest.mark.parametrize("epoch", [7, LAST_CLIENT_EPOCH])
@pytest.mark.parametrize("by_end", [False, True])
async def test_identity_of_two_steps_ago_is_fenced_and_the_living_producer_is_not(
    broker: Broker, epoch: int, by_end: bool
) -> None:
    old = await start_at(broker, epoch)
    if by_end:
        await old.produce(PARTITION, "one")
        identity = await broker.transactions.end(*old.identity, commit=True, client_version=2)
    else:
        identity = await init_again(old)
    living = attrs.evolve(old, producer_id=identity[0], producer_epoch=identity[1])
    living.sequences.clear()
    await living.produce(PARTITION, "two")
    assert await code_of(init_again(old)) is ErrorCode.PRODUCER_FENCED, "while the next transaction is open"
    await broker.transactions.end(*living.identity, commit=True, client_version=2)
    assert await code_of(init_again(old)) is ErrorCode.PRODUCER_FENCED, "after it"
    assert (await committed_values(broker, PARTITION))[-1] == "two"


async def open_at(broker: Broker, epoch: int, name: str = "mover") -> TransactionalProducer:
    """Start a producer at an epoch, with an open transaction that is overdue."""
    producer = await TransactionalProducer.start(broker, name, timeout_ms=1000)
    owner = broker.transactions.ids.owners[name]
    assert owner.value is not None
    owner.value = attrs.evolve(owner.value, producer_epoch=epoch)
    producer.producer_epoch = epoch
    await producer.produce(PARTITION, name)
    owner.deadline = 0.0
    return producer


async def test_epoch_that_fences_belongs_to_no_producer(broker: Broker) -> None:
    last = await open_at(broker, LAST_CLIENT_EPOCH)
    await broker.transactions.finish_overdue()
    assert state_of(broker).state is TransactionState.COMPLETE_ABORT
    guess = attrs.evolve(last, producer_epoch=state_of(broker).producer_epoch)
    for producer in (last, guess):
        with pytest.raises(RequestError) as raised:
            await producer.produce(PARTITION, "zombie")
        assert raised.value.code is ErrorCode.PRODUCER_FENCED
    new = await TransactionalProducer.start(broker)
    assert new.producer_id != last.producer_id
    await new.produce(PARTITION, "new")
    await new.commit()
    assert await committed_values(broker, PARTITION) == ["new"]


def test_transaction_that_an_older_server_opened_with_the_last_epoch_can_be_aborted() -> None:
    value = TransactionLogValue(
        producer_id=7, producer_epoch=LAST_CLIENT_EPOCH + 1, timeout_ms=1, last_update_ms=1, state=TransactionState.ONGOING
    )
    assert prepared(value, commit=False, now_ms=2, fence=True).producer_epoch == LAST_CLIENT_EPOCH + 1


async def test_error_about_one_id_leaves_the_other_ids_alone(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    await open_at(broker, 0, "broken")
    await open_at(broker, 0, "whole")
    broken = broker.transactions.ids.owners["broken"]
    assert broken.value is not None
    whole, broken.value = broken.value, attrs.evolve(broken.value, partitions=None)  # a state that no step expects
    await broker.transactions.finish_overdue()
    assert state_of(broker, "whole").state is TransactionState.COMPLETE_ABORT
    assert "task=transaction-timeout name=broken" in caplog.text
    broken.value, broken.deadline = whole, 0.0
    await broker.transactions.finish_overdue()
    assert state_of(broker, "broken").state is TransactionState.COMPLETE_ABORT


OTHER: Final = TopicPartition(TOPIC, 1)
SLOW_LOG: Final = "topic-0/00000000000000000000.log"
LIMIT_S: Final = 900
IDS: Final = 300
HANGING: Final = 150


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
