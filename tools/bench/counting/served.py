"""A server whose requests are counted: what `triolog serve` runs, broker and listeners, in memory with durability `os`, where
small writes are done on the spot. Everything that is asked for goes over the wire, in the highest version of each API.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from ....protocol.kafka.apis import APIS, ApiKey
from ....protocol.kafka.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ....protocol.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from ....protocol.schema import codec
from ....server.broker import open_broker_core
from ....server.config import Durability, LogConfig
from ....server.config.broker_config import Address, BrokerConfig
from ....server.listeners.opening import Addresses, Listeners
from ....server.partitions.disk import WritesAtOnce
from ..measuring.child import LoadFailedError
from ..measuring.wire import FIRST_TIMESTAMP, batch_of, packed, produce_frame, read_answer
from .rounds import Peer

IN_MEMORY: Final = "/dev/shm"
LOCALHOST: Final = Address("127.0.0.1", 0)
ONE: Final = "one"
WIDE: Final = "wide"
PARTITIONS: Final = 100
GROUP: Final = "group"
INSTANCE: Final = "instance"
VALUE_BYTES: Final = 100
BATCH_RECORDS: Final = 10
BATCHES: Final = 10
FILLED_AT_ONCE: Final = 20
"""Partitions."""
SESSION_TIMEOUT_MS: Final = 1_800_000
HELLO: Final = packed(1, "hello", {"client_id": "bench"})


@attrs.define(eq=False, repr=False)
class Served:
    """A running server and a connection of each protocol, to prepare what requests need. Owner: who counts."""

    addresses: Addresses
    kafka: Peer
    native: Peer

    async def ask_kafka(self, key: ApiKey, body: object) -> Any:
        return read_kafka_answer(key, await self.kafka.ask(kafka_frame(key, body)))

    async def ask_native(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
        return read_answer(await self.native.ask(packed(1, api, body)))[1]

    async def threads(self) -> int:
        """Return how often the server has given work to a thread."""
        answer = await self.ask_native("statistics", {})
        hops: int = answer["statistics"]["disk"]["hops"]
        return hops

    async def topic_id(self, topic: str) -> bytes:
        answer = await self.ask_kafka(ApiKey.METADATA, metadata_request(topic))
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id

    async def member(self) -> tuple[int, str]:
        """Join a group as its only member; return generation and member id."""
        joining = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id="",
            group_instance_id=INSTANCE,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await self.ask_kafka(ApiKey.JOIN_GROUP, joining)
        syncing = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=INSTANCE,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
        )
        await self.ask_kafka(ApiKey.SYNC_GROUP, syncing)
        return joined.generation_id, joined.member_id


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    """For the time of the block, with a record in topic ONE and BATCHES batches in each partition of WIDE."""
    parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="triolog-counts-", dir=parent) as directory:
        defaults = attrs.evolve(LogConfig(), durability=Durability.parse("os")).overlay({"retention.ms": "-1"})
        config = BrokerConfig(data_dirs=(directory,), topic_defaults=defaults, group_initial_rebalance_delay_ms=0)
        async with open_broker_core(config) as broker, trio.open_nursery() as nursery:
            broker.disk.at_once = WritesAtOnce(broker.disk.turns, clock=lambda: 0.0)
            addresses = await Listeners(broker).start(nursery, Addresses(LOCALHOST, LOCALHOST))
            assert addresses.kafka is not None
            assert addresses.native is not None
            with Peer(addresses.kafka) as kafka, Peer(addresses.native) as native:
                read_answer(await native.ask(HELLO))
                served = Served(addresses, kafka, native)
                await _fill(served)
                yield served
            nursery.cancel_scope.cancel()


async def _fill(served: Served) -> None:
    topics = [{"name": ONE, "partitions": 1, "config": {}}, {"name": WIDE, "partitions": PARTITIONS, "config": {}}]
    await served.ask_native("create_topics", {"topics": topics})
    await served.native.ask(produce_frame(1, ONE, 0, batch_of(1, VALUE_BYTES)))
    for number in range(BATCHES):
        batch = batch_of(BATCH_RECORDS, VALUE_BYTES, first_timestamp=FIRST_TIMESTAMP + number * BATCH_RECORDS)
        for start in range(0, PARTITIONS, FILLED_AT_ONCE):
            partitions = range(start, start + FILLED_AT_ONCE)
            entries = [{"topic": WIDE, "partition": partition, "records": batch} for partition in partitions]
            await served.ask_native("produce", {"acks": -1, "partitions": entries})


def metadata_request(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic, topic_id=bytes(16))],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


CORRELATION_ID: Final = 7
CLIENT_ID: Final = b"bench"
ANSWER_HEADER_BYTES: Final = 4


def kafka_frame(key: ApiKey, body: object) -> bytes:
    """Return a request as it goes over the wire."""
    api = APIS[key]
    flexible = api.is_flexible(api.highest)
    header = struct.pack(">hhih", key, api.highest, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID + b"\0" * flexible
    data = header + b"".join(codec.write(body, api.highest, flexible=flexible))
    return struct.pack(">i", len(data)) + data


def read_kafka_answer(key: ApiKey, frame: bytes) -> Any:
    """Return the body of an answer, without its length. Raises LoadFailedError when something in it failed."""
    api = APIS[key]
    flexible = api.is_flexible(api.highest)
    body, _ = codec.read(api.response, api.highest, memoryview(frame), ANSWER_HEADER_BYTES + flexible, flexible=flexible)
    check_codes(body)
    return body


def check_codes(body: Any) -> None:
    """Raise LoadFailedError for an error code anywhere."""
    if isinstance(body, list):
        for each in body:
            check_codes(each)
    elif attrs.has(type(body)):
        if getattr(body, "error_code", 0):
            raise LoadFailedError(f"the server returned {body}")
        for field in attrs.fields(type(body)):
            check_codes(getattr(body, field.name))
