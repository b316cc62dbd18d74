"""Several nodes: one that is asked for what another one leads or coordinates says so as Kafka does. Several nodes: replicas
are those that were asked for, and what tools add up over all nodes is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.records import FetchTopic
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import EmbeddedBroker

from tests.support.kafka_admin import by_hand, create_topics, new_topic
from tests.support.kafka_server import TOPIC, batch, fetch_of, fetch_partition, produce_request
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask
from tests.support.share_members import ACCEPT, ShareMember

EPOCH: Final = 2
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
Cluster = tuple[EmbeddedBroker, dict[int, KafkaStream]]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two nodes, of which the second leads the one partition, in leader epoch 2."""
    async with triolog.open(kafka=Address("127.0.0.1", 0), nodes=2, topics={TOPIC: 1}) as broker, AsyncExitStack() as stack:
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


async def test_partitions_that_cannot_join_a_transaction_are_refused_before_its_coordinator_is_found(cluster: Cluster) -> None:
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


NODES = (1, 2, 3)
Clients = dict[int, KafkaStream]


@asynccontextmanager
async def three_nodes(**options: Any) -> AsyncIterator[tuple[EmbeddedBroker, Clients]]:
    async with triolog.open(kafka=Address("127.0.0.1", 0), nodes=3, **options) as broker, AsyncExitStack() as stack:
        addresses = broker.life.nodes.addresses
        yield broker, {n: await stack.enter_async_context(connected(addresses[n][1:])) for n in NODES}


async def replicas(client: KafkaStream, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
    """Partition -> leader, replicas, in-sync replicas."""
    request = ask("Metadata", topics=[{"name": topic}], allow_auto_topic_creation=False)
    [found] = (await client.call(request, 9)).topics
    return {each.partition_index: (each.leader_id, each.replica_nodes, each.isr_nodes) for each in found.partitions}


async def create(client: KafkaStream, topic: Any, version: int = 7) -> Any:
    [answer] = (await client.call(create_topics(topic), version)).topics
    assert answer.error_code == 0, answer.error_message
    return answer


@pytest.mark.parametrize("factor", [1, 2, 3])
async def test_a_topic_has_as_many_replicas_as_it_was_created_with(factor: int) -> None:
    async with three_nodes() as (broker, clients):
        assert (await create(clients[2], new_topic("t", 6, factor))).replication_factor == factor
        found = await replicas(clients[1], "t")
        assert Counter(leader for leader, _, _ in found.values()) == {1: 2, 2: 2, 3: 2}
        assert all(leader == told[0] and told == in_sync for leader, told, in_sync in found.values())
        assert {len(set(told)) for _, told, _ in found.values()} == {factor}
        down = found[0][0]
        await broker.node_down(down)
        leader, told, in_sync = (await replicas(clients[down % 3 + 1], "t"))[0]
        assert leader != down
        assert (leader in told, down in in_sync) == (True, False)
        await broker.node_up(down)
        assert await replicas(clients[down % 3 + 1], "t") == found


async def test_replicas_that_are_named_one_by_one_are_kept_until_the_topic_is_deleted() -> None:
    async with three_nodes() as (broker, clients):
        answer = await create(clients[1], by_hand("t", [3, 1], [2, 3]))
        assert answer.replication_factor == 2
        more = ask("CreatePartitions", topics=[{"name": "t", "count": 3, "assignments": [{"broker_ids": [1, 2]}]}])
        assert (await clients[1].call(more, 1)).results[0].error_code == 0
        assert await replicas(clients[2], "t") == {0: (3, [3, 1], [3, 1]), 1: (2, [2, 3], [2, 3]), 2: (1, [1, 2], [1, 2])}
        await broker.move_leader("t", 0, 2)
        assert (await replicas(clients[2], "t"))[0] == (2, [2, 3], [2, 3]), "as a reassignment would"
        await clients[1].call(ask("DeleteTopics", topic_names=["t"]), 3)
        await broker.create_topic("t")
        assert len((await replicas(clients[2], "t"))[0][1]) == 3


async def test_each_node_describes_the_logs_that_have_a_replica_on_it() -> None:
    async with three_nodes() as (_, clients):
        await create(clients[1], new_topic("once", 4, 1))
        await create(clients[1], new_topic("twice", 4, 2))
        seen: Counter[TopicPartition] = Counter()
        for node, client in clients.items():
            [result] = (await client.call(ask("DescribeLogDirs", topics=None), 4)).results
            for topic in result.topics:
                for each in topic.partitions:
                    told = (await replicas(client, topic.name))[each.partition_index][1]
                    assert node in told
                    seen[TopicPartition(topic.name, each.partition_index)] += 1
        assert seen == {TopicPartition(name, n): count for name, count in (("once", 1), ("twice", 2)) for n in range(4)}


async def test_groups_and_transactions_are_listed_by_their_coordinators_only() -> None:
    async with three_nodes(topics=["t"]) as (broker, clients):
        names = [f"g{number}" for number in range(6)]
        for name in names:
            node = broker.life.nodes.coordinator_of(name)
            request = ask("InitProducerId", transactional_id=name, transaction_timeout_ms=60_000)
            assert (await clients[node].call(request, 4)).error_code == 0
            await broker.groups.commit(name, {TopicPartition("t", 0): 0})
        groups = {node: (await client.call(ask("ListGroups"), 5)).groups for node, client in clients.items()}
        ids = {node: (await each.call(ask("ListTransactions"), 0)).transaction_states for node, each in clients.items()}
        for node in NODES:
            own = [name for name in names if broker.life.nodes.coordinator_of(name) == node]
            assert sorted(each.group_id for each in groups[node]) == own
            assert sorted(each.transactional_id for each in ids[node]) == own


async def test_a_follower_says_that_it_does_not_lead() -> None:
    async with three_nodes(topics=["t"]) as (broker, clients):
        follower = broker.life.nodes.leader_of("t", 0) % 3 + 1
        request = ask("DescribeProducers", topics=[{"name": "t", "partition_indexes": [0]}])
        [partition] = (await clients[follower].call(request, 0)).topics[0].partitions
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "does not lead" in partition.error_message
