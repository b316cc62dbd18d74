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
    (DescribeUsersRequest, DescribeUsersResponse),
    (AlterUsersRequest, AlterUsersResponse),
    (DescribeAclsRequest, DescribeAclsResponse),
    (CreateAclsRequest, CreateAclsResponse),
    (DeleteAclsRequest, DeleteAclsResponse),
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
