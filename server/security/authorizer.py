"""Who may do what by ACLs (Kafka: StandardAuthorizer).

A super user may do everything. Of the ACLs whose pattern covers the resource, those count whose principal, host and operation
fit: one that denies is stronger than any that allow. Where none fits, nothing is allowed, unless no pattern covers the resource
at all and `allow_everyone_if_no_acl_found`. To be allowed READ, WRITE, DELETE or ALTER is to be allowed DESCRIBE, ALTER_CONFIGS
to be allowed DESCRIBE_CONFIGS; to be denied them denies nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from ...protocol.kafka.authorization import WILDCARD, AclOperation, AclPermission, PatternType, ResourceType
from .acls import EVERYBODY, Acl

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
        """Whether the principal may do this on the resource."""
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
        """Whether there may be a resource of the type on which the principal may, be it there or not: an ACL allows it for a
        pattern that no other one denies as a whole."""
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
    """Whether what one ACL allows lies within what another one denies."""
    if _is_everything(allow):
        return False
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is PatternType.LITERAL and allow.resource_name == deny.resource_name
