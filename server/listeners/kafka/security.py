"""DescribeAcls, CreateAcls, DeleteAcls. Source: KIP-11, KIP-140, KIP-290; Kafka's AclApis and AclControlManager.

DescribeClientQuotas and AlterClientQuotas. What they lead to is in `server.access.quotas`. Source: ClientQuotasImage,
ClientQuotaControlManager, KIP-546.

SaslHandshake and SaslAuthenticate, which lead to `login`; DescribeUserScramCredentials and AlterUserScramCredentials: users
that clients make. Source: KIP-43, KIP-152, KIP-554, Kafka's ScramControlManager and ScramImage.

Clients send what they have salted, no password; the users of the configuration's file are not listed and cannot be changed.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from ....protocol.kafka.messages import security as messages
from ....protocol.kafka.scram import ScramCredential, ScramMechanism
from ...broker import (
    ENTITY_TYPES,
    IP,
    Acl,
    AclFilter,
    QuotaEntity,
    check_new_acl,
    check_quota,
    check_user_name,
    checked_entity,
    new_credential,
)
from ...loop.procedures import in_turns
from .door import Call, filled, reported

E = TypeVar("E", bound=enum.IntEnum)

MAX_FIELD_CHARACTERS: Final = 4096
"""Of a name, a principal or a host in an ACL: what is kept for ever has a limit."""


def _member(kind: type[E], value: int) -> E:
    """The member with this number, or UNKNOWN (0)."""
    return kind(value) if value in set(kind) else kind(0)


def _filter(asked: messages.DescribeAclsRequest | messages.DescribeAclsRequest) -> AclFilter:
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


def describe_acls(call: Call, body: messages.DescribeAclsRequest) -> messages.DescribeAclsResponse:
    """The ACLs that match a filter, by resource."""
    _check(call, AclOperation.DESCRIBE)
    found = call.broker.security.acls(_filter(body))
    resources: dict[tuple[ResourceType, str, PatternType], list[messages.DescribeAclsAclDescription]] = {}
    for acl in found:
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
            filled(messages.DescribeAclsAclDescription, acl, permission_type=acl.permission)
        )
    return messages.DescribeAclsResponse(
        error_message=None,
        resources=[
            messages.DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )


async def create_acls(call: Call, body: messages.CreateAclsRequest) -> messages.CreateAclsResponse:
    """Create ACLs; each has its own result, and one that exists already succeeds."""
    results: list[RequestError | None] = []
    new: list[Acl] = []
    _check(call, AclOperation.ALTER)
    async for asked in in_turns(body.creations):
        try:
            new.append(_new_acl(asked))
            results.append(None)
        except RequestError as exc:
            results.append(exc.as_answer())
    await call.broker.security.create_acls(new)
    return messages.CreateAclsResponse(results=[reported(messages.CreateAclsAclCreationResult, error) for error in results])


def _new_acl(asked: messages.CreateAclsAclCreation) -> Acl:
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


async def delete_acls(call: Call, body: messages.DeleteAclsRequest) -> messages.DeleteAclsResponse:
    """Delete the ACLs that match each filter and list them."""
    _check(call, AclOperation.ALTER)
    filters: list[AclFilter | RequestError] = []
    async for asked in in_turns(body.filters):
        try:
            filters.append(_filter(asked))
        except RequestError as exc:
            filters.append(exc.as_answer())
    found = iter(await call.broker.security.delete_acls([each for each in filters if isinstance(each, AclFilter)]))
    results = [
        reported(messages.DeleteAclsFilterResult, each) if isinstance(each, RequestError) else _deleted(next(found))
        for each in filters
    ]
    return messages.DeleteAclsResponse(filter_results=results)


def _deleted(acls: list[Acl]) -> messages.DeleteAclsFilterResult:
    matching = [filled(messages.DeleteAclsMatchingAcl, acl, error_message=None, permission_type=acl.permission) for acl in acls]
    return messages.DeleteAclsFilterResult(error_message=None, matching_acls=matching)


EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Types of matches."""
ENTITIES_PER_TURN: Final = 256
"""That are compared before others have their turn."""

