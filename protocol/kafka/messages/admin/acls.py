"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31). v1 pattern types (KIP-290); v3 user resources (KIP-373)."""

from __future__ import annotations

from ....schema.fields import INT8, INT16, INT32, STRING, struct, wire


@struct
class DescribeAclsRequest:
    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, "1+", default=3)
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DescribeAclsAclDescription:
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DescribeAclsResource:
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, "1+", default=3)
    acls: list[DescribeAclsAclDescription] = wire([DescribeAclsAclDescription])


@struct
class DescribeAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    resources: list[DescribeAclsResource] = wire([DescribeAclsResource])


@struct
class CreateAclsAclCreation:
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, "1+", default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class CreateAclsRequest:
    creations: list[CreateAclsAclCreation] = wire([CreateAclsAclCreation])


@struct
class CreateAclsAclCreationResult:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class CreateAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: list[CreateAclsAclCreationResult] = wire([CreateAclsAclCreationResult])


@struct
class DeleteAclsFilter:
    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, "1+", default=3)
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = wire([DeleteAclsFilter])


@struct
class DeleteAclsMatchingAcl:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, "1+", default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DeleteAclsFilterResult:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = wire([DeleteAclsMatchingAcl])


@struct
class DeleteAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: list[DeleteAclsFilterResult] = wire([DeleteAclsFilterResult])
