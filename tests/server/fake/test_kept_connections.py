"""Kafka clients stay connected over a reset."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.records import FetchTopic
from triolog.server.embedded import MEMORY, Address, open_broker

from tests.support.kafka_server import batch, fetch_of, fetch_partition, produce_request
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask

ANY_PORT = Address("127.0.0.1", 0)
T = "orders"


@pytest.mark.parametrize("nodes", [1, 2])
async def test_connections_of_kafka_clients_go_on_over_a_reset(nodes: int) -> None:
    async with open_broker(MEMORY, kafka=ANY_PORT, nodes=nodes, topics={T: 1}) as broker, AsyncExitStack() as stack:
        assert broker.kafka is not None
        addresses = [node[1:] for node in broker.life.nodes.addresses.values()] if broker.life.nodes else [broker.kafka]
        clients = [await stack.enter_async_context(connected(each)) for each in addresses]
        metadata = ask("Metadata", topics=[{"name": T}], allow_auto_topic_creation=False)
        ids = {broker.core.topics.id_of(T)}
        for _ in range(3):
            for client in clients:
                assert {each.topic_id for each in (await client.call(metadata, 12)).topics} == ids
            assert broker.life.protocols["kafka"].connections == len(clients)
            await broker.append(T, [b"gone"])
            await broker.reset()
            ids = {broker.core.topics.id_of(T)}
            assert await broker.fetch(T) == []


async def test_requests_that_wait_are_answered_by_a_reset_and_their_connections_go_on() -> None:
    async with open_broker(MEMORY, kafka=ANY_PORT, topics={T: 1}) as broker:
        assert broker.kafka is not None
        async with connected(broker.kafka) as one, connected(broker.kafka) as two, connected(broker.kafka) as three:
            topic = FetchTopic(topic_id=broker.core.topics.id_of(T), partitions=[fetch_partition()])
            await one.send(fetch_of([topic], max_wait_ms=60_000, session_epoch=0), 13)
            broker.faults.add(api="Produce", hold=True)
            await two.send(produce_request(batch("held"), topic=T), 9)
            broker.faults.add(api="Heartbeat", delay_ms=60_000)
            await three.send(ask("Heartbeat", group_id="g", generation_id=1, member_id="m"), 3)
            await broker.requests.wait_for("Heartbeat", answered=False)
            await broker.requests.wait_for("Fetch", answered=False)
            await broker.requests.wait_for("Produce", answered=False)
            await broker.reset()
            assert (await one.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            [answer] = (await two.receive()).responses
            assert answer.partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await three.receive()).error_code == ErrorCode.NOT_COORDINATOR
            beat = ask("Heartbeat", group_id="g", generation_id=1, member_id="m")
            for client in (one, two, three):
                assert (await client.call(beat, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await broker.fetch(T) == []


async def test_a_connection_with_half_a_request_ends_with_a_reset() -> None:
    async with open_broker(MEMORY, kafka=ANY_PORT) as broker:
        assert broker.kafka is not None
        async with await trio.open_tcp_stream(*broker.kafka) as client:
            await client.send_all(b"\0\0\0\x10half")
            while not broker.life.protocols["kafka"].received_bytes:
                await trio.lowlevel.checkpoint()
            await broker.reset()
            assert await KafkaStream(client).is_closed_by_server()