Values = Mapping[str, float | None]
"""By key; None: to be removed."""
Named = tuple[tuple[str, str | None], ...]
"""An entity as it is named in a request, which may be wrong."""


# ---- DescribeClientQuotas --------------------------------------------------------------------------------------------------


async def describe_client_quotas(
    call: Call, body: messages.DescribeClientQuotasRequest
) -> messages.DescribeClientQuotasResponse:
    """The quotas of all entities that have every part asked for, and no others if that is `strict`."""
    _check_filter(body.components)
    found = [
        _entry(entity, values)
        async for entity, values in in_turns(list(call.broker.security.client_quotas().items()), ENTITIES_PER_TURN)
        if _matches(dict(entity), body)
    ]
    return messages.DescribeClientQuotasResponse(error_message="", entries=found)


def _check_filter(components: Sequence[messages.DescribeClientQuotasComponentData]) -> None:
    counts = Counter(component.entity_type for component in components)
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("an entity type is empty")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"entity type {kind!r}: use one of {', '.join(ENTITY_TYPES)}")
        if counts[kind] > 1:
            raise InvalidRequestError(f"entity type {kind} is given more than once")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise InvalidRequestError(f"match type {component.match_type}: 0 is exact, 1 the default, 2 any")
        if (component.match is None) == (component.match_type == EXACT):
            raise InvalidRequestError(f"entity type {kind}: only match type 0, exact, has a name")
    if IP in counts and len(counts) > 1:
        raise InvalidRequestError("addresses are not combined with users and client ids")


