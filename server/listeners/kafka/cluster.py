"""DescribeCluster; FindCoordinator: which broker serves a group or a transactional id; and what moves between nodes elsewhere:
elections and reassignments, of which one node needs none.

Source: KIP-699 (several keys), AuthHelper.computeDescribeClusterResponse, ReplicationControlManager (electLeaders,
alterPartitionReassignments).

DescribeQuorum: who keeps the cluster's metadata. One node does, in files of its own: it leads, nobody follows, and there is
no log whose offsets could be told. Source: KIP-595, KIP-836, KIP-853, KafkaRaftClient.

DescribeLogDirs and AlterReplicaLogDirs: where partitions lie. Source: ReplicaManager, KIP-113, KIP-827.

ApiVersions: the APIs, and the levels of features. UpdateFeatures sets levels, all or none: 0 disables a feature, and requests
that need it return UNSUPPORTED_VERSION. Source: KIP-511, KIP-584, KIP-1022, FeatureControlManager; KAFKA-17492 for features
whose lowest level is 0; KIP-1242 for clients that have reached somebody else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.apis import Api, ApiKey
from ....protocol.kafka.messages import cluster as messages
from ....protocol.kafka.messages.groups import FindCoordinatorCoordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ....protocol.limits import INT32_MIN
from ....protocol.types import TopicPartition
from ...broker import DirectoryContents
from ...loop.procedures import Procedure, in_turns, mapped
from .door import Call, Node, error_code, filled, reported
from .topics import check_assignment

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


def describe_cluster(call: Call, body: messages.DescribeClusterRequest) -> messages.DescribeClusterResponse:
    """The nodes of the cluster; the one that answers is the controller, and none is fenced."""
    if body.endpoint_type != BROKERS:
        is_known = body.endpoint_type == CONTROLLERS
        raise RequestError(
            f"endpoint type {body.endpoint_type} requested, but this is a broker's listener, type {BROKERS}",
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        )
    return messages.DescribeClusterResponse(
        cluster_id=call.broker.cluster_id,
        controller_id=call.door.node_id,
        brokers=[
            messages.DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, is_fenced=False)
            for node in call.door.nodes(call.session)
        ],
        cluster_authorized_operations=call.operations_on_cluster() if body.include_cluster_authorized_operations else INT32_MIN,
    )


# ---- elections -------------------------------------------------------------------------------------------------------------


async def elect_leaders(call: Call, body: messages.ElectLeadersRequest) -> messages.ElectLeadersResponse:
    """Nothing changes: the one replica leads, or the partition is offline. Of all topics, only the latter are named."""
    error: RequestError | None = None
    if body.election_type not in (PREFERRED, UNCLEAN):
        error = InvalidRequestError(f"election type {body.election_type}: 0 is preferred, 1 unclean")
    asked = [(each.topic, each.partitions) for each in body.topic_partitions or ()]
    if body.topic_partitions is None and error is None:
        asked = [(name, await _offline(call, name)) for name in call.broker.topics.names()]
    return messages.ElectLeadersResponse(
        error_code=error_code(error),
        replica_election_results=[
            messages.ElectLeadersReplicaElectionResult(
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
) -> messages.ElectLeadersPartitionResult:
    if error is None:
        error = _no_election(call, topic, partition, election_type)
    return reported(messages.ElectLeadersPartitionResult, error, partition_id=partition)


def _no_election(call: Call, topic: str, partition: int, election_type: int) -> RequestError:
    topic_partition = TopicPartition(topic, partition)
    try:
        call.check_partition(topic_partition)
    except RequestError as exc:
        return exc.as_answer()
    if not _is_offline(call, topic_partition):
        return RequestError(f"{topic_partition} already has its leader", ErrorCode.ELECTION_NOT_NEEDED)
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if election_type == UNCLEAN:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return RequestError(f"{topic_partition} is offline, and so is its only replica", code)


# ---- reassignments ---------------------------------------------------------------------------------------------------------


async def alter_partition_reassignments(
    call: Call, body: messages.AlterPartitionReassignmentsRequest
) -> messages.AlterPartitionReassignmentsResponse:
    """A partition that is to be where it is, is there; there is no other place, and never a move to cancel."""
    return messages.AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=body.allow_replication_factor_change,
        responses=[
            messages.AlterPartitionReassignmentsReassignableTopicResponse(
                name=topic.name, partitions=[_reassigned(call, topic.name, each) async for each in in_turns(topic.partitions)]
            )
            async for topic in in_turns(body.topics)
        ],
    )


def _reassigned(
    call: Call, topic: str, asked: messages.AlterPartitionReassignmentsReassignablePartition
) -> messages.AlterPartitionReassignmentsReassignablePartitionResponse:
    error: RequestError | None = None
    try:
        call.check_partition(TopicPartition(topic, asked.partition_index))
        if asked.replicas is None:
            raise RequestError(f"{topic}-{asked.partition_index} is not moving", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        check_assignment(asked.replicas, [call.door.node_id])
    except RequestError as exc:
        error = exc.as_answer()
    return reported(
        messages.AlterPartitionReassignmentsReassignablePartitionResponse, error, partition_index=asked.partition_index
    )


def list_partition_reassignments(
    _call: Call, _body: messages.ListPartitionReassignmentsRequest
) -> messages.ListPartitionReassignmentsResponse:
    """No reassignments: there is only one node."""
    return messages.ListPartitionReassignmentsResponse(error_message=None, topics=[])


def find_coordinator(call: Call, body: FindCoordinatorRequest) -> Procedure[FindCoordinatorResponse]:
    """This broker, for every group and every transactional id."""
    node = call.door.nodes(call.session)[0]
    keys = body.coordinator_keys if call.version >= FIRST_WITH_SEVERAL_KEYS else [body.key]
    found = yield from mapped(partial(_coordinator, node, body.key_type), keys)
    if call.version >= FIRST_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(error_message=None, node_id=-1, host="", port=-1, coordinators=found)
    [only] = found
    return filled(FindCoordinatorResponse, only)


def _coordinator(node: Node, key_type: int, key: str) -> FindCoordinatorCoordinator:
    error, message = ErrorCode.NONE, None
    if key_type not in (GROUP, TRANSACTION):
        error, message, node = ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 is a group, 1 a transactional id", NOBODY
    return FindCoordinatorCoordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error, error_message=message
    )


METADATA_TOPIC: Final = "__cluster_metadata"
LISTENER: Final = "CONTROLLER"
FIRST_EPOCH: Final = 1
NO_OFFSET_YET: Final = 0
NO_DIRECTORY: Final = bytes(16)


def describe_quorum(call: Call, body: messages.DescribeQuorumRequest) -> messages.DescribeQuorumResponse:
    """The one voter, if exactly the partition of the metadata is asked for; everything else is unknown, also beside that."""
    if not body.topics:
        return messages.DescribeQuorumResponse(error_message="", topics=[], nodes=[])
    named = [(topic.topic_name, each.partition_index) for topic in body.topics for each in topic.partitions]
    if named != [(METADATA_TOPIC, 0)]:
        return messages.DescribeQuorumResponse(error_message="", topics=[_unknown(topic) for topic in body.topics], nodes=[])
    nodes = call.door.nodes(call.session)
    listeners = [
        messages.DescribeQuorumNode(
            node_id=node.node_id, listeners=[messages.DescribeQuorumListener(name=LISTENER, host=node.host, port=node.port)]
        )
        for node in nodes
    ]
    partition = _described(call, nodes)
    topic = messages.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return messages.DescribeQuorumResponse(error_message="", topics=[topic], nodes=listeners)


def _described(call: Call, nodes: list[Node]) -> messages.DescribeQuorumResponsePartitionData:
    now_ms = call.broker.now_ms()
    leader, *_ = nodes
    voters = [
        messages.DescribeQuorumReplicaState(
            replica_id=node.node_id,
            replica_directory_id=NO_DIRECTORY,
            log_end_offset=NO_OFFSET_YET,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for node in nodes
    ]
    return messages.DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message="",
        leader_id=leader.node_id,
        leader_epoch=FIRST_EPOCH,
        high_watermark=NO_OFFSET_YET,
        current_voters=voters,
        observers=[],
    )


def _unknown(topic: messages.DescribeQuorumTopicData) -> messages.DescribeQuorumResponseTopicData:
    return messages.DescribeQuorumResponseTopicData(
        topic_name=topic.topic_name,
        partitions=[
            messages.DescribeQuorumResponsePartitionData(
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


LOGGER: Final = logging.getLogger(__name__)

PARTITIONS_PER_TURN: Final = 256


# ---- DescribeLogDirs -------------------------------------------------------------------------------------------------------


async def describe_log_dirs(call: Call, body: messages.DescribeLogDirsRequest) -> messages.DescribeLogDirsResponse:
    """Every log directory, with the sizes of the partitions asked for (null: all) that it holds."""
    wanted: set[TopicPartition] | None = None
    if body.topics is not None:
        named = ((topic.topic, number) for topic in body.topics for number in topic.partitions)
        wanted = {TopicPartition(name, number) async for name, number in in_turns(named, PARTITIONS_PER_TURN)}
    contents = await call.broker.directories.contents()
    return messages.DescribeLogDirsResponse(results=[await _directory(each, wanted) for each in contents])


async def _directory(contents: DirectoryContents, wanted: set[TopicPartition] | None) -> messages.DescribeLogDirsResult:
    topics: dict[str, list[messages.DescribeLogDirsPartition]] = {}
    async for topic_partition, size in in_turns(contents.sizes.items(), PARTITIONS_PER_TURN):
        if wanted is None or topic_partition in wanted:
            topics.setdefault(topic_partition.topic, []).append(_partition(topic_partition, size))
    return messages.DescribeLogDirsResult(
        error_code=ErrorCode.NONE if contents.in_service else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=contents.path,
        topics=[messages.DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in sorted(topics.items())],
        total_bytes=contents.total_bytes,
        usable_bytes=contents.usable_bytes,
        is_cordoned=False,
    )


def _partition(topic_partition: TopicPartition, size: int) -> messages.DescribeLogDirsPartition:
    return messages.DescribeLogDirsPartition(
        partition_index=topic_partition.partition, partition_size=size, offset_lag=0, is_future_key=False
    )


# ---- AlterReplicaLogDirs ---------------------------------------------------------------------------------------------------


async def alter_replica_log_dirs(call: Call, body: messages.AlterReplicaLogDirsRequest) -> messages.AlterReplicaLogDirsResponse:
    """A partition that is to lie where it lies, does. Others are not moved while the server runs, and that is said."""
    errors = {directory.path: directory.error for directory in call.broker.directories.describe()}
    return messages.AlterReplicaLogDirsResponse(
        results=[
            messages.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    messages.AlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=_move(call, TopicPartition(topic.name, number), directory.path, errors),
                    )
                    async for number in in_turns(topic.partitions)
                ],
            )
            for directory in body.dirs
            async for topic in in_turns(directory.topics)
        ]
    )


Errors = Mapping[str, str | None]
"""Path of each log directory -> why it is out of service, None when it serves."""


def _move(call: Call, topic_partition: TopicPartition, path: str, errors: Errors) -> int:
    try:
        _check_move(call, topic_partition, path, errors)
    except RequestError as exc:
        LOGGER.debug("cannot move %s to %s: %s", topic_partition, path, exc)
        return error_code(exc)
    return ErrorCode.NONE


def _check_move(call: Call, topic_partition: TopicPartition, path: str, errors: Errors) -> None:
    if path not in errors:
        raise RequestError(f"no log directory {path}", ErrorCode.LOG_DIR_NOT_FOUND)
    if errors[path] is not None:
        raise RequestError(f"log directory {path} is out of service", ErrorCode.KAFKA_STORAGE_ERROR)
    found = call.broker.directories.of(topic_partition)
    if found != path:
        raise InvalidRequestError(
            f"it is in {found}. Partitions can move only while the server is stopped: move its directory, then start the server"
        )


LAST_WITH_RESULTS: Final = 1
FEATURES: Final = (
    ("group.version", 1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
    ("share.version", 1, ApiKey.SHARE_FETCH, 2),
    ("share.version", 2, ApiKey.TXN_OFFSET_COMMIT, 6),
    ("streams.version", 1, ApiKey.STREAMS_GROUP_HEARTBEAT, 0),
    ("transaction.version", 2, ApiKey.END_TXN, 5),
)
"""The levels of each feature, and the API with its version that Kafka has had since that level is in effect by itself. With
transaction.version 2 producing joins a transaction (KIP-890), with share.version 1 there are share groups (KIP-932), with 2
their dead-letter queues (KIP-1191), with streams.version 1 Streams groups (KIP-1071)."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Types of updates (KIP-778)."""
FIRST_WITH_TYPES: Final = 1
NO_NODE: Final = -1
FIRST_WITH_LOWEST_LEVEL_0: Final = 4
"""Java clients of before 3.9 fail when they meet such a feature in an earlier version."""


