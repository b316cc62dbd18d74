"""ACLs as values: what one says, which of them a filter means, and which can be made. Source: KIP-11, KIP-290."""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs

from ...protocol.errors import InvalidRequestError
from ...protocol.kafka.authorization import CLUSTER_NAME, WILDCARD, AclOperation, AclPermission, PatternType, ResourceType

USER_PREFIX: Final = "User:"
EVERYBODY: Final = USER_PREFIX + WILDCARD


class Acl(NamedTuple):
    """One rule: whether a principal may do something from a host on the resources of a pattern."""

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
        raise InvalidRequestError(f"Could not parse principal from `{acl.principal}`: it is TYPE:NAME, as in User:alice")


@attrs.frozen
class AclFilter:
    """Which ACLs are meant; None, and ANY, leave something open. Raises InvalidRequestError when it has what is unknown."""

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
    """Whether the pattern of an ACL covers a resource of its type."""
    if acl.pattern_type is PatternType.PREFIXED:
        return resource_name.startswith(acl.resource_name)
    return acl.resource_name in (WILDCARD, resource_name)
