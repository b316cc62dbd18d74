"""DescribeQuorum: who keeps the cluster's metadata. One node does, in files of its own: it leads, nobody follows, and there is
no log whose offsets could be told. Source: KIP-595, KIP-836, KIP-853, KafkaRaftClient."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.messages.cluster import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    DescribeQuorumTopicData,
)
from .door import Call, Node

METADATA_TOPIC: Final = "__cluster_metadata"
LISTENER: Final = "CONTROLLER"
FIRST_EPOCH: Final = 1
NO_OFFSET_YET: Final = 0
NO_DIRECTORY: Final = bytes(16)


def describe_quorum(call: Call, body: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The one voter, if exactly the partition of the metadata is asked for; everything else is unknown, also beside that."""
    if not body.topics:
        return DescribeQuorumResponse(error_message="", topics=[], nodes=[])
    named = [(topic.topic_name, each.partition_index) for topic in body.topics for each in topic.partitions]
    if named != [(METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(error_message="", topics=[_unknown(topic) for topic in body.topics], nodes=[])
    nodes = call.door.nodes(call.session)
    listeners = [
        DescribeQuorumNode(
            node_id=node.node_id, listeners=[DescribeQuorumListener(name=LISTENER, host=node.host, port=node.port)]
        )
        for node in nodes
    ]
    partition = _described(call, nodes)
    topic = DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(error_message="", topics=[topic], nodes=listeners)


def _described(call: Call, nodes: list[Node]) -> DescribeQuorumResponsePartitionData:
    now_ms = call.broker.now_ms()
    leader, *_ = nodes
    voters = [
        DescribeQuorumReplicaState(
            replica_id=node.node_id,
            replica_directory_id=NO_DIRECTORY,
            log_end_offset=NO_OFFSET_YET,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for node in nodes
    ]
    return DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message="",
        leader_id=leader.node_id,
        leader_epoch=FIRST_EPOCH,
        high_watermark=NO_OFFSET_YET,
        current_voters=voters,
        observers=[],
    )


def _unknown(topic: DescribeQuorumTopicData) -> DescribeQuorumResponseTopicData:
    return DescribeQuorumResponseTopicData(
        topic_name=topic.topic_name,
        partitions=[
            DescribeQuorumResponsePartitionData(
                partition_index=each.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"{topic.topic_name}-{each.partition_index} is not the partition of the metadata",
                leader_id=0,
                leader_epoch=0,
                high_watermark=NO_OFFSET_YET,
                current_voters=[],
                observers=[],
            )
            for each in topic.partitions
        ],
    )