def features_of(apis: Mapping[int, Api]) -> dict[str, int]:
    """The highest level of each feature where these APIs are served: an emulated older release has fewer."""
    return {name: level for name, level, key, version in FEATURES if (api := apis.get(key)) and api.highest >= version}


def levels_of(call: Call) -> dict[str, int]:
    """The level of each feature that is in effect; 0: it is disabled."""
    stored = call.broker.broker_configs.levels
    return {name: min(highest, stored.get(name, highest)) for name, highest in features_of(call.door.apis).items()}


def needs(feature: str, handler: Callable[[Call, Any], Any]) -> Callable[[Call, Any], Any]:
    """The handler of an API that belongs to a feature. It raises UNSUPPORTED_VERSION while that is disabled."""

    def handle(call: Call, body: Any) -> Any:
        if not call.broker.broker_configs.levels.get(feature, 1):
            raise UnsupportedVersionError(f"the feature {feature} is disabled. Set its level with UpdateFeatures")
        return handler(call, body)

    return handle


def api_versions(call: Call, body: messages.ApiVersionsRequest | None) -> messages.ApiVersionsResponse:
    """`body` is None when the request's version is not spoken here: then the answer is one of version 0, from which the
    client learns what is."""
    keys = [
        messages.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest) for api in call.door.apis.values()
    ]
    if body is None:
        keys = [key for key in keys if key.api_key == ApiKey.API_VERSIONS]
        return _response(call, ErrorCode.UNSUPPORTED_VERSION, keys, with_levels_from_0=False)
    if (error := _misrouted(call, body)) is not None:
        return _response(call, error, [], with_levels_from_0=False)
    if body.client_software_name:
        call.session.software = f"{body.client_software_name} {body.client_software_version}"
    return _response(call, ErrorCode.NONE, keys, with_levels_from_0=call.version >= FIRST_WITH_LOWEST_LEVEL_0)


