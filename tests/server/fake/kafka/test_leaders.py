"""Several nodes: one that is asked for what another one leads or coordinates says so as Kafka does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.records import FetchTopic
from triolog.server.config.values import Address
from triolog.server.embedded import EmbeddedBroker, open_broker

from tests.support.kafka_asking import ask
from tests.support.kafka_server import TOPIC, batch, fetch_of, fetch_partition, produce_request
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.share_members import ACCEPT, ShareMember

EPOCH: Final = 2
NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
Cluster = tuple[EmbeddedBroker, dict[int, KafkaStream]]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two nodes, of which the second leads the one partition, in leader epoch 2."""
    async with (
        open_broker(kafka=Address("127.0.0.1", 0), nodes=2, topics={TOPIC: 1}) as broker,
        AsyncExitStack() as stack,
    ):
        await broker.move_leader(TOPIC, 0, 1)
        await broker.move_leader(TOPIC, 0, 2)
        addresses = broker.life.nodes.addresses
        yield broker, {n: await stack.enter_async_context(connected(addresses[n][1:])) for n in addresses}


def leader_in(answer: Any, broker: EmbeddedBroker) -> tuple[int, int]:
    """The leader that an answer names for its one partition, and the epoch; its address is beside it."""
    [topic] = answer.responses
    [partition] = getattr(topic, "partition_responses", None) or topic.partitions
    assert partition.error_code == NOT_LEADER
    told = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
    assert told == [broker.life.nodes.addresses[2]]
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


async def test_a_node_that_does_not_lead_names_the_leader_to_share_consumers(cluster: Cluster) -> None:
    broker, clients = cluster
    member = ShareMember(clients[1], broker.core.topics.id_of(TOPIC))
    assert leader_in(await member.ask(), broker) == (2, EPOCH)
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}]
    said = {"topic_id": member.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}
    assert leader_in(await member.acknowledge_all([said]), broker) == (2, EPOCH)


async def test_a_node_that_does_not_lead_names_the_leader_to_producers_and_consumers(cluster: Cluster) -> None:
    broker, clients = cluster
    assert leader_in(await clients[1].call(produce_request(batch("x")), 12), broker) == (2, EPOCH)
    topic = FetchTopic(topic_id=broker.core.topics.id_of(TOPIC), partitions=[fetch_partition()])
    assert leader_in(await clients[1].call(fetch_of([topic]), 16), broker) == (2, EPOCH)


async def test_partitions_that_cannot_join_a_transaction_are_refused_before_its_coordinator_is_looked_for(
    cluster: Cluster,
) -> None:
    """As Kafka's KafkaApis.handleAddPartitionsToTxnRequest: topics first, then the coordinator."""
    broker, clients = cluster
    broker.move_coordinator("t", 2)
    producer = {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0}

    async def codes(*topics: str) -> list[int]:
        asked = [{"name": name, "partitions": [0]} for name in topics]
        answer = await clients[1].call(ask("AddPartitionsToTxn", **producer, v3_and_below_topics=asked), 3)
        return [each.results_by_partition[0].partition_error_code for each in answer.results_by_topic_v3_and_below]

    unknown, rest = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert await codes(TOPIC, "unknown") == [rest, unknown]
    assert await codes(TOPIC) == [ErrorCode.NOT_COORDINATOR]
