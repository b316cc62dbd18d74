"""Producers that are silent for long enough are forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.actors.producer_expiry import expire_producers
from triolog.server.broker_config import BrokerConfig

from tests.support.brokers import PARTITION, actor_of, one_partition, until
from tests.support.logs import START_MS, Clock, batch


async def test_a_producer_is_forgotten_once_it_is_silent_for_the_configured_time(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testPeriodicProducerIdExpiration."""
    clock = Clock()
    config = BrokerConfig(data_dirs=("unused",), producer_id_expiration_ms=1000)
    async with one_partition(tmp_path, clock=clock) as broker:
        topics, log = broker._manager.topics, actor_of(broker).log
        records = batch(START_MS, producer_id=5, producer_epoch=0, base_sequence=0)
        await broker.append(PARTITION, records)
        clock.advance(999)
        await expire_producers(topics, clock, config)
        assert list(log.producers.entries) == [5]
        clock.advance(1)
        await expire_producers(topics, clock, config)
        assert list(log.producers.entries) == []


async def test_silent_producers_are_looked_for_while_the_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka: UnifiedLogTest.testPeriodicProducerIdExpiration (without being asked)."""
    monkeypatch.setattr("triolog.server.actors.maintenance.PRODUCER_CHECK_S", 0.01)
    clock = Clock()
    async with one_partition(tmp_path, clock=clock, producer_id_expiration_ms=1000) as broker:
        log = actor_of(broker).log
        await broker.append(PARTITION, batch(START_MS, producer_id=5, producer_epoch=0, base_sequence=0))
        assert list(log.producers.entries) == [5]
        clock.advance(1000)
        await until(lambda: not log.producers.entries)