def _misrouted(call: Call, body: messages.ApiVersionsRequest) -> ErrorCode | None:
    """Why a client that says whom it means to reach is not answered: it says half of it, or means another node."""
    if body.cluster_id is None and body.node_id == NO_NODE:
        return None
    if body.cluster_id is None or body.node_id == NO_NODE:
        return ErrorCode.INVALID_REQUEST
    is_meant = (body.cluster_id, body.node_id) == (call.broker.cluster_id, call.door.node_id)
    return None if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED


def _response(
    call: Call, error: ErrorCode, keys: list[messages.ApiVersion], *, with_levels_from_0: bool
) -> messages.ApiVersionsResponse:
    features, levels = features_of(call.door.apis), levels_of(call)
    return messages.ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        supported_features=[
            messages.ApiVersionsSupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in features.items()
            if with_levels_from_0
        ],
        finalized_features_epoch=call.broker.broker_configs.generation,
        finalized_features=[
            messages.ApiVersionsFinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level
        ],
        zk_migration_ready=False,
    )


async def update_features(call: Call, body: messages.UpdateFeaturesRequest) -> messages.UpdateFeaturesResponse:
    """Set all feature levels or none. Of several updates of a feature the last one counts, as in Kafka."""
    highest, levels = features_of(call.door.apis), levels_of(call)
    updates = {update.feature: update for update in body.feature_updates}
    for name, update in updates.items():
        kind = update.upgrade_type if call.version >= FIRST_WITH_TYPES else UPGRADE
        why_not = _why_not(name, update.max_version_level, kind, levels.get(name, 0), highest.get(name))
        if why_not is not None:
            raise RequestError(
                f"The update failed for all features since the following feature had an error: Invalid update version "
                f"{update.max_version_level} for feature {name}. {why_not}",
                ErrorCode.INVALID_UPDATE_VERSION,
            )
    if updates and not body.validate_only:
        asked = {name: update.max_version_level for name, update in updates.items()}
        await call.broker.broker_configs.set_levels(
            {name: None if level == highest[name] else level for name, level in asked.items()}
        )
    results = [
        messages.UpdateFeaturesUpdatableFeatureResult(feature=update.feature, error_message=None)
        for update in body.feature_updates
        if call.version <= LAST_WITH_RESULTS
    ]
    return messages.UpdateFeaturesResponse(error_message=None, results=results)


def _why_not(name: str, asked: int, kind: int, level: int, highest: int | None) -> str | None:
    """Why a feature cannot have a level; the order of the checks is Kafka's."""
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"Upgrade type {kind} is not {UPGRADE} (upgrade), {SAFE_DOWNGRADE} or {UNSAFE_DOWNGRADE} (downgrade)."
    if asked < 0:
        return "A feature version cannot be less than 0."
    if highest is None:
        return f"There is no feature {name!r}. Features: {', '.join(sorted({each for each, *_ in FEATURES}))}."
    if asked > highest:
        return f"Versions 0 to {highest} are supported."
    if asked < level and kind == UPGRADE:
        return "To downgrade, set the upgrade type to a safe or unsafe downgrade."
    if asked > level and kind != UPGRADE:
        return f"A downgrade to a newer version: the present one is {level}."
    return None
