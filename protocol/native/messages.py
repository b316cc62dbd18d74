"""Every call of the native protocol: its versions, its request and its answer. The door to the values of all calls.

A body is the map that msgpack yields; a message is the checked, frozen value. Requests refuse unknown keys by name,
answers skip them, because a newer server may say more.
"""

from __future__ import annotations

from typing import Final

from ..errors import RemoteProtocolError, UnsupportedVersionError
from ..types import Isolation as Isolation
from .calls.fetch import FetchPartition as FetchPartition
from .calls.fetch import FetchPartitionResponse as FetchPartitionResponse
from .calls.fetch import FetchRequest as FetchRequest
from .calls.fetch import FetchResponse as FetchResponse
from .calls.fetch import Format as Format
from .calls.fetch import Gaps as Gaps
from .calls.fetch import end_of as end_of
from .calls.gaps import NOT_KNOWN as NOT_KNOWN
from .calls.gaps import AcceptGapsPartition as AcceptGapsPartition
from .calls.gaps import AcceptGapsPartitionResponse as AcceptGapsPartitionResponse
from .calls.gaps import AcceptGapsRequest as AcceptGapsRequest
from .calls.gaps import AcceptGapsResponse as AcceptGapsResponse
from .calls.gaps import Gap as Gap
from .calls.gaps import ListGapsRequest as ListGapsRequest
from .calls.gaps import ListGapsResponse as ListGapsResponse
from .calls.gaps import PartitionGaps as PartitionGaps
from .calls.gaps import TopicGaps as TopicGaps
from .calls.group_members import Deliveries as Deliveries
from .calls.group_members import DescribedGroup as DescribedGroup
from .calls.group_members import DescribeGroupsRequest as DescribeGroupsRequest
from .calls.group_members import DescribeGroupsResponse as DescribeGroupsResponse
from .calls.group_members import GroupMember as GroupMember
from .calls.group_members import SharedPartition as SharedPartition
from .calls.groups import AlterShareGroupOffsetsPartitionResponse as AlterShareGroupOffsetsPartitionResponse
from .calls.groups import AlterShareGroupOffsetsRequest as AlterShareGroupOffsetsRequest
from .calls.groups import AlterShareGroupOffsetsResponse as AlterShareGroupOffsetsResponse
from .calls.groups import CommitOffsetsPartitionResponse as CommitOffsetsPartitionResponse
from .calls.groups import CommitOffsetsRequest as CommitOffsetsRequest
from .calls.groups import CommitOffsetsResponse as CommitOffsetsResponse
from .calls.groups import CommittedPartition as CommittedPartition
from .calls.groups import DeletedGroup as DeletedGroup
from .calls.groups import DeleteGroupsRequest as DeleteGroupsRequest
from .calls.groups import DeleteGroupsResponse as DeleteGroupsResponse
from .calls.groups import FetchOffsetsPartitionResponse as FetchOffsetsPartitionResponse
from .calls.groups import FetchOffsetsRequest as FetchOffsetsRequest
from .calls.groups import FetchOffsetsResponse as FetchOffsetsResponse
from .calls.groups import ListGroupsRequest as ListGroupsRequest
from .calls.groups import ListGroupsResponse as ListGroupsResponse
from .calls.groups import OffsetsPartition as OffsetsPartition
from .calls.groups import SharedStart as SharedStart
from .calls.hello import AuthenticateRequest as AuthenticateRequest
from .calls.hello import AuthenticateResponse as AuthenticateResponse
from .calls.hello import HelloRequest as HelloRequest
from .calls.hello import HelloResponse as HelloResponse
from .calls.lookups import ExplainPartition as ExplainPartition
from .calls.lookups import ExplainPartitionResponse as ExplainPartitionResponse
from .calls.lookups import ExplainRequest as ExplainRequest
from .calls.lookups import ExplainResponse as ExplainResponse
from .calls.lookups import OffsetsForTimesPartition as OffsetsForTimesPartition
from .calls.lookups import OffsetsForTimesPartitionResponse as OffsetsForTimesPartitionResponse
from .calls.lookups import OffsetsForTimesRequest as OffsetsForTimesRequest
from .calls.lookups import OffsetsForTimesResponse as OffsetsForTimesResponse
from .calls.metadata import MetadataRequest as MetadataRequest
from .calls.metadata import MetadataResponse as MetadataResponse
from .calls.metadata import PartitionMetadata as PartitionMetadata
from .calls.metadata import TopicMetadata as TopicMetadata
from .calls.parallel_reading import LeasedSegment as LeasedSegment
from .calls.parallel_reading import LeasePartition as LeasePartition
from .calls.parallel_reading import LeasePartitionResponse as LeasePartitionResponse
from .calls.parallel_reading import LeaseSegmentsRequest as LeaseSegmentsRequest
from .calls.parallel_reading import LeaseSegmentsResponse as LeaseSegmentsResponse
from .calls.parallel_reading import SplitPoint as SplitPoint
from .calls.parallel_reading import SplitPointsPartition as SplitPointsPartition
from .calls.parallel_reading import SplitPointsPartitionResponse as SplitPointsPartitionResponse
from .calls.parallel_reading import SplitPointsRequest as SplitPointsRequest
from .calls.parallel_reading import SplitPointsResponse as SplitPointsResponse
from .calls.produce import ACKS_ALL as ACKS_ALL
from .calls.produce import ACKS_LEADER as ACKS_LEADER
from .calls.produce import ACKS_NONE as ACKS_NONE
from .calls.produce import PlainRecord as PlainRecord
from .calls.produce import ProducePartition as ProducePartition
from .calls.produce import ProducePartitionResponse as ProducePartitionResponse
from .calls.produce import ProduceRequest as ProduceRequest
from .calls.produce import ProduceResponse as ProduceResponse
from .calls.quotas import AlteredQuota as AlteredQuota
from .calls.quotas import AlterQuotasRequest as AlterQuotasRequest
from .calls.quotas import AlterQuotasResponse as AlterQuotasResponse
from .calls.quotas import DescribeQuotasRequest as DescribeQuotasRequest
from .calls.quotas import DescribeQuotasResponse as DescribeQuotasResponse
from .calls.quotas import Quota as Quota
from .calls.quotas import QuotaPart as QuotaPart
from .calls.quotas import QuotaValue as QuotaValue
from .calls.stages import NO_VERSION as NO_VERSION
from .calls.stages import AbortStageRequest as AbortStageRequest
from .calls.stages import AbortStageResponse as AbortStageResponse
from .calls.stages import CommitStageRequest as CommitStageRequest
from .calls.stages import CommitStageResponse as CommitStageResponse
from .calls.stages import LastCommitRequest as LastCommitRequest
from .calls.stages import LastCommitResponse as LastCommitResponse
from .calls.stages import StageCommittedPartition as StageCommittedPartition
from .calls.stages import StagedPartition as StagedPartition
from .calls.stages import StagedTask as StagedTask
from .calls.stages import StagePartition as StagePartition
from .calls.stages import StagePartitionResponse as StagePartitionResponse
from .calls.stages import StageRequest as StageRequest
from .calls.stages import StageResponse as StageResponse
from .calls.statistics import StatisticsRequest as StatisticsRequest
from .calls.statistics import StatisticsResponse as StatisticsResponse
from .calls.topic_changes import TO_HIGH_WATERMARK as TO_HIGH_WATERMARK
from .calls.topic_changes import AlterConfigsRequest as AlterConfigsRequest
from .calls.topic_changes import AlterConfigsResponse as AlterConfigsResponse
from .calls.topic_changes import ChangedTopic as ChangedTopic
from .calls.topic_changes import ConfigChange as ConfigChange
from .calls.topic_changes import CreatePartitionsRequest as CreatePartitionsRequest
from .calls.topic_changes import CreatePartitionsResponse as CreatePartitionsResponse
from .calls.topic_changes import DeleteRecordsPartition as DeleteRecordsPartition
from .calls.topic_changes import DeleteRecordsPartitionResponse as DeleteRecordsPartitionResponse
from .calls.topic_changes import DeleteRecordsRequest as DeleteRecordsRequest
from .calls.topic_changes import DeleteRecordsResponse as DeleteRecordsResponse
from .calls.topic_changes import NewPartitions as NewPartitions
from .calls.topics import ConfigEntry as ConfigEntry
from .calls.topics import CreatedTopic as CreatedTopic
from .calls.topics import CreateTopicsRequest as CreateTopicsRequest
from .calls.topics import CreateTopicsResponse as CreateTopicsResponse
from .calls.topics import DeletedTopic as DeletedTopic
from .calls.topics import DeleteTopicsRequest as DeleteTopicsRequest
from .calls.topics import DeleteTopicsResponse as DeleteTopicsResponse
from .calls.topics import DescribeConfigsRequest as DescribeConfigsRequest
from .calls.topics import DescribeConfigsResponse as DescribeConfigsResponse
from .calls.topics import NewTopic as NewTopic
from .calls.topics import TopicConfig as TopicConfig
from .calls.transactions import DEFAULT_TRANSACTION_TIMEOUT_MS as DEFAULT_TRANSACTION_TIMEOUT_MS
from .calls.transactions import AbortedHangingTransaction as AbortedHangingTransaction
from .calls.transactions import AbortHangingTransactionsRequest as AbortHangingTransactionsRequest
from .calls.transactions import AbortHangingTransactionsResponse as AbortHangingTransactionsResponse
from .calls.transactions import AbortTransactionRequest as AbortTransactionRequest
from .calls.transactions import AbortTransactionResponse as AbortTransactionResponse
from .calls.transactions import EndTransactionRequest as EndTransactionRequest
from .calls.transactions import EndTransactionResponse as EndTransactionResponse
from .calls.transactions import HangingTransaction as HangingTransaction
from .calls.transactions import InitProducerRequest as InitProducerRequest
from .calls.transactions import InitProducerResponse as InitProducerResponse
from .calls.transactions import TransactionProducer as TransactionProducer
from .calls.views.connections import ListConnectionsRequest as ListConnectionsRequest
from .calls.views.connections import ListConnectionsResponse as ListConnectionsResponse
from .calls.views.connections import ListedConnection as ListedConnection
from .calls.views.segments import DescribedSegment as DescribedSegment
from .calls.views.segments import DescribeSegmentsPartition as DescribeSegmentsPartition
from .calls.views.segments import DescribeSegmentsPartitionResponse as DescribeSegmentsPartitionResponse
from .calls.views.segments import DescribeSegmentsRequest as DescribeSegmentsRequest
from .calls.views.segments import DescribeSegmentsResponse as DescribeSegmentsResponse
from .calls.views.transactions import DescribedProducer as DescribedProducer
from .calls.views.transactions import DescribedTransaction as DescribedTransaction
from .calls.views.transactions import DescribeProducersPartition as DescribeProducersPartition
from .calls.views.transactions import DescribeProducersPartitionResponse as DescribeProducersPartitionResponse
from .calls.views.transactions import DescribeProducersRequest as DescribeProducersRequest
from .calls.views.transactions import DescribeProducersResponse as DescribeProducersResponse
from .calls.views.transactions import DescribeTransactionsRequest as DescribeTransactionsRequest
from .calls.views.transactions import DescribeTransactionsResponse as DescribeTransactionsResponse
from .calls.views.transactions import ListedTransaction as ListedTransaction
from .calls.views.transactions import ListTransactionsRequest as ListTransactionsRequest
from .calls.views.transactions import ListTransactionsResponse as ListTransactionsResponse
from .calls.views.transactions import TransactionPartition as TransactionPartition
from .fields import Body, FieldError, check_keys, describe_value
from .structs import RequestMessage as RequestMessage
from .structs import ResponseMessage as ResponseMessage

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
    (ListTransactionsRequest, ListTransactionsResponse),
    (DescribeTransactionsRequest, DescribeTransactionsResponse),
    (DescribeProducersRequest, DescribeProducersResponse),
    (AbortTransactionRequest, AbortTransactionResponse),
    (AbortHangingTransactionsRequest, AbortHangingTransactionsResponse),
    (CommitOffsetsRequest, CommitOffsetsResponse),
    (FetchOffsetsRequest, FetchOffsetsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
    (DescribeQuotasRequest, DescribeQuotasResponse),
    (AlterQuotasRequest, AlterQuotasResponse),
    (ListGapsRequest, ListGapsResponse),
    (AcceptGapsRequest, AcceptGapsResponse),
    (DescribeSegmentsRequest, DescribeSegmentsResponse),
    (SplitPointsRequest, SplitPointsResponse),
    (StageRequest, StageResponse),
    (CommitStageRequest, CommitStageResponse),
    (AbortStageRequest, AbortStageResponse),
    (LastCommitRequest, LastCommitResponse),
    (LeaseSegmentsRequest, LeaseSegmentsResponse),
    (ListConnectionsRequest, ListConnectionsResponse),
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
