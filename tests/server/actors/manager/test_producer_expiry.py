"""Producers that are silent for long enough are forgotten, and there is a limit to those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import RequestError
from triolog.server.actors.manager.producer_expiry import expire_producers

from tests.support.brokers import PARTITION, actor_of, one_partition, until
from tests.support.logs import START_MS, Clock, batch
from tests.support.transactions import TransactionalProducer


async def test_silent_producers_are_forgotten(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka: UnifiedLogTest.testPeriodicProducerIdExpiration (without being asked)."""
    monkeypatch.setattr("triolog.server.actors.manager.maintenance.PRODUCER_CHECK_S", 0.01)
    async with one_partition(tmp_path, clock=clock, producer_id_expiration_ms=1000) as broker:
        log = actor_of(broker).log
        await broker.writer.append(PARTITION, batch(START_MS, producer_id=5, producer_epoch=0, base_sequence=0))
        assert list(log.producers.entries) == [5]
        clock.advance(1000)
        await until(lambda: not log.producers.entries)


async def test_a_producer_beyond_the_limit_is_refused_until_an_older_one_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    limits = {"max_producers_per_partition": 2, "producer_id_expiration_ms": 1000}

    def of(producer_id: int, sequence: int = 0) -> bytes:
        return batch(START_MS, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    async with one_partition(tmp_path, clock=clock, **limits) as broker:
        await broker.writer.append(PARTITION, of(5))
        await broker.writer.append(PARTITION, of(6))
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*max_producers_per_partition=2"):
            await broker.writer.append(PARTITION, of(7))
        assert (await broker.writer.append(PARTITION, of(5))).base_offset == 0
        assert (await broker.writer.append(PARTITION, of(6, 1))).base_offset == 2
        assert (await broker.writer.append(PARTITION, batch(START_MS))).base_offset == 3
    async with one_partition(tmp_path, clock=clock, **limits) as broker:
        with pytest.raises(RequestError, match="producer 7 is new and 2 are remembered"):
            await broker.writer.append(PARTITION, of(7))
        clock.advance(999)
        await expire_producers(broker._manager.topics, clock, broker.config)
        with pytest.raises(RequestError, match="producer 7 is new"):
            await broker.writer.append(PARTITION, of(7))
        clock.advance(1)
        await expire_producers(broker._manager.topics, clock, broker.config)
        assert (await broker.writer.append(PARTITION, of(7))).base_offset == 4


async def test_a_limit_that_is_reached_ends_no_transaction(tmp_path: Path) -> None:
    async with one_partition(tmp_path, max_producers_per_partition=1) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.produce(PARTITION, "a")
        await producer.commit_offset("group", PARTITION, 1)
        other = await TransactionalProducer.start(broker, "other")
        with pytest.raises(RequestError, match="max_producers_per_partition=1"):
            await other.produce(PARTITION, "b")
        with pytest.raises(RequestError, match=r"__consumer_offsets-0.*max_producers_per_partition=1"):
            await other.commit_offset("group", PARTITION, 2)
        await other.abort()
        await producer.commit()
        assert await broker.offsets.fetch("group", [PARTITION]) == [(PARTITION, 1, "")]
