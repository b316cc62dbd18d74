"""DescribeAcls, CreateAcls, DeleteAcls. Source: KIP-11, KIP-140, KIP-290; Kafka's AclApis and AclControlManager."""

from __future__ import annotations

import enum
from typing import Final, TypeVar

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from ....protocol.kafka.messages.security import (
    CreateAclsAclCreation,
    CreateAclsAclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsAclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ...broker import Acl, AclFilter, check_new_acl
from ...loop.procedures import in_turns
from .door import Call, error_code, error_message

E = TypeVar("E", bound=enum.IntEnum)

MAX_FIELD_CHARACTERS: Final = 4096
"""Of a name, a principal or a host in an ACL: what is kept for ever has a limit."""


def _member(kind: type[E], value: int) -> E:
    """The member with this number, or UNKNOWN (0)."""
    return kind(value) if value in set(kind) else kind(0)


def _filter(asked: DescribeAclsRequest) -> AclFilter:
    """Raises InvalidRequestError."""
    return AclFilter(
        _member(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        _member(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        _member(AclOperation, asked.operation),
        _member(AclPermission, asked.permission_type),
    )


def _check(call: Call, operation: AclOperation) -> None:
    if call.broker.security.authorizer is None:
        raise RequestError("No Authorizer is configured: acl_enable is false", ErrorCode.SECURITY_DISABLED)
    call.check_authorized(operation, ResourceType.CLUSTER)


def describe_acls(call: Call, body: DescribeAclsRequest) -> DescribeAclsResponse:
    """The ACLs that match a filter, by resource."""
    try:
        _check(call, AclOperation.DESCRIBE)
        found = call.broker.security.acls(_filter(body))
    except RequestError as exc:
        return DescribeAclsResponse(error_code=exc.code, error_message=exc.message, resources=[])
    resources: dict[tuple[ResourceType, str, PatternType], list[DescribeAclsAclDescription]] = {}
    for acl in found:
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
            DescribeAclsAclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )


async def create_acls(call: Call, body: CreateAclsRequest) -> CreateAclsResponse:
    """Create ACLs; each has its own result, and one that exists already succeeds."""
    results: list[RequestError | None] = []
    new: list[Acl] = []
    try:
        _check(call, AclOperation.ALTER)
        async for asked in in_turns(body.creations):
            try:
                new.append(_new_acl(asked))
                results.append(None)
            except RequestError as exc:
                results.append(exc.as_answer())
        await call.broker.security.create_acls(new)
    except RequestError as exc:
        results = [exc.as_answer()] * len(body.creations)
    return CreateAclsResponse(
        results=[
            CreateAclsAclCreationResult(error_code=error_code(error), error_message=error_message(error)) for error in results
        ]
    )


def _new_acl(asked: CreateAclsAclCreation) -> Acl:
    acl = Acl(
        _member(ResourceType, asked.resource_type),
        asked.resource_name,
        _member(PatternType, asked.resource_pattern_type),
        asked.principal,
        asked.host,
        _member(AclOperation, asked.operation),
        _member(AclPermission, asked.permission_type),
    )
    check_new_acl(acl)
    if max(len(acl.resource_name), len(acl.principal), len(acl.host)) > MAX_FIELD_CHARACTERS:
        raise RequestError(f"an ACL has fields of at most {MAX_FIELD_CHARACTERS} characters", ErrorCode.INVALID_REQUEST)
    return acl


async def delete_acls(call: Call, body: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the ACLs that match each filter and list them."""
    results: list[DeleteAclsFilterResult] = []
    try:
        _check(call, AclOperation.ALTER)
    except RequestError as exc:
        return DeleteAclsResponse(filter_results=[_refused(exc)] * len(body.filters))
    filters: list[AclFilter | RequestError] = []
    async for asked in in_turns(body.filters):
        try:
            filters.append(_filter(asked))
        except RequestError as exc:
            filters.append(exc.as_answer())
    try:
        found = iter(await call.broker.security.delete_acls([each for each in filters if isinstance(each, AclFilter)]))
    except RequestError as exc:
        return DeleteAclsResponse(filter_results=[_refused(exc)] * len(body.filters))
    for each in filters:
        results.append(_refused(each) if isinstance(each, RequestError) else _deleted(next(found)))
    return DeleteAclsResponse(filter_results=results)


def _refused(error: RequestError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[])


def _deleted(acls: list[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ],
    )
