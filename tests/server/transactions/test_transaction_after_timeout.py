"""A producer whose transaction the server has aborted can abort, too, and continue; a lost answer can be requested again.

Kafka 4.3 does the same since KIP-890: the abort raises the epoch as the producer's own EndTxn would.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.broker import Broker
from triolog.server.transactions.transaction_states import LAST_CLIENT_EPOCH, prepared

from tests.support.brokers import PARTITION, TOPIC, running_broker
from tests.support.transactions import TIMEOUT_MS, TransactionalProducer, committed_values

Abort = Callable[[Broker], Awaitable[None]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as broker:
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
