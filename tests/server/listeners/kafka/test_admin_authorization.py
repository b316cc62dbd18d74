"""Administration where ACLs are enforced: who has no right is told so, in the place that each API has for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.authorization import AclOperation, ResourceType
from triolog.protocol.kafka.messages.admin.cluster import (
    AlterPartitionReassignmentsRequest,
    DescribeClusterRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from triolog.protocol.kafka.messages.admin.configs import ListConfigResourcesRequest
from triolog.protocol.kafka.messages.admin.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from triolog.protocol.kafka.messages.admin.quotas import (
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from triolog.protocol.kafka.messages.metadata import DescribeTopicPartitionsRequest, DescribeTopicPartitionsTopicRequest
from triolog.protocol.limits import INT32_MIN

from tests.support.kafka_acls import allow
from tests.support.kafka_admin import (
    BROKER_TYPE,
    TOPIC_TYPE,
    alter,
    alter_incrementally,
    create_topics,
    delete_records,
    delete_states,
    delete_topics,
    describe,
    error_names,
    more_partitions,
    new_topic,
)
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

OF_TOPIC, OF_CLUSTER = "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A listener whose clients, who say not who they are, may do nothing."""
    async with kafka_server(fast_path, acl_enable=True) as server:
        await server.broker.topics.create(TOPIC)
        yield server


async def test_nothing_of_a_topic_is_told_or_changed(kafka: KafkaServer, client: KafkaStream) -> None:
    configs = [(TOPIC_TYPE, TOPIC, [("retention.ms", "5")])]
    incremental = [(TOPIC_TYPE, TOPIC, [("retention.ms", 0, "5")])]
    told: list[Any] = [
        (await client.call(create_topics(new_topic("new"), new_topic(TOPIC)), 7)).topics,
        (await client.call(delete_topics(TOPIC), 5)).responses,
        (await client.call(delete_states((None, kafka.topic_id())), 6)).responses,
        (await client.call(more_partitions((TOPIC, 5)), 3)).results,
        (await client.call(delete_records((TOPIC, 0, 0)), 2)).topics[0].partitions,
        (await client.call(describe((TOPIC_TYPE, TOPIC)), 4)).results,
        (await client.call(alter(*configs), 2)).responses,
        (await client.call(alter_incrementally(*incremental), 1)).responses,
    ]
    assert {name for results in told for name in error_names(results)} == {OF_TOPIC}
    assert list(kafka.broker.topics.names()) == [TOPIC]
    assert kafka.broker.topics.describe(TOPIC).configs == {}


async def test_topics_that_may_not_be_seen_are_left_out_of_all_and_refused_by_name(
    kafka: KafkaServer, client: KafkaStream
) -> None:
    named = [DescribeTopicPartitionsTopicRequest(name=TOPIC)]
    everything = await client.call(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert everything.topics == []
    [refused] = (await client.call(DescribeTopicPartitionsRequest(topics=named), 0)).topics
    assert (error_names([refused]), refused.partitions, refused.topic_authorized_operations) == ([OF_TOPIC], [], INT32_MIN)
    await allow(kafka, AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)
    [found] = (await client.call(DescribeTopicPartitionsRequest(topics=[]), 0)).topics
    assert (found.name, found.topic_authorized_operations) == (TOPIC, 1 << AclOperation.DESCRIBE)


async def test_a_topic_can_be_made_by_right_of_its_name_and_its_configuration_is_not_told(
    kafka: KafkaServer, client: KafkaStream
) -> None:
    await allow(kafka, AclOperation.CREATE, ResourceType.TOPIC, "new")
    [result] = (await client.call(create_topics(new_topic("new", 2)), 7)).topics
    assert (result.error_code, ErrorCode(result.topic_config_error_code).name) == (0, OF_TOPIC)
    assert (result.topic_id, result.num_partitions, result.configs) == (kafka.topic_id("new"), -1, None)


async def test_nothing_of_the_cluster_is_told_or_changed(kafka: KafkaServer, client: KafkaStream) -> None:
    elect = ElectLeadersRequest(election_type=0, topic_partitions=[ElectLeadersTopicPartitions(topic=TOPIC, partitions=[0])])
    move = AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])
    quotas = AlterClientQuotasRequest(entries=[AlterClientQuotasEntryData(entity=[], ops=[])], validate_only=False)
    elected = await client.call(elect, 2)
    told: list[Any] = [
        [elected, elected.replica_election_results[0].partition_result[0]],
        [await client.call(AlterPartitionReassignmentsRequest(topics=[]), 1)],
        [await client.call(ListPartitionReassignmentsRequest(), 0)],
        [await client.call(UpdateFeaturesRequest(feature_updates=[], validate_only=True), 2)],
        [await client.call(ListConfigResourcesRequest(resource_types=[]), 1)],
        [await client.call(DescribeLogDirsRequest(topics=None), 4)],
        (await client.call(AlterReplicaLogDirsRequest(dirs=[move]), 2)).results[0].partitions,
        [await client.call(DescribeClientQuotasRequest(components=[], strict=False), 1)],
        (await client.call(quotas, 1)).entries,
        (await client.call(describe((BROKER_TYPE, "1")), 4)).results,
        (await client.call(alter((BROKER_TYPE, "1", [("num.partitions", "2")])), 2)).responses,
    ]
    assert [error_names(results) for results in told] == [[OF_CLUSTER] * len(results) for results in told]
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True, include_fenced_brokers=False)
    answer = await client.call(cluster, 0)
    assert (answer.error_code, len(answer.brokers), answer.cluster_authorized_operations) == (0, 1, 0)
