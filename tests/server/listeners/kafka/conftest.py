"""A server for each test, in memory where the system has such a place, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.share_members import ShareMember


@pytest.fixture
def settings() -> dict[str, Any]:
    """Of the server; a file or a test may have its own."""
    return {}


@pytest.fixture
async def kafka(fast_path: Path, settings: dict[str, Any]) -> AsyncIterator[KafkaServer]:
    """A listener of a broker that has the topic TOPIC of three partitions."""
    async with kafka_server(fast_path, **settings) as server:
        await server.broker.topics.create(TOPIC, 3)
        yield server


@pytest.fixture
async def client(kafka: KafkaServer) -> AsyncIterator[KafkaStream]:
    async with kafka.connected() as connected:
        yield connected


@pytest.fixture
def member(kafka: KafkaServer, client: KafkaStream) -> ShareMember:
    """Of a share group, which has not asked for anything."""
    return ShareMember(client, kafka.topic_id())
