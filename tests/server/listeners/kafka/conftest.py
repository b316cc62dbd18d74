"""A server for each test, in memory where the system has such a place, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A listener of a broker that has the topic TOPIC of three partitions."""
    async with kafka_server(fast_path) as server:
        await server.broker.topics.create(TOPIC, 3)
        yield server


@pytest.fixture
async def client(kafka: KafkaServer) -> AsyncIterator[KafkaStream]:
    async with kafka.connected() as connected:
        yield connected
