"""DescribeQuorum: one node leads and votes alone, and only the partition of the metadata is known."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.admin import quorum

from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream

METADATA = "__cluster_metadata"


def asking(*named: tuple[str, list[int]]) -> quorum.DescribeQuorumRequest:
    return quorum.DescribeQuorumRequest(
        topics=[
            quorum.DescribeQuorumTopicData(
                topic_name=name, partitions=[quorum.DescribeQuorumPartitionData(partition_index=number) for number in numbers]
            )
            for name, numbers in named
        ]
    )


@pytest.mark.parametrize("version", range(3))
async def test_the_node_leads_and_votes_alone(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    answer = await client.call(asking((METADATA, [0])), version)
    [partition] = answer.topics[0].partitions
    node_id = kafka.broker.node_id
    assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, node_id)
    assert [each.replica_id for each in partition.current_voters] == [node_id]
    assert partition.observers == []
    nodes = [(node.node_id, [(each.host, each.port) for each in node.listeners]) for node in answer.nodes]
    assert nodes == ([(node_id, [tuple(kafka.address)])] if version >= 2 else [])


@pytest.mark.parametrize(
    "named",
    [[("x", [0])], [(METADATA, [1])], [(METADATA, [0, 1])], [(METADATA, [0]), ("x", [0])], [(METADATA, [0]), (METADATA, [0])]],
)
async def test_all_partitions_are_unknown_unless_that_one_alone_is_asked_for(
    client: KafkaStream, named: list[tuple[str, list[int]]]
) -> None:
    """As a broker of Kafka 4.3.1 answers."""
    answer = await client.call(asking(*named), 2)
    found = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]
    assert (answer.error_code, found) == (0, named)
    codes = {each.error_code for topic in answer.topics for each in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_nothing_is_known_of_no_topics(client: KafkaStream) -> None:
    answer = await client.call(asking(), 2)
    assert (answer.error_code, answer.topics, answer.nodes) == (0, [], [])
