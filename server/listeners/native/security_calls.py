"""The native calls on SCRAM users and ACLs: values in, values out."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeVar

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from ....protocol.kafka.scram import ScramCredential, ScramMechanism
from ....protocol.native import messages
from ...broker import Acl, AclFilter, Broker, Security, check_new_acl, check_user_name, new_credential
from ...loop.procedures import in_turns

E = TypeVar("E", bound=enum.IntEnum)
Key = tuple[str, ScramMechanism]


async def describe_users(broker: Broker, message: messages.DescribeUsersRequest) -> messages.DescribeUsersResponse:
    stored = sorted(broker.security.scram_users().items())
    found = [
        messages.UserCredential(user, mechanism.sasl_name, credential.iterations)
        async for (user, mechanism), credential in in_turns(stored)
    ]
    return messages.DescribeUsersResponse(tuple(found))


async def alter_users(broker: Broker, message: messages.AlterUsersRequest) -> messages.AlterUsersResponse:
    """All changes that are right are made together; in effect, and on the device, when this returns."""
    known = broker.security.scram_users()
    changes: dict[Key, ScramCredential | None] = {}
    results: list[messages.ChangedUser] = []
    async for each in in_turns(message.changes):
        error = None
        try:
            check_user_name(each.user)
            key = each.user, _mechanism(each.mechanism)
            if key in changes:
                raise RequestError("a credential cannot be changed twice in one request", ErrorCode.DUPLICATE_RESOURCE)
            if each.iterations:
                changes[key] = new_credential(key[1], each.iterations, each.salt, each.salted_password)
            elif key in known:
                changes[key] = None
            else:
                raise RequestError(f"user {each.user!r} has no {each.mechanism} credential", ErrorCode.RESOURCE_NOT_FOUND)
        except RequestError as exc:
            error = exc.as_answer()
        results.append(messages.ChangedUser(each.user, each.mechanism, error))
    if changes:
        stored = {key: credential for key, credential in changes.items() if credential is not None}
        await broker.security.alter_scram_users(stored, changes.keys() - stored.keys())
    return messages.AlterUsersResponse(tuple(results))


async def describe_acls(broker: Broker, message: messages.DescribeAclsRequest) -> messages.DescribeAclsResponse:
    return messages.DescribeAclsResponse(_entries(_with_acls(broker).acls(_filter(message.filter))))


async def create_acls(broker: Broker, message: messages.CreateAclsRequest) -> messages.CreateAclsResponse:
    """All ACLs that are right are created together; in effect, and on the device, when this returns."""
    security = _with_acls(broker)
    new: list[Acl] = []
    results: list[messages.CreatedAcl] = []
    async for each in in_turns(message.acls):
        error = None
        try:
            new.append(_acl(each))
        except RequestError as exc:
            error = exc.as_answer()
        results.append(messages.CreatedAcl(error))
    if new:
        await security.create_acls(new)
    return messages.CreateAclsResponse(tuple(results))


async def delete_acls(broker: Broker, message: messages.DeleteAclsRequest) -> messages.DeleteAclsResponse:
    """In effect, and on the device, when this returns."""
    security = _with_acls(broker)
    found = await security.delete_acls([_filter(each) async for each in in_turns(message.filters)])
    return messages.DeleteAclsResponse(_entries(dict.fromkeys(acl for acls in found for acl in acls)))


def _with_acls(broker: Broker) -> Security:
    if broker.security.authorizer is None:
        raise RequestError("ACLs are not enforced: acl_enable is false", ErrorCode.SECURITY_DISABLED)
    return broker.security


def _mechanism(text: str) -> ScramMechanism:
    try:
        return ScramMechanism[text.replace("-", "_")]
    except KeyError:
        known = ", ".join(each.sasl_name for each in ScramMechanism)
        raise RequestError(f"{text!r} is not one of {known}", ErrorCode.UNSUPPORTED_SASL_MECHANISM) from None


def _member(kind: type[E], text: str) -> E:
    try:
        return kind[text]
    except KeyError:
        known = ", ".join(each.name for each in kind if each)
        raise InvalidRequestError(f"{text!r} is not one of {known}") from None


def _filter(entry: messages.AclEntry) -> AclFilter:
    return AclFilter(
        _member(ResourceType, entry.resource_type),
        entry.resource_name,
        _member(PatternType, entry.pattern_type),
        entry.principal,
        entry.host,
        _member(AclOperation, entry.operation),
        _member(AclPermission, entry.permission),
    )


def _acl(entry: messages.AclEntry) -> Acl:
    wanted = _filter(entry)
    acl = Acl(
        wanted.resource_type,
        wanted.resource_name or "",
        wanted.pattern_type,
        wanted.principal or "",
        wanted.host or "*",
        wanted.operation,
        wanted.permission,
    )
    check_new_acl(acl)
    return acl


def _entries(acls: Iterable[Acl]) -> tuple[messages.AclEntry, ...]:
    return tuple(
        messages.AclEntry(
            acl.resource_type.name,
            acl.resource_name,
            acl.pattern_type.name,
            acl.principal,
            acl.host,
            acl.operation.name,
            acl.permission.name,
        )
        for acl in acls
    )
