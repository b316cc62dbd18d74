"""ACLs over the wire, and that they are enforced: every API tells a client who may not what Kafka tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.kafka.authorization import OPERATIONS, AclOperation, AclPermission, PatternType, ResourceType, bit_field
from triolog.protocol.kafka.messages import transactions
from triolog.protocol.limits import INT32_MIN
from triolog.server.access.acls import Acl
from triolog.server.broker import Broker
from triolog.server.listeners.kafka.guard import BY_THEMSELVES, FREE, RULES

from tests.support.kafka_login import logged_in, server_with_users
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OPEN_FILTER: Final = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}


async def allow(broker: Broker, operation: AclOperation, kind: ResourceType = TOPIC, name: str = "topic") -> None:
    """To alice."""
    await broker.security.create_acls([Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW)])


def creation(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.PREFIXED,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
        **changes,
    }


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_made_described_and_deleted(tmp_path: Path, version: int) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        wrong = creation(resource_type=CLUSTER, resource_name="other")
        answer = await root.call(
            ask("CreateAcls", creations=[creation(), wrong, creation(operation=AclOperation.WRITE), creation(operation=77)]),
            version,
        )
        assert [result.error_code for result in answer.results] == [0, 42, 0, 42]
        assert "kafka-cluster" in answer.results[1].error_message
        answer = await root.call(ask("DescribeAcls", **OPEN_FILTER), version)
        [resource] = answer.resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "orders", 4)
        assert [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in resource.acls] == [
            ("User:alice", "*", 3, 3),
            ("User:alice", "*", 4, 3),
        ]
        matching = {**OPEN_FILTER, "resource_name_filter": "orders-1", "pattern_type_filter": PatternType.MATCH}
        filters = [
            {**matching, "operation": AclOperation.READ},
            {**OPEN_FILTER, "operation": AclOperation.UNKNOWN},
            {**OPEN_FILTER, "principal_filter": "User:bob"},
        ]
        answer = await root.call(ask("DeleteAcls", filters=filters), version)
        assert [result.error_code for result in answer.filter_results] == [0, ErrorCode.INVALID_REQUEST, 0]
        assert [[acl.operation for acl in result.matching_acls] for result in answer.filter_results] == [[3], [], []]
        assert len(server.broker.security._copies.state.acls) == 1


async def test_without_acls_enabled_that_is_said(tmp_path: Path) -> None:
    async with server_with_users(tmp_path, acl_enable=False) as server, logged_in(server, "root") as root:
        described = await root.call(ask("DescribeAcls", **OPEN_FILTER), 3)
        created = await root.call(ask("CreateAcls", creations=[creation()]), 3)
        deleted = await root.call(ask("DeleteAcls", filters=[OPEN_FILTER]), 3)
        codes = [described.error_code, created.results[0].error_code, deleted.filter_results[0].error_code]
        assert codes == [ErrorCode.SECURITY_DISABLED] * 3


async def test_authorized_operations_are_those_of_the_client(tmp_path: Path) -> None:
    everything = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice, logged_in(server, "root") as root:
        for name in ("hidden", "topic"):
            await server.broker.topics.create(name)
        await allow(server.broker, AclOperation.READ)
        answer = await alice.call(ask("Metadata", topics=None, **everything), 10)
        assert [topic.name for topic in answer.topics] == ["topic"]
        assert answer.topics[0].topic_authorized_operations == bit_field([AclOperation.READ, AclOperation.DESCRIBE])
        assert answer.cluster_authorized_operations == 0
        assert (await alice.call(ask("Metadata", topics=None), 10)).cluster_authorized_operations == INT32_MIN
        answer = await root.call(ask("Metadata", topics=None, **everything), 10)
        assert answer.topics[0].topic_authorized_operations == bit_field(OPERATIONS[TOPIC])
        assert answer.cluster_authorized_operations == bit_field(OPERATIONS[CLUSTER])
        cluster = ask("DescribeCluster", include_cluster_authorized_operations=True)
        assert (await alice.call(cluster, 2)).cluster_authorized_operations == 0
        await allow(server.broker, AclOperation.DESCRIBE, CLUSTER, "kafka-cluster")
        assert (await alice.call(cluster, 2)).cluster_authorized_operations == bit_field([AclOperation.DESCRIBE])
        assert server.broker.security.statistics.denied == 0


async def test_elements_that_are_refused_leave_the_others_served(tmp_path: Path) -> None:
    def topic(name: str) -> dict[str, Any]:
        part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1, "max_num_offsets": 1}
        return {"name": name, "partitions": [part]}

    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        for name in ("topic", "hidden"):
            await server.broker.topics.create(name)
        await allow(server.broker, AclOperation.DESCRIBE)
        request = ask("ListOffsets", replica_id=-1, isolation_level=0, topics=[topic("hidden"), topic("topic"), topic("none")])
        answer = await alice.call(request, 7)
        codes = {each.name: each.partitions[0].error_code for each in answer.topics}
        assert codes == {"topic": 0, "hidden": DENIED, "none": DENIED}
        request = ask("ListOffsets", replica_id=-1, isolation_level=0, topics=[topic("hidden")])
        assert (await alice.call(request, 7)).topics[0].partitions[0].error_code == DENIED


async def joined_codes(client: KafkaStream, producer: transactions.InitProducerIdResponse, *topics: str) -> list[int]:
    """What each of these topics' first partition is told that is to join the transaction of "t"."""
    request = ask(
        "AddPartitionsToTxn",
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in topics],
    )
    answer = (await client.call(request, 3)).results_by_topic_v3_and_below
    codes = {each.name: each.results_by_partition[0].partition_error_code for each in answer}
    return [codes[name] for name in topics]


async def test_of_partitions_that_may_not_join_each_is_told_why(tmp_path: Path) -> None:
    """As Kafka's `handleAddPartitionsToTxnRequest`: denied, unknown, and what would have joined."""
    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        for name in ("topic", "hidden"):
            await server.broker.topics.create(name)
        await allow(server.broker, AclOperation.WRITE)
        await allow(server.broker, AclOperation.WRITE, name="unknown")
        await allow(server.broker, AclOperation.WRITE, TRANSACTIONAL_ID, "t")
        producer = await alice.call(ask("InitProducerId", transactional_id="t", transaction_timeout_ms=1000), 4)
        unknown, rest = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await joined_codes(alice, producer, "topic", "hidden", "unknown") == [rest, DENIED, unknown]
        assert await joined_codes(alice, producer, "hidden", "none") == [DENIED, DENIED]
        assert await joined_codes(alice, producer, "topic") == [0]


def test_every_api_is_asked_for_or_asks_itself() -> None:
    assert set(APIS) == {*FREE, *RULES, *BY_THEMSELVES}
    assert not FREE & (RULES.keys() | BY_THEMSELVES.keys())
