"""Logins, ACLs and client quotas: SaslHandshake (17), SaslAuthenticate (36), Describe and AlterUserScramCredentials (50, 51;
KIP-554), DescribeAcls (29), CreateAcls (30), DeleteAcls (31), DescribeClientQuotas (48), AlterClientQuotas (49; KIP-546).

SaslHandshake: v0 is followed by bare tokens, v1 by SaslAuthenticate (KIP-152), whose v1 says how long a login lasts (KIP-368).
ACLs: v1 pattern types (KIP-290); v3 user resources (KIP-373).
"""

from __future__ import annotations

from ...schema.fields import BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, STRING, struct, wire
from ..apis import USER_NAME
from .responses import Response, ResponseWithCode


@struct
class SaslHandshakeRequest:
    mechanism: str = wire(STRING)


@struct
class SaslHandshakeResponse:
    error_code: int = wire(INT16, default=0)
    mechanisms: list[str] = wire([STRING])


@struct
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire(BYTES, shown=False)


@struct
class SaslAuthenticateResponse:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    auth_bytes: bytes = wire(BYTES, shown=False)
    session_lifetime_ms: int = wire(INT64, "1+")


@struct
class DescribeUserScramCredentialsUserName:
    name: str = wire(USER_NAME)


@struct
class DescribeUserScramCredentialsRequest:
    users: list[DescribeUserScramCredentialsUserName] | None = wire([DescribeUserScramCredentialsUserName], nullable="0+")


@struct
class DescribeUserScramCredentialsCredentialInfo:
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@struct
class DescribeUserScramCredentialsResult:
    user: str = wire(USER_NAME)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    credential_infos: list[DescribeUserScramCredentialsCredentialInfo] = wire([DescribeUserScramCredentialsCredentialInfo])


@struct
class DescribeUserScramCredentialsResponse(ResponseWithCode):
    error_message: str | None = wire(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = wire([DescribeUserScramCredentialsResult])


@struct
class AlterUserScramCredentialsScramCredentialDeletion:
    name: str = wire(USER_NAME)
    mechanism: int = wire(INT8)


@struct
class AlterUserScramCredentialsScramCredentialUpsertion:
    name: str = wire(USER_NAME)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES, shown=False)


@struct
class AlterUserScramCredentialsRequest:
    deletions: list[AlterUserScramCredentialsScramCredentialDeletion] = wire([AlterUserScramCredentialsScramCredentialDeletion])
    upsertions: list[AlterUserScramCredentialsScramCredentialUpsertion] = wire(
        [AlterUserScramCredentialsScramCredentialUpsertion]
    )


@struct
class AlterUserScramCredentialsResult:
    user: str = wire(USER_NAME)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class AlterUserScramCredentialsResponse(Response):
    results: list[AlterUserScramCredentialsResult] = wire([AlterUserScramCredentialsResult])


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
class DescribeAclsResponse(ResponseWithCode):
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
class CreateAclsResponse(Response):
    results: list[CreateAclsAclCreationResult] = wire([CreateAclsAclCreationResult])


@struct
class DeleteAclsRequest:
    filters: list[DescribeAclsRequest] = wire([DescribeAclsRequest])


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
class DeleteAclsResponse(Response):
    filter_results: list[DeleteAclsFilterResult] = wire([DeleteAclsFilterResult])


@struct
class DescribeClientQuotasComponentData:
    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable="0+")


@struct
class DescribeClientQuotasRequest:
    components: list[DescribeClientQuotasComponentData] = wire([DescribeClientQuotasComponentData])
    strict: bool = wire(BOOL)


@struct
class QuotaEntityData:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@struct
class DescribeClientQuotasValueData:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@struct
class DescribeClientQuotasEntryData:
    entity: list[QuotaEntityData] = wire([QuotaEntityData])
    values: list[DescribeClientQuotasValueData] = wire([DescribeClientQuotasValueData])


@struct
class DescribeClientQuotasResponse(ResponseWithCode):
    error_message: str | None = wire(STRING, nullable="0+")
    entries: list[DescribeClientQuotasEntryData] | None = wire([DescribeClientQuotasEntryData], nullable="0+")


@struct
class AlterClientQuotasOpData:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@struct
class AlterClientQuotasEntryData:
    entity: list[QuotaEntityData] = wire([QuotaEntityData])
    ops: list[AlterClientQuotasOpData] = wire([AlterClientQuotasOpData])


@struct
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasEntryData] = wire([AlterClientQuotasEntryData])
    validate_only: bool = wire(BOOL)


@struct
class AlterClientQuotasResponseEntryData:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    entity: list[QuotaEntityData] = wire([QuotaEntityData])


@struct
class AlterClientQuotasResponse(Response):
    entries: list[AlterClientQuotasResponseEntryData] = wire([AlterClientQuotasResponseEntryData])
