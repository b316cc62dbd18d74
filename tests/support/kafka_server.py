"""A broker with a Kafka listener in the test's own trio loop: what the connections share can be looked at and set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from triolog.protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from triolog.protocol.records.builder import build_batch
from triolog.server.broker import Broker
from triolog.server.config.broker_config import Address
from triolog.server.fake.kafka.watched import Watch
from triolog.server.listeners.connections.sockets import Admission, Listener
from triolog.server.listeners.kafka.calls import listener_of
from triolog.server.listeners.kafka.door import NO_TOPIC_ID, KafkaDoor

from tests.support.brokers import LARGE, running_broker
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS

LOCALHOST = Address("127.0.0.1", 0)
TOPIC = "topic"


@attrs.define(eq=False)
class KafkaServer:
    """Everything of a running listener. Owner: the test."""

    broker: Broker
    door: KafkaDoor
    listener: Listener
    admission: Admission
    address: Address
    nursery: trio.Nursery

    def connected(self, **options: Any) -> Any:
        """A connection for the time of a block."""
        return connected(self.address, **options)

    def topic_id(self, name: str = TOPIC) -> bytes:
        return self.broker.topics.metadata(name).topic_id

    def sessions(self) -> list[Any]:
        """Return the sessions of the connections that are open."""
        return [served.serve.__self__ for served in self.listener._served]  # type: ignore[attr-defined]


@asynccontextmanager
async def kafka_server(
    path: Path, *, door: dict[str, Any] | None = None, watch: Watch | None = None, **settings: Any
) -> AsyncIterator[KafkaServer]:
    """A server for the time of the block that speaks all APIs; `door` has what `KafkaDoor` takes, settings are
    `running_broker`'s."""
    async with running_broker(path, **settings) as broker, trio.open_nursery() as nursery:
        shared = KafkaDoor(broker, **(door or {}))
        admission = Admission.of(broker.config, quotas=broker.security.quotas)
        listener = listener_of(shared, LOCALHOST, admission, watch)
        address = await nursery.start(listener.run)
        yield KafkaServer(broker, shared, listener, admission, address, nursery)
        nursery.cancel_scope.cancel()


def batch(*values: str | bytes | None, timestamp: int = START_MS, **options: Any) -> bytes:
    """A record batch of values without keys."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return build_batch([(timestamp, None, value, ()) for value in encoded], **options)


def produce_request(
    records: bytes | None,
    *,
    topic: str = TOPIC,
    topic_id: bytes = NO_TOPIC_ID,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One partition's records; a topic is named by name and by id, of which a version sends one."""
    part = ProducePartition(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceTopic(name=topic, topic_id=topic_id, partition_data=[part])],
    )


def fetch_partition(offset: int = 0, *, partition: int = 0, max_bytes: int = LARGE, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def fetch_request(
    *partitions: FetchPartition, topic: str = TOPIC, topic_id: bytes = NO_TOPIC_ID, **fields: Any
) -> FetchRequest:
    """A fetch of partitions of one topic; it does not wait unless it is told to."""
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))] if partitions else []
    return fetch_of(topics, **fields)


def fetch_of(topics: Sequence[Any], **fields: Any) -> FetchRequest:
    return ask("Fetch", topics=list(topics), **{"min_bytes": 1, **fields})


async def produced(client: KafkaStream, records: bytes, **options: Any) -> int:
    """Produce to a partition and answer the base offset; there may be no error."""
    answer = await client.call(produce_request(records, **options), 9)
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == 0, partition
    offset: int = partition.base_offset
    return offset
