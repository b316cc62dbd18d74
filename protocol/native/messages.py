"""Every call of the native protocol: its versions, its request and its answer. The door to the values of all calls.

A body is the map that msgpack yields; a message is the checked, frozen value. Requests refuse unknown keys by name,
answers skip them, because a newer server may say more.
"""

from __future__ import annotations

from typing import Final

from ..errors import RemoteProtocolError, UnsupportedVersionError
from ..types import Isolation
from .calls.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Format, Gaps, end_of
from .calls.gaps import (
    NOT_KNOWN,
    AcceptGapsPartition,
    AcceptGapsPartitionResponse,
    AcceptGapsRequest,
    AcceptGapsResponse,
    Gap,
    ListGapsRequest,
    ListGapsResponse,
    PartitionGaps,
    TopicGaps,
)
from .calls.group_members import (
    Deliveries,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupMember,
    SharedPartition,
)
from .calls.groups import (
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
from .calls.hello import AuthenticateRequest, AuthenticateResponse, HelloRequest, HelloResponse
from .calls.lookups import (
    ExplainPartition,
    ExplainPartitionResponse,
    ExplainRequest,
    ExplainResponse,
    OffsetsForTimesPartition,
    OffsetsForTimesPartitionResponse,
    OffsetsForTimesRequest,
    OffsetsForTimesResponse,
)
from .calls.metadata import MetadataRequest, MetadataResponse, PartitionMetadata, TopicMetadata
from .calls.parallel_reading import (
    LeasedSegment,
    LeasePartition,
    LeasePartitionResponse,
    LeaseSegmentsRequest,
    LeaseSegmentsResponse,
    SplitPoint,
    SplitPointsPartition,
    SplitPointsPartitionResponse,
    SplitPointsRequest,
    SplitPointsResponse,
)
from .calls.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    PlainRecord,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from .calls.quotas import (
    AlteredQuota,
    AlterQuotasRequest,
    AlterQuotasResponse,
    DescribeQuotasRequest,
    DescribeQuotasResponse,
    Quota,
    QuotaPart,
    QuotaValue,
)
from .calls.stages import (
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
from .calls.statistics import StatisticsRequest, StatisticsResponse
from .calls.topic_changes import (
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
from .calls.topics import (
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
from .calls.transactions import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    EndTransactionRequest,
    EndTransactionResponse,
    InitProducerRequest,
    InitProducerResponse,
    TransactionProducer,
)
from .fields import Body, FieldError, check_keys, describe_value
from .structs import RequestMessage, ResponseMessage

VERSION: Final = 1
"""The version of every call so far."""

_CALLS: Final[tuple[tuple[type[RequestMessage], type[ResponseMessage]], ...]] = (
    (HelloRequest, HelloResponse),
    (AuthenticateRequest, AuthenticateResponse),
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (OffsetsForTimesRequest, OffsetsForTimesResponse),
    (ExplainRequest, ExplainResponse),
    (MetadataRequest, MetadataResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (CreatePartitionsRequest, CreatePartitionsResponse),
    (AlterConfigsRequest, AlterConfigsResponse),
    (DeleteRecordsRequest, DeleteRecordsResponse),
    (InitProducerRequest, InitProducerResponse),
    (EndTransactionRequest, EndTransactionResponse),
    (CommitOffsetsRequest, CommitOffsetsResponse),
    (FetchOffsetsRequest, FetchOffsetsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (DescribeQuotasRequest, DescribeQuotasResponse),
    (AlterQuotasRequest, AlterQuotasResponse),
    (ListGapsRequest, ListGapsResponse),
    (AcceptGapsRequest, AcceptGapsResponse),
    (SplitPointsRequest, SplitPointsResponse),
    (StageRequest, StageResponse),
    (CommitStageRequest, CommitStageResponse),
    (AbortStageRequest, AbortStageResponse),
    (LastCommitRequest, LastCommitResponse),
    (LeaseSegmentsRequest, LeaseSegmentsResponse),
    (StatisticsRequest, StatisticsResponse),
)
REQUESTS: Final = {request.api: request for request, _ in _CALLS}
RESPONSES: Final = {response.api: response for _, response in _CALLS}
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
        raise UnsupportedVersionError(f"api is {describe_value(api)}, this server has {', '.join(REQUESTS)}")
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
    "NOT_KNOWN",
    "NO_VERSION",
    "REQUESTS",
    "RESPONSES",
    "TO_HIGH_WATERMARK",
    "VERSION",
    "AbortStageRequest",
    "AbortStageResponse",
    "AcceptGapsPartition",
    "AcceptGapsPartitionResponse",
    "AcceptGapsRequest",
    "AcceptGapsResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlterQuotasRequest",
    "AlterQuotasResponse",
    "AlteredQuota",
    "AuthenticateRequest",
    "AuthenticateResponse",
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
    "Deliveries",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeQuotasRequest",
    "DescribeQuotasResponse",
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
    "Gap",
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
    "ListGapsRequest",
    "ListGapsResponse",
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
    "PartitionGaps",
    "PartitionMetadata",
    "PlainRecord",
    "ProducePartition",
    "ProducePartitionResponse",
    "ProduceRequest",
    "ProduceResponse",
    "Quota",
    "QuotaPart",
    "QuotaValue",
    "RequestMessage",
    "ResponseMessage",
    "SharedPartition",
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
    "TopicGaps",
    "TopicMetadata",
    "TransactionProducer",
    "checked_request",
    "decode_request",
    "decode_response",
    "end_of",
]
