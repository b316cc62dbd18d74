"""ACLs over the wire, and that they are enforced: every API tells a client who may not what Kafka tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.kafka.authorization import OPERATIONS, AclOperation, AclPermission, PatternType, ResourceType, bit_field
from triolog.protocol.kafka.messages.admin.acls import (
    CreateAclsAclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from triolog.protocol.kafka.messages.admin.cluster import DescribeClusterRequest
from triolog.protocol.kafka.messages.admin.topics import CreateTopicsCreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from triolog.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from triolog.protocol.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triolog.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from triolog.protocol.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)
from triolog.protocol.limits import INT32_MIN
from triolog.server.broker import Broker
from triolog.server.listeners.kafka.access.guard import BY_THEMSELVES, FREE, RULES
from triolog.server.security.acls import Acl

from tests.support.kafka_login import logged_in, server_with_users
from tests.support.kafka_server import NO_TOPIC_ID, batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_stream import KafkaStream

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


def creation(**changes: Any) -> CreateAclsAclCreation:
    fields = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.PREFIXED,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
        **changes,
    }
    return CreateAclsAclCreation(**fields)


# ---- the three APIs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_made_described_and_deleted(tmp_path: Path, version: int) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        wrong = creation(resource_type=CLUSTER, resource_name="other")
        answer = await root.call(
            CreateAclsRequest(creations=[creation(), wrong, creation(operation=AclOperation.WRITE), creation(operation=77)]),
            version,
        )
        assert [result.error_code for result in answer.results] == [0, 42, 0, 42]
        assert "kafka-cluster" in answer.results[1].error_message
        answer = await root.call(DescribeAclsRequest(**OPEN_FILTER), version)
        [resource] = answer.resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "orders", 4)
        assert [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in resource.acls] == [
            ("User:alice", "*", 3, 3),
            ("User:alice", "*", 4, 3),
        ]
        matching = {**OPEN_FILTER, "resource_name_filter": "orders-1", "pattern_type_filter": PatternType.MATCH}
        filters = [
            DeleteAclsFilter(**{**matching, "operation": AclOperation.READ}),
            DeleteAclsFilter(**{**OPEN_FILTER, "operation": AclOperation.UNKNOWN}),
            DeleteAclsFilter(**{**OPEN_FILTER, "principal_filter": "User:bob"}),
        ]
        answer = await root.call(DeleteAclsRequest(filters=filters), version)
        assert [result.error_code for result in answer.filter_results] == [0, ErrorCode.INVALID_REQUEST, 0]
        assert [[acl.operation for acl in result.matching_acls] for result in answer.filter_results] == [[3], [], []]
        assert len(server.broker.security._copies.state.acls) == 1


async def test_without_acls_enabled_that_is_said(tmp_path: Path) -> None:
    async with server_with_users(tmp_path, acl_enable=False) as server, logged_in(server, "root") as root:
        described = await root.call(DescribeAclsRequest(**OPEN_FILTER), 3)
        created = await root.call(CreateAclsRequest(creations=[creation()]), 3)
        deleted = await root.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**OPEN_FILTER)]), 3)
        codes = [described.error_code, created.results[0].error_code, deleted.filter_results[0].error_code]
        assert codes == [ErrorCode.SECURITY_DISABLED] * 3


async def test_only_who_may_alter_the_cluster_changes_acls(tmp_path: Path) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        described = await alice.call(DescribeAclsRequest(**OPEN_FILTER), 3)
        created = await alice.call(CreateAclsRequest(creations=[creation()]), 3)
        deleted = await alice.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**OPEN_FILTER)]), 3)
        codes = [described.error_code, created.results[0].error_code, deleted.filter_results[0].error_code]
        assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
        await allow(server.broker, AclOperation.ALTER, CLUSTER, "kafka-cluster")
        assert (await alice.call(DescribeAclsRequest(**OPEN_FILTER), 3)).error_code == 0


# ---- enforcement -------------------------------------------------------------------------------------------------------------


async def produced(client: KafkaStream, **options: Any) -> int:
    answer = await client.call(produce_request(batch("x", **options.pop("batch", {})), **options), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def test_producing_and_fetching_take_write_and_read(tmp_path: Path) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice, logged_in(server, "root") as root:
        await server.broker.topics.create("topic")
        assert await produced(root) == 0
        assert await produced(alice) == DENIED
        assert await produced(alice, topic="none") == DENIED
        fetch = fetch_request(fetch_partition())
        assert (await alice.call(fetch, 12)).responses[0].partitions[0].error_code == DENIED
        await allow(server.broker, AclOperation.WRITE)
        assert await produced(alice) == 0
        assert (await alice.call(fetch, 12)).responses[0].partitions[0].error_code == DENIED
        by_id = fetch_request(fetch_partition(), topic_id=server.topic_id())
        assert (await alice.call(by_id, 13)).responses[0].partitions[0].error_code == DENIED
        await allow(server.broker, AclOperation.READ)
        assert (await alice.call(fetch, 12)).responses[0].partitions[0].error_code == 0
        assert server.broker.security.statistics.denied >= 4


async def test_a_topic_is_seen_and_made_by_whom_acls_name(tmp_path: Path) -> None:
    def asked(name: str, **fields: Any) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True, **fields)

    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        await server.broker.topics.create("topic")
        await server.broker.topics.create("hidden")
        answer = await alice.call(asked("topic"), 12)
        [topic] = answer.topics
        assert (topic.error_code, topic.topic_id, topic.partitions) == (DENIED, NO_TOPIC_ID, [])
        assert (await alice.call(MetadataRequest(topics=None), 12)).topics == []
        await allow(server.broker, AclOperation.WRITE)
        assert [topic.name for topic in (await alice.call(MetadataRequest(topics=None), 12)).topics] == ["topic"]
        await allow(server.broker, AclOperation.DESCRIBE, name="new")
        assert (await alice.call(asked("new"), 12)).topics[0].error_code == DENIED
        assert "new" not in server.broker.topics.names()
        await allow(server.broker, AclOperation.CREATE, name="new")
        assert (await alice.call(asked("new"), 12)).topics[0].error_code == 0


async def test_authorized_operations_are_those_of_the_client(tmp_path: Path) -> None:
    everything = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice, logged_in(server, "root") as root:
        await server.broker.topics.create("topic")
        await allow(server.broker, AclOperation.READ)
        answer = await alice.call(MetadataRequest(topics=None, **everything), 10)
        assert answer.topics[0].topic_authorized_operations == bit_field([AclOperation.READ, AclOperation.DESCRIBE])
        assert answer.cluster_authorized_operations == 0
        assert (await alice.call(MetadataRequest(topics=None), 10)).cluster_authorized_operations == INT32_MIN
        answer = await root.call(MetadataRequest(topics=None, **everything), 10)
        assert answer.topics[0].topic_authorized_operations == bit_field(OPERATIONS[TOPIC])
        assert answer.cluster_authorized_operations == bit_field(OPERATIONS[CLUSTER])
        cluster = DescribeClusterRequest(
            include_cluster_authorized_operations=True, endpoint_type=1, include_fenced_brokers=False
        )
        assert (await alice.call(cluster, 2)).cluster_authorized_operations == 0
        await allow(server.broker, AclOperation.DESCRIBE, CLUSTER, "kafka-cluster")
        assert (await alice.call(cluster, 2)).cluster_authorized_operations == bit_field([AclOperation.DESCRIBE])
        assert server.broker.security.statistics.denied == 0


async def test_elements_that_are_refused_leave_the_others_served(tmp_path: Path) -> None:
    def topic(name: str) -> ListOffsetsTopic:
        part = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1, max_num_offsets=1)
        return ListOffsetsTopic(name=name, partitions=[part])

    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        for name in ("topic", "hidden"):
            await server.broker.topics.create(name)
        await allow(server.broker, AclOperation.DESCRIBE)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic("hidden"), topic("topic"), topic("none")])
        answer = await alice.call(request, 7)
        codes = {each.name: each.partitions[0].error_code for each in answer.topics}
        assert codes == {"topic": 0, "hidden": DENIED, "none": DENIED}
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic("hidden")])
        assert (await alice.call(request, 7)).topics[0].partitions[0].error_code == DENIED


async def test_topics_are_made_and_deleted_by_whom_acls_name(tmp_path: Path) -> None:
    def new(*names: str) -> CreateTopicsRequest:
        topics = [
            CreateTopicsCreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=1000)

    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        await allow(server.broker, AclOperation.CREATE, name="mine")
        answer = await alice.call(new("mine", "other"), 7)
        assert {topic.name: topic.error_code for topic in answer.topics} == {"mine": 0, "other": DENIED}
        mine = next(topic for topic in answer.topics if topic.name == "mine")
        assert (mine.topic_config_error_code, mine.num_partitions) == (DENIED, -1)
        assert list(server.broker.topics.names()) == ["mine"]
        deletion = DeleteTopicsRequest(topics=[], topic_names=["mine", "other"], timeout_ms=1000)
        answer = await alice.call(deletion, 5)
        assert {each.name: each.error_code for each in answer.responses} == {"mine": DENIED, "other": DENIED}
        await allow(server.broker, AclOperation.DELETE, name="mine")
        answer = await alice.call(deletion, 5)
        assert {each.name: each.error_code for each in answer.responses} == {"mine": 0, "other": DENIED}


async def test_transactions_take_write_on_their_id_and_producers_on_any_topic(tmp_path: Path) -> None:
    def init(transactional_id: str | None) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)

    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        assert (await alice.call(init(None), 4)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await alice.call(init("t"), 4)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await server.broker.topics.create("topic")
        await allow(server.broker, AclOperation.WRITE)
        await allow(server.broker, AclOperation.WRITE, TRANSACTIONAL_ID, "t")
        assert (await alice.call(init(None), 4)).error_code == 0
        producer = await alice.call(init("t"), 4)
        assert producer.error_code == 0
        assert await joined_codes(alice, producer, "topic", "other") == [ErrorCode.OPERATION_NOT_ATTEMPTED, DENIED]
        listed = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None
        )
        assert [each.transactional_id for each in (await alice.call(listed, 2)).transaction_states] == ["t"]
        async with logged_in(server, "bob") as bob:
            assert (await bob.call(listed, 2)).transaction_states == []


async def joined_codes(client: KafkaStream, producer: InitProducerIdResponse, *topics: str) -> list[int]:
    """What each of these topics' first partition is told that is to join the transaction of "t"."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics],
        transactions=[],
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
        producer = await alice.call(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4)
        unknown, rest = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await joined_codes(alice, producer, "topic", "hidden", "unknown") == [rest, DENIED, unknown]
        assert await joined_codes(alice, producer, "hidden", "none") == [DENIED, DENIED]
        assert await joined_codes(alice, producer, "topic") == [0]


@pytest.mark.parametrize(("version", "key_type", "code"), [(3, 0, 30), (3, 1, 53), (4, 0, 30), (4, 1, 53)])
async def test_coordinators_are_told_to_who_may_see_the_group_or_id(
    tmp_path: Path, version: int, key_type: int, code: int
) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "alice") as alice:
        kind = (GROUP, TRANSACTIONAL_ID)[key_type]
        await allow(server.broker, AclOperation.DESCRIBE, kind, "mine")
        if version < 4:
            answers = [await alice.call(FindCoordinatorRequest(key, key_type, []), version) for key in ("mine", "other")]
        else:
            answers = (await alice.call(FindCoordinatorRequest("", key_type, ["mine", "other"]), version)).coordinators
        assert [answer.error_code for answer in answers] == [0, code]


def test_every_api_is_asked_for_or_asks_itself() -> None:
    assert set(APIS) == {*FREE, *RULES, *BY_THEMSELVES}
    assert not FREE & (RULES.keys() | BY_THEMSELVES.keys())
