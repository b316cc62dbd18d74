"""DescribeCluster; FindCoordinator: which broker serves a group or a transactional id; and what moves between nodes elsewhere:
elections and reassignments, of which one node needs none.

Source: KIP-699 (several keys), AuthHelper.computeDescribeClusterResponse, ReplicationControlManager (electLeaders,
alterPartitionReassignments).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.messages.cluster import (
    AlterPartitionReassignmentsReassignablePartition,
    AlterPartitionReassignmentsReassignablePartitionResponse,
    AlterPartitionReassignmentsReassignableTopicResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectLeadersPartitionResult,
    ElectLeadersReplicaElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ....protocol.kafka.messages.groups import FindCoordinatorCoordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ....protocol.limits import INT32_MIN
from ....protocol.types import TopicPartition
from ...loop.procedures import Procedure, in_turns, mapped
from .door import Call, Node, error_code, error_message
from .replicas import check_assignment

GROUP: Final = 0
TRANSACTION: Final = 1
FIRST_WITH_SEVERAL_KEYS: Final = 4
NOBODY: Final = Node(-1, "", -1)
BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Types of endpoints (KIP-919)."""
PREFERRED: Final = 0
UNCLEAN: Final = 1
"""Types of elections (KIP-460)."""


def describe_cluster(call: Call, body: DescribeClusterRequest) -> DescribeClusterResponse:
    """The nodes of the cluster; the one that answers is the controller, and none is fenced."""
    if body.endpoint_type != BROKERS:
        is_known = body.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {body.endpoint_type} was asked for; this is a broker's listener, type {BROKERS}",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        cluster_id=call.broker.cluster_id,
        controller_id=call.door.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, is_fenced=False)
            for node in call.door.nodes(call.session)
        ],
        cluster_authorized_operations=call.operations_on_cluster() if body.include_cluster_authorized_operations else INT32_MIN,
    )


# ---- elections -------------------------------------------------------------------------------------------------------------


async def elect_leaders(call: Call, body: ElectLeadersRequest) -> ElectLeadersResponse:
    """Nothing changes: the one replica leads, or the partition is offline. Of all topics, only the latter are named."""
    error: RequestError | None = None
    if body.election_type not in (PREFERRED, UNCLEAN):
        error = InvalidRequestError(f"election type {body.election_type}: 0 is preferred, 1 unclean")
    asked = [(each.topic, each.partitions) for each in body.topic_partitions or ()]
    if body.topic_partitions is None and error is None:
        asked = [(name, await _offline(call, name)) for name in call.broker.topics.names()]
    return ElectLeadersResponse(
        error_code=error_code(error),
        replica_election_results=[
            ElectLeadersReplicaElectionResult(
                topic=topic,
                partition_result=[
                    _elected(call, topic, each, body.election_type, error) async for each in in_turns(partitions)
                ],
            )
            async for topic, partitions in in_turns(asked)
        ],
    )


async def _offline(call: Call, topic: str) -> list[int]:
    try:
        count = call.broker.topics.partition_count(topic)
    except RequestError:
        return []  # it was deleted meanwhile
    return [number async for number in in_turns(range(count)) if _is_offline(call, TopicPartition(topic, number))]


def _is_offline(call: Call, topic_partition: TopicPartition) -> bool:
    try:
        call.broker.reader.snapshot(topic_partition)
    except RequestError:
        return True
    return False


def _elected(
    call: Call, topic: str, partition: int, election_type: int, error: RequestError | None
) -> ElectLeadersPartitionResult:
    if error is None:
        error = _no_election(call, topic, partition, election_type)
    return ElectLeadersPartitionResult(partition_id=partition, error_code=error_code(error), error_message=error_message(error))


def _no_election(call: Call, topic: str, partition: int, election_type: int) -> RequestError:
    topic_partition = TopicPartition(topic, partition)
    try:
        call.check_partition(topic_partition)
    except RequestError as exc:
        return exc.as_answer()
    if not _is_offline(call, topic_partition):
        return RequestError(f"{topic_partition} has its leader", ErrorCode.ELECTION_NOT_NEEDED)
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if election_type == UNCLEAN:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return RequestError(f"{topic_partition} is offline, and its one replica with it", code)


# ---- reassignments ---------------------------------------------------------------------------------------------------------


async def alter_partition_reassignments(
    call: Call, body: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """A partition that is to be where it is, is there; there is no other place, and never a move to cancel."""
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=body.allow_replication_factor_change,
        responses=[
            AlterPartitionReassignmentsReassignableTopicResponse(
                name=topic.name, partitions=[_reassigned(call, topic.name, each) async for each in in_turns(topic.partitions)]
            )
            async for topic in in_turns(body.topics)
        ],
    )


def _reassigned(
    call: Call, topic: str, asked: AlterPartitionReassignmentsReassignablePartition
) -> AlterPartitionReassignmentsReassignablePartitionResponse:
    error: RequestError | None = None
    try:
        call.check_partition(TopicPartition(topic, asked.partition_index))
        if asked.replicas is None:
            raise RequestError(f"{topic}-{asked.partition_index} is not moving", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        check_assignment(asked.replicas, [call.door.node_id])
    except RequestError as exc:
        error = exc.as_answer()
    return AlterPartitionReassignmentsReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=error_code(error), error_message=error_message(error)
    )


def list_partition_reassignments(_call: Call, _body: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """No reassignments: there is only one node."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])


def find_coordinator(call: Call, body: FindCoordinatorRequest) -> Procedure[FindCoordinatorResponse]:
    """This broker, for every group and every transactional id."""
    node = call.door.nodes(call.session)[0]
    keys = body.coordinator_keys if call.version >= FIRST_WITH_SEVERAL_KEYS else [body.key]
    found = yield from mapped(partial(_coordinator, node, body.key_type), keys)
    if call.version >= FIRST_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(error_message=None, node_id=-1, host="", port=-1, coordinators=found)
    [only] = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
        coordinators=[],
    )


def _coordinator(node: Node, key_type: int, key: str) -> FindCoordinatorCoordinator:
    error, message = ErrorCode.NONE, None
    if key_type not in (GROUP, TRANSACTION):
        error, message, node = ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 is a group, 1 a transactional id", NOBODY
    return FindCoordinatorCoordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error, error_message=message
    )