def _matches(parts: Mapping[str, str | None], body: messages.DescribeClientQuotasRequest) -> bool:
    if body.strict and len(parts) != len(body.components):
        return False
    return all(
        each.entity_type in parts and (each.match_type == ANY or parts[each.entity_type] == each.match)
        for each in body.components
    )


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> messages.DescribeClientQuotasEntryData:
    return messages.DescribeClientQuotasEntryData(
        entity=[messages.QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[messages.DescribeClientQuotasValueData(key=key, value=value) for key, value in values.items()],
    )


# ---- AlterClientQuotas -----------------------------------------------------------------------------------------------------


async def alter_client_quotas(call: Call, body: messages.AlterClientQuotasRequest) -> messages.AlterClientQuotasResponse:
    """All changes of an entity are made, or none; in effect, and on the device, when this is answered. There is one answer for
    each entity, however often it is named."""
    counts = Counter([_named(entry) async for entry in in_turns(body.entries)])
    changes: dict[QuotaEntity, Values] = {}
    errors: dict[Named, RequestError | None] = {}
    async for entry in in_turns(body.entries):
        named = _named(entry)
        try:
            entity, values = _checked(entry, is_repeated=counts[named] > 1)
            changes[entity], errors[named] = values, None
        except RequestError as exc:
            errors[named] = exc.as_answer()
    if changes and not body.validate_only:
        try:
            await call.broker.security.alter_client_quotas(changes)
        except RequestError as exc:
            errors = {named: error or exc.as_answer() for named, error in errors.items()}
    return messages.AlterClientQuotasResponse(entries=[_answered(named, error) for named, error in errors.items()])


def _named(entry: messages.AlterClientQuotasEntryData) -> Named:
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _checked(entry: messages.AlterClientQuotasEntryData, *, is_repeated: bool) -> tuple[QuotaEntity, Values]:
    values = {op.key: None if op.remove else op.value for op in entry.ops}
    if is_repeated or len(values) < len(entry.ops):
        raise InvalidRequestError("an entity, or one of its keys, is given more than once")
    entity = checked_entity((each.entity_type, each.entity_name) for each in entry.entity)
    for key, value in values.items():
        if value is not None:
            check_quota(entity, key, value)
    return entity, values


def _answered(named: Named, error: RequestError | None) -> messages.AlterClientQuotasResponseEntryData:
    return reported(
        messages.AlterClientQuotasResponseEntryData,
        error,
        entity=[messages.QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in named],
    )


Key = tuple[str, ScramMechanism]
Change = messages.AlterUserScramCredentialsScramCredentialDeletion | messages.AlterUserScramCredentialsScramCredentialUpsertion


async def describe_user_scram_credentials(
    call: Call, body: messages.DescribeUserScramCredentialsRequest
) -> messages.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations by user; all users for none in particular."""
    users: dict[str, list[messages.DescribeUserScramCredentialsCredentialInfo]] = {}
    for (user, mechanism), credential in sorted(call.broker.security.scram_users().items()):
        info = messages.DescribeUserScramCredentialsCredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        users.setdefault(user, []).append(info)
    asked = [user.name for user in body.users or ()] or list(users)
    results = [_described(name, users.get(name), count) async for name, count in in_turns(Counter(asked).items())]
    return messages.DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    user: str, infos: list[messages.DescribeUserScramCredentialsCredentialInfo] | None, count: int
) -> messages.DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif infos is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return messages.DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=[] if code else infos or []
    )


async def alter_user_scram_credentials(
    call: Call, body: messages.AlterUserScramCredentialsRequest
) -> messages.AlterUserScramCredentialsResponse:
    """All changes of a user are made, or none; in effect, and on the device, when this is answered."""
    users = dict.fromkeys([each.name for each in body.deletions] + [each.name for each in body.upsertions])
    errors: dict[str, RequestError] = {}
    try:
        call.check_authorized(AclOperation.ALTER, ResourceType.CLUSTER)
        upsertions, deletions, errors = _changes(call, body)
        await call.broker.security.alter_scram_users(upsertions, deletions)
    except RequestError as exc:
        errors = dict.fromkeys(users, exc) | errors
    return messages.AlterUserScramCredentialsResponse(results=[_result(user, errors.get(user)) for user in users])


def _result(user: str, error: RequestError | None) -> messages.AlterUserScramCredentialsResult:
    return reported(messages.AlterUserScramCredentialsResult, error, user=user)


def _changes(
    call: Call, body: messages.AlterUserScramCredentialsRequest
) -> tuple[dict[Key, ScramCredential], list[Key], dict[str, RequestError]]:
    """(credentials to store, credentials to delete, users with a wrong change and their errors)."""
    known = call.broker.security.scram_users()
    upsertions: dict[Key, ScramCredential] = {}
    deletions: list[Key] = []
    errors: dict[str, RequestError] = {}
    seen: set[tuple[str, int]] = set()
    changes: list[Change] = [*body.deletions, *body.upsertions]
    for each in changes:
        try:
            check_user_name(each.name)
            if each.mechanism not in set(ScramMechanism):
                raise RequestError("Unknown SCRAM mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            if (each.name, each.mechanism) in seen:
                message = "A user credential cannot be altered twice in the same request"
                raise RequestError(message, ErrorCode.DUPLICATE_RESOURCE)
            seen.add((each.name, each.mechanism))
            key = each.name, ScramMechanism(each.mechanism)
            if isinstance(each, messages.AlterUserScramCredentialsScramCredentialUpsertion):
                upsertions[key] = new_credential(key[1], each.iterations, bytes(each.salt), bytes(each.salted_password))
            elif key in known:
                deletions.append(key)
            else:
                message = "Attempt to delete a user credential that does not exist"
                raise RequestError(message, ErrorCode.RESOURCE_NOT_FOUND)
        except RequestError as exc:
            errors.setdefault(each.name, exc.as_answer())
    kept = {key: credential for key, credential in upsertions.items() if key[0] not in errors}
    return kept, [key for key in deletions if key[0] not in errors], errors


def sasl_handshake(call: Call, body: messages.SaslHandshakeRequest) -> messages.SaslHandshakeResponse:
    """Version 0 is followed by bare tokens, version 1 by SaslAuthenticate."""
    login = call.login
    if login is None:
        raise RequestError("no listener accepts logins", ErrorCode.ILLEGAL_SASL_STATE)
    return login.choose(body.mechanism, tokens_follow=call.version == 0)


async def sasl_authenticate(call: Call, body: messages.SaslAuthenticateRequest) -> messages.SaslAuthenticateResponse:
    """A token of the exchange that SaslHandshake began."""
    login = call.login
    if login is None or login.is_done:
        message = "SaslAuthenticate request received after successful authentication"
        raise RequestError(message, ErrorCode.ILLEGAL_SASL_STATE)
    return await login.take(body.auth_bytes)
