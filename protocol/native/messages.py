"""Every call of the native protocol: its versions, its request and its answer. The door to the values of all calls.

A body is the map that msgpack yields; a message is the checked, frozen value. Requests refuse unknown keys by name,
answers skip them, because a newer server may say more.
"""

from __future__ import annotations

from typing import Final

from ..errors import RemoteProtocolError, UnsupportedVersionError
from ..types import Isolation
from .explain import (
    ExplainPartition,
    ExplainPartitionResponse,
    ExplainRequest,
    ExplainResponse,
)
from .fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    Format,
    Gaps,
)
from .fields import Body, FieldError, check_keys, describe
from .group_members import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse, GroupMember
from .groups import (
    CommitOffsetsPartitionResponse,
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    CommittedPartition,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FetchOffsetsPartitionResponse,
    FetchOffsetsRequest,
    FetchOffsetsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetsPartition,
)
from .hello import HelloRequest, HelloResponse
from .leases import (
    LeasedSegment,
    LeasePartition,
    LeasePartitionResponse,
    LeaseSegmentsRequest,
    LeaseSegmentsResponse,
)
from .lookups import (
    OffsetsForTimesPartition,
    OffsetsForTimesPartitionResponse,
    OffsetsForTimesRequest,
    OffsetsForTimesResponse,
)
from .metadata import MetadataRequest, MetadataResponse, PartitionMetadata, TopicMetadata
from .produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    PlainRecord,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from .splits import (
    SplitPoint,
    SplitPointsPartition,
    SplitPointsPartitionResponse,
    SplitPointsRequest,
    SplitPointsResponse,
)
from .stages import (
    NO_VERSION,
    AbortStageRequest,
    AbortStageResponse,
    CommitStageRequest,
    CommitStageResponse,
    LastCommitRequest,
    LastCommitResponse,
    StageCommittedPartition,
    StagedPartition,
    StagedTask,
    StagePartition,
    StagePartitionResponse,
    StageRequest,
    StageResponse,
)
from .statistics import StatisticsRequest, StatisticsResponse
from .topic_changes import (
    TO_HIGH_WATERMARK,
    AlterConfigsRequest,
    AlterConfigsResponse,
    ChangedTopic,
    ConfigChange,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    NewPartitions,
)
from .topics import (
    ConfigEntry,
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    NewTopic,
    TopicConfig,
)
from .transactions import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    EndTransactionRequest,
    EndTransactionResponse,
    InitProducerRequest,
    InitProducerResponse,
    TransactionProducer,
)

RequestMessage = (
    HelloRequest
    | ProduceRequest
    | FetchRequest
    | OffsetsForTimesRequest
    | ExplainRequest
    | MetadataRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | DescribeConfigsRequest
    | CreatePartitionsRequest
    | AlterConfigsRequest
    | DeleteRecordsRequest
    | InitProducerRequest
    | EndTransactionRequest
    | CommitOffsetsRequest
    | FetchOffsetsRequest
    | ListGroupsRequest
    | DescribeGroupsRequest
    | DeleteGroupsRequest
    | SplitPointsRequest
    | StageRequest
    | CommitStageRequest
    | AbortStageRequest
    | LastCommitRequest
    | LeaseSegmentsRequest
    | StatisticsRequest
)
ResponseMessage = (
    HelloResponse
    | ProduceResponse
    | FetchResponse
    | OffsetsForTimesResponse
    | ExplainResponse
    | MetadataResponse
    | CreateTopicsResponse
    | DeleteTopicsResponse
    | DescribeConfigsResponse
    | CreatePartitionsResponse
    | AlterConfigsResponse
    | DeleteRecordsResponse
    | InitProducerResponse
    | EndTransactionResponse
    | CommitOffsetsResponse
    | FetchOffsetsResponse
    | ListGroupsResponse
    | DescribeGroupsResponse
    | DeleteGroupsResponse
    | SplitPointsResponse
    | StageResponse
    | CommitStageResponse
    | AbortStageResponse
    | LastCommitResponse
    | LeaseSegmentsResponse
    | StatisticsResponse
)

VERSION: Final = 1
"""The version of every call so far."""

