"""Every call of the native protocol: its versions, its request and its response. All calls are imported from here.

A body is the map that msgpack yields; a message is the checked, frozen value. Requests refuse unknown keys by name, responses
skip them, because a newer server may send more. `decode_steps` reads requests of many entries in steps, so that other
connections get their turn in between. It replaces lists by tuples, which msgpack never yields and `from_body` accepts
unchecked; `from_body` refuses the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, Final

from ..errors import RemoteProtocolError, UnsupportedVersionError
from ..types import Isolation as Isolation
from .calls.connections import *
from .calls.fetch import *
from .calls.groups import *
from .calls.lookups import *
from .calls.produce import *
from .calls.security import *
from .calls.stages import *
from .calls.topics import *
from .calls.transactions import *
from .kinds import Body, FieldError, Kind, Steps, check_keys, describe_value, unexpected
from .structs import Field, Reader, can_be_read_before, fields_of, make_reader
from .structs import Partition as Partition
from .structs import PartitionAnswer as PartitionAnswer
from .structs import RequestMessage as RequestMessage
from .structs import ResponseMessage as ResponseMessage
from .structs import TopicAnswer as TopicAnswer

VERSION: Final = 1
"""The version of every call so far."""

_CALLS: Final[dict[str, tuple[type[RequestMessage], type[ResponseMessage]]]] = {
    "hello": (HelloRequest, HelloResponse),
    "authenticate": (AuthenticateRequest, AuthenticateResponse),
    "produce": (ProduceRequest, ProduceResponse),
    "fetch": (FetchRequest, FetchResponse),
    "offsets_for_times": (OffsetsForTimesRequest, OffsetsForTimesResponse),
    "explain": (ExplainRequest, ExplainResponse),
    "metadata": (MetadataRequest, MetadataResponse),
    "create_topics": (CreateTopicsRequest, CreateTopicsResponse),
    "delete_topics": (DeleteTopicsRequest, DeleteTopicsResponse),
    "describe_configs": (DescribeConfigsRequest, DescribeConfigsResponse),
    "create_partitions": (CreatePartitionsRequest, CreatePartitionsResponse),
    "alter_configs": (AlterConfigsRequest, AlterConfigsResponse),
    "delete_records": (DeleteRecordsRequest, DeleteRecordsResponse),
    "init_producer": (InitProducerRequest, InitProducerResponse),
    "end_transaction": (EndTransactionRequest, EndTransactionResponse),
    "list_transactions": (ListTransactionsRequest, ListTransactionsResponse),
    "describe_transactions": (DescribeTransactionsRequest, DescribeTransactionsResponse),
    "describe_producers": (DescribeProducersRequest, DescribeProducersResponse),
    "abort_transaction": (AbortTransactionRequest, AbortTransactionResponse),
    "abort_hanging_transactions": (AbortHangingTransactionsRequest, AbortHangingTransactionsResponse),
    "commit_offsets": (CommitOffsetsRequest, CommitOffsetsResponse),
    "fetch_offsets": (FetchOffsetsRequest, FetchOffsetsResponse),
    "list_groups": (ListGroupsRequest, ListGroupsResponse),
    "describe_groups": (DescribeGroupsRequest, DescribeGroupsResponse),
    "delete_groups": (DeleteGroupsRequest, DeleteGroupsResponse),
    "alter_share_group_offsets": (AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
    "describe_quotas": (DescribeQuotasRequest, DescribeQuotasResponse),
    "alter_quotas": (AlterQuotasRequest, AlterQuotasResponse),
    "describe_users": (DescribeUsersRequest, DescribeUsersResponse),
    "alter_users": (AlterUsersRequest, AlterUsersResponse),
    "describe_acls": (DescribeAclsRequest, DescribeAclsResponse),
    "create_acls": (CreateAclsRequest, CreateAclsResponse),
    "delete_acls": (DeleteAclsRequest, DeleteAclsResponse),
    "list_gaps": (ListGapsRequest, ListGapsResponse),
    "accept_gaps": (AcceptGapsRequest, AcceptGapsResponse),
    "describe_segments": (DescribeSegmentsRequest, DescribeSegmentsResponse),
    "split_points": (SplitPointsRequest, SplitPointsResponse),
    "stage": (StageRequest, StageResponse),
    "commit_stage": (CommitStageRequest, CommitStageResponse),
    "abort_stage": (AbortStageRequest, AbortStageResponse),
    "last_commit": (LastCommitRequest, LastCommitResponse),
    "lease_segments": (LeaseSegmentsRequest, LeaseSegmentsResponse),
    "list_connections": (ListConnectionsRequest, ListConnectionsResponse),
    "statistics": (StatisticsRequest, StatisticsResponse),
}
for _api, _messages in _CALLS.items():
    for _message in _messages:
        _message.api = _api
REQUESTS: Final = {api: request for api, (request, _) in _CALLS.items()}
RESPONSES: Final = {api: response for api, (_, response) in _CALLS.items()}
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
        raise UnsupportedVersionError(f"version {version} of {api!r} requested, this server has {VERSION} to {VERSION}")
    try:
        check_keys(body, request.keys)
    except FieldError as exc:
        raise exc.within(api) from None
    return request


def decode_response(api: str, version: int, body: Body) -> ResponseMessage:
    """The message of an answer's body; RemoteProtocolError when it has not the shape it should have."""
    assert (api in RESPONSES, version) == (True, VERSION), f"{api!r} version {version} was not requested"
    try:
        return RESPONSES[api].from_body(body)
    except FieldError as exc:
        raise RemoteProtocolError(f"the server's response: {exc.within(api).message}") from exc


