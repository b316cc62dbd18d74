"""ACLs as values: what one says, which of them a filter means, and which can be made. Source: KIP-11, KIP-290.

Who may do what by ACLs (Kafka: StandardAuthorizer).

A super user may do everything. Of the ACLs whose pattern covers the resource, those count whose principal, host and operation
fit: one that denies is stronger than any that allow. Where none fits, nothing is allowed, unless no pattern covers the resource
at all and `allow_everyone_if_no_acl_found`. To be allowed READ, WRITE, DELETE or ALTER is to be allowed DESCRIBE, ALTER_CONFIGS
to be allowed DESCRIBE_CONFIGS; to be denied them denies nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import attrs

from ...protocol.errors import InvalidRequestError
from ...protocol.kafka.authorization import CLUSTER_NAME, WILDCARD, AclOperation, AclPermission, PatternType, ResourceType

USER_PREFIX: Final = "User:"
EVERYBODY: Final = USER_PREFIX + WILDCARD


class Acl(NamedTuple):
    """A rule that allows or denies a principal an operation from a host on the resources of a pattern."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


def check_new_acl(acl: Acl) -> None:
    """Raises InvalidRequestError for one that cannot be made, in Kafka's order."""
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequestError(f"Invalid resourceType {acl.resource_type.name}")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise InvalidRequestError("Invalid empty resource name")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequestError(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise InvalidRequestError(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise InvalidRequestError(f"Invalid permissionType {acl.permission.name}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidRequestError(f"Could not parse principal from `{acl.principal}`: use TYPE:NAME, as in User:alice")


@attrs.frozen
class AclFilter:
    """A filter of ACLs; None and ANY match anything. Raises InvalidRequestError for unknown values."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def __attrs_post_init__(self) -> None:
        for name in ("resource_type", "pattern_type", "operation", "permission"):
            if not getattr(self, name):
                raise InvalidRequestError(f"a filter of ACLs has an unknown {name}")

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            return is_about(acl, self.resource_name)
        return self.resource_name == acl.resource_name


def is_about(acl: Acl, resource_name: str) -> bool:
    """Return whether the pattern of an ACL covers a resource of its type."""
    if acl.pattern_type is PatternType.PREFIXED:
        return resource_name.startswith(acl.resource_name)
    return acl.resource_name in (WILDCARD, resource_name)


MAX_REMEMBERED: Final = 10_000
"""Decisions that are remembered until the ACLs change."""
MAX_NAME_CHARS: Final = 1_000
"""Decisions on longer names are not remembered."""

IMPLIED: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}
"""By operation: what an ACL has to allow."""

Question = tuple[str, str, AclOperation, ResourceType, str]
"""(principal, host, operation, resource type, resource name)."""


@attrs.define(eq=False, repr=False)
class AclAuthorizer:
    """The ACLs, in order of what they are about. Owner: the broker's security."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False
    _literal: dict[tuple[ResourceType, str], list[Acl]] = attrs.field(factory=dict)
    _prefixed: dict[tuple[ResourceType, str], list[Acl]] = attrs.field(factory=dict)
    _prefix_lengths: list[int] = attrs.field(factory=list)
    _decided: dict[Question, bool] = attrs.field(factory=dict)

    def replace(self, acls: Iterable[Acl]) -> None:
        """Replace all ACLs and forget earlier decisions."""
        self._decided.clear()
        self._literal.clear()
        self._prefixed.clear()
        for acl in acls:
            place = self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal
            place.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
        self._prefix_lengths = sorted({len(name) for _, name in self._prefixed})

    def known(self, question: Question) -> bool | None:
        """The earlier decision on this question, or None."""
        return self._decided.get(question)

    def decide(self, question: Question) -> bool:
        """Return whether the principal may perform the operation on the resource."""
        if len(self._decided) >= MAX_REMEMBERED:
            self._decided.clear()
        answer = self._decide(*question)
        principal, _, _, _, name = question
        if len(principal) + len(name) <= MAX_NAME_CHARS:
            self._decided[question] = answer
        return answer

    def _decide(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        if principal in self.super_users:
            return True
        is_covered = is_allowed = False
        for acl in self._covering(kind, name):
            is_covered = True
            if acl.principal not in (principal, EVERYBODY) or acl.host not in (WILDCARD, host):
                continue
            if acl.permission is AclPermission.DENY:
                if acl.operation in (AclOperation.ALL, operation):
                    return False
            elif _allows(acl, operation):
                is_allowed = True
        return is_allowed or (not is_covered and self.allow_everyone_if_no_acl_found)

    def _covering(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._prefix_lengths:
            if length > len(name):
                return
            yield from self._prefixed.get((kind, name[:length]), ())

    def may_on_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether the principal may perform the operation on some resource of the type, which need not exist. An ACL has
        to allow it for a pattern that no other ACL denies as a whole."""
        if principal in self.super_users:
            return True
        fitting = [
            acl
            for acls in (*self._literal.values(), *self._prefixed.values())
            for acl in acls
            if acl.resource_type is kind and acl.principal in (principal, EVERYBODY) and acl.host in (WILDCARD, host)
        ]
        denied = [
            acl for acl in fitting if acl.permission is AclPermission.DENY and acl.operation in (AclOperation.ALL, operation)
        ]
        if any(_is_everything(acl) for acl in denied):
            return False
        allowed = [acl for acl in fitting if acl.permission is AclPermission.ALLOW and _allows(acl, operation)]
        if not allowed and self.allow_everyone_if_no_acl_found:
            return True
        return any(not any(_takes_all_of(deny, allow) for deny in denied) for allow in allowed)


def _allows(acl: Acl, operation: AclOperation) -> bool:
    return acl.operation is AclOperation.ALL or acl.operation in IMPLIED.get(operation, (operation,))


def _is_everything(acl: Acl) -> bool:
    return acl.resource_name == WILDCARD and acl.pattern_type is PatternType.LITERAL


def _takes_all_of(deny: Acl, allow: Acl) -> bool:
    """Return whether the denying ACL covers every resource of the allowing ACL."""
    if _is_everything(allow):
        return False
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is PatternType.LITERAL and allow.resource_name == deny.resource_name