REQUESTS: Final[dict[str, type[RequestMessage]]] = {
    request.api: request
    for request in (
        HelloRequest,
        ProduceRequest,
        FetchRequest,
        OffsetsForTimesRequest,
        ExplainRequest,
        MetadataRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        DescribeConfigsRequest,
        CreatePartitionsRequest,
        AlterConfigsRequest,
        DeleteRecordsRequest,
        InitProducerRequest,
        EndTransactionRequest,
        CommitOffsetsRequest,
        FetchOffsetsRequest,
        ListGroupsRequest,
        DescribeGroupsRequest,
        DeleteGroupsRequest,
        SplitPointsRequest,
        StageRequest,
        CommitStageRequest,
        AbortStageRequest,
        LastCommitRequest,
        LeaseSegmentsRequest,
        StatisticsRequest,
    )
}
RESPONSES: Final[dict[str, type[ResponseMessage]]] = {
    response.api: response
    for response in (
        HelloResponse,
        ProduceResponse,
        FetchResponse,
        OffsetsForTimesResponse,
        ExplainResponse,
        MetadataResponse,
        CreateTopicsResponse,
        DeleteTopicsResponse,
        DescribeConfigsResponse,
        CreatePartitionsResponse,
        AlterConfigsResponse,
        DeleteRecordsResponse,
        InitProducerResponse,
        EndTransactionResponse,
        CommitOffsetsResponse,
        FetchOffsetsResponse,
        ListGroupsResponse,
        DescribeGroupsResponse,
        DeleteGroupsResponse,
        SplitPointsResponse,
        StageResponse,
        CommitStageResponse,
        AbortStageResponse,
        LastCommitResponse,
        LeaseSegmentsResponse,
        StatisticsResponse,
    )
}
API_VERSIONS: Final = dict.fromkeys(REQUESTS, (VERSION, VERSION))
"""What hello lists: the calls that exist and the versions of each, inclusive."""


def decode_request(api: str, version: int, body: Body) -> RequestMessage:
    """The message of a request's body.

    UnsupportedVersionError for a call or version that does not exist; InvalidRequestError with the key's path, what was
    found and what was expected for anything wrong in the body.
    """
    request = checked_request(api, version, body)
    try:
        return request.from_body(body)
    except FieldError as exc:
        raise exc.within(api) from None


def checked_request(api: str, version: int, body: Body) -> type[RequestMessage]:
    """The class of a request that exists in this version and has no keys but its own. Raises what `decode_request` raises."""
    request = REQUESTS.get(api)
    if request is None:
        raise UnsupportedVersionError(f"api is {describe(api)}, this server has {', '.join(REQUESTS)}")
    if version != VERSION:
        raise UnsupportedVersionError(f"version {version} of {api!r} was asked for, this server has {VERSION} to {VERSION}")
    try:
        check_keys(body, request.keys)
    except FieldError as exc:
        raise exc.within(api) from None
    return request


def decode_response(api: str, version: int, body: Body) -> ResponseMessage:
    """The message of an answer's body; RemoteProtocolError when it has not the shape it should have."""
    assert (api in RESPONSES, version) == (True, VERSION), f"{api!r} version {version} was never asked for"
    try:
        return RESPONSES[api].from_body(body)
    except FieldError as exc:
        raise RemoteProtocolError(f"the server's answer: {exc.within(api).message}") from exc


__all__ = [
    "ACKS_ALL",
    "ACKS_LEADER",
    "ACKS_NONE",
    "API_VERSIONS",
    "DEFAULT_TRANSACTION_TIMEOUT_MS",
    "NO_VERSION",
    "REQUESTS",
    "RESPONSES",
    "TO_HIGH_WATERMARK",
    "VERSION",
    "AbortStageRequest",
    "AbortStageResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "ChangedTopic",
    "CommitOffsetsPartitionResponse",
    "CommitOffsetsRequest",
    "CommitOffsetsResponse",
    "CommitStageRequest",
    "CommitStageResponse",
    "CommittedPartition",
    "ConfigChange",
    "ConfigEntry",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "CreatedTopic",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DeletedGroup",
    "DeletedTopic",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "EndTransactionRequest",
    "EndTransactionResponse",
    "ExplainPartition",
    "ExplainPartitionResponse",
    "ExplainRequest",
    "ExplainResponse",
    "FetchOffsetsPartitionResponse",
    "FetchOffsetsRequest",
    "FetchOffsetsResponse",
    "FetchPartition",
    "FetchPartitionResponse",
    "FetchRequest",
    "FetchResponse",
    "Format",
    "Gaps",
    "GroupMember",
    "HelloRequest",
    "HelloResponse",
    "InitProducerRequest",
    "InitProducerResponse",
    "Isolation",
    "LastCommitRequest",
    "LastCommitResponse",
    "LeasePartition",
    "LeasePartitionResponse",
    "LeaseSegmentsRequest",
    "LeaseSegmentsResponse",
    "LeasedSegment",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "NewPartitions",
    "NewTopic",
    "OffsetsForTimesPartition",
    "OffsetsForTimesPartitionResponse",
    "OffsetsForTimesRequest",
    "OffsetsForTimesResponse",
    "OffsetsPartition",
    "PartitionMetadata",
    "PlainRecord",
    "ProducePartition",
    "ProducePartitionResponse",
    "ProduceRequest",
    "ProduceResponse",
    "RequestMessage",
    "ResponseMessage",
    "SplitPoint",
    "SplitPointsPartition",
    "SplitPointsPartitionResponse",
    "SplitPointsRequest",
    "SplitPointsResponse",
    "StageCommittedPartition",
    "StagePartition",
    "StagePartitionResponse",
    "StageRequest",
    "StageResponse",
    "StagedPartition",
    "StagedTask",
    "StatisticsRequest",
    "StatisticsResponse",
    "TopicConfig",
    "TopicMetadata",
    "TransactionProducer",
    "checked_request",
    "decode_request",
    "decode_response",
]