ENTRIES_PER_PAUSE: Final = 64
"""At 3 us each."""
VALUES_PER_ENTRY: Final = 16
"""Values of an entry's own array or map that take as long as an entry."""


def decode_steps(api: str, version: int, body: Body) -> Generator[None, None, RequestMessage]:
    """`messages.decode_request` in steps. The body is used up."""
    request = checked_request(api, version, body)
    try:
        yield from _read_ahead(request, body)
    except FieldError as exc:
        raise exc.within(api) from None
    return decode_request(api, version, body)


@cache
def _fields_with_steps(cls: type) -> Sequence[Field]:
    return [field for field in fields_of(cls) if can_be_read_before(field)]


def _read_ahead(cls: type, body: Body) -> Steps:
    """Puts what can be read in steps into a map as tuples."""
    for field in _fields_with_steps(cls):
        values = body.get(field.name)
        if type(values) is not list:
            continue
        if isinstance(field.shape, Kind) and field.shape.read_steps is not None:
            body[field.name] = yield from field.shape.read_steps(values, field.name)
        elif isinstance(field.shape, list) and len(values) <= field.max_count:
            read = make_reader(field.shape[0], in_request=True, checks_keys=True)
            body[field.name] = yield from _entries(field.shape[0], values, field.name, read)


def _entries(cls: type, values: list[Any], key: str, decode: Reader) -> Generator[None, None, tuple[Any, ...]]:
    """Read entries in steps and return the result of `codec.read_entries`. It empties the list meanwhile, so that little
    memory is left to free at the end."""
    read: list[Any] = []
    steps = 0
    try:
        for index, entry in enumerate(values):
            if type(entry) is not dict:
                raise unexpected("", entry, "map")
            steps += 1 + sum(len(each) for each in entry.values() if type(each) in (list, dict)) // VALUES_PER_ENTRY
            yield from _read_ahead(cls, entry)
            read.append(decode(entry))
            values[index] = None
            if steps >= ENTRIES_PER_PAUSE:
                steps = 0
                yield
    except FieldError as exc:
        raise exc.within(f"{key}[{len(read)}]") from None
    return tuple(read)
