"""Transactions at the last epoch of a producer id, and errors about one transactional id, never end the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
from triolog.protocol.coordinator.transactions import TransactionLogValue, TransactionState
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.broker import Broker
from triolog.server.transactions.transaction_states import LAST_CLIENT_EPOCH, prepared

from tests.support.brokers import PARTITION, TOPIC, running_broker
from tests.support.transactions import TransactionalProducer, committed_values

TIMEOUT_MS = 1000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 2)
        yield broker


async def open_at(broker: Broker, epoch: int, name: str = "mover") -> TransactionalProducer:
    """Start a producer at an epoch, with an open transaction that is overdue."""
    producer = await TransactionalProducer.start(broker, name, timeout_ms=TIMEOUT_MS)
    owner = broker.transactions.ids.owners[name]
    assert owner.value is not None
    owner.value = attrs.evolve(owner.value, producer_epoch=epoch)
    producer.producer_epoch = epoch
    await producer.produce(PARTITION, name)
    owner.deadline = 0.0
    return producer


def state_of(broker: Broker, name: str = "mover") -> TransactionLogValue:
    value = broker.transactions.ids.owners[name].value
    assert value is not None
    return value


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
