"""The calls on users who log in with SCRAM, and on ACLs.

`describe_users`, `alter_users` (KIP-554): a client sends salted passwords, never a password. `describe_acls`, `create_acls`,
`delete_acls` (KIP-140, KIP-290): names of resource types, pattern types, operations and permissions are Kafka's.
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ..kinds import BINARY, ERROR, INT32, SECRET, name
from ..structs import RequestMessage, ResponseMessage, Struct, struct, wire

RULE_NAME: Final = name(limits.MAX_RULE_NAME_CHARS)
WORD: Final = name(64)
ANY: Final = "ANY"


@struct
class UserCredential(Struct):
    """A mechanism with which a user can log in, and the iterations of its salted password."""

    user: str = wire(RULE_NAME)
    mechanism: str = wire(WORD)
    iterations: int = wire(INT32)


@struct
class DescribeUsersRequest(RequestMessage):
    """All users with a stored credential."""

    api = "describe_users"


@struct
class DescribeUsersResponse(ResponseMessage):
    """By user and mechanism; users of the configuration's file are not among them."""

    api = "describe_users"

    credentials: tuple[UserCredential, ...] = wire([UserCredential], max_count=limits.INT32_MAX)


@struct
class UserChange(Struct):
    """A credential to store, or without iterations one to delete."""

    user: str = wire(RULE_NAME)
    mechanism: str = wire(WORD)
    iterations: int = wire(INT32, default=0)
    salt: bytes = wire(BINARY, default=b"")
    salted_password: bytes = wire(SECRET, default=b"", shown=False)


@struct
class AlterUsersRequest(RequestMessage):
    """Credentials to store and to delete; each change succeeds or fails alone."""

    api = "alter_users"

    changes: tuple[UserChange, ...] = wire([UserChange])


@struct
class ChangedUser(Struct):
    """The result of one change."""

    user: str = wire(RULE_NAME)
    mechanism: str = wire(WORD)
    error: RequestError | None = wire(ERROR, default=None)


@struct
class AlterUsersResponse(ResponseMessage):
    """The results of the changes, in the same order."""

    api = "alter_users"

    users: tuple[ChangedUser, ...] = wire([ChangedUser])


@struct
class AclEntry(Struct):
    """An ACL or a filter of ACLs, in which None and `ANY` match everything, and the pattern type `MATCH` what covers a name."""

    resource_type: str = wire(WORD, default=ANY)
    resource_name: str | None = wire(RULE_NAME, default=None, nullable=True)
    pattern_type: str = wire(WORD, default=ANY)
    principal: str | None = wire(RULE_NAME, default=None, nullable=True)
    host: str | None = wire(RULE_NAME, default=None, nullable=True)
    operation: str = wire(WORD, default=ANY)
    permission: str = wire(WORD, default=ANY)


@struct
class DescribeAclsRequest(RequestMessage):
    """The ACLs that match a filter."""

    api = "describe_acls"

    filter: AclEntry = wire(AclEntry)


@struct
class DescribeAclsResponse(ResponseMessage):
    """In order of their resources."""

    api = "describe_acls"

    acls: tuple[AclEntry, ...] = wire([AclEntry], max_count=limits.INT32_MAX)


@struct
class CreateAclsRequest(RequestMessage):
    """ACLs to create; each succeeds or fails alone, and one that exists succeeds."""

    api = "create_acls"

    acls: tuple[AclEntry, ...] = wire([AclEntry])


@struct
class CreatedAcl(Struct):
    """The result of one ACL."""

    error: RequestError | None = wire(ERROR, default=None)


@struct
class CreateAclsResponse(ResponseMessage):
    """The results, in the same order."""

    api = "create_acls"

    acls: tuple[CreatedAcl, ...] = wire([CreatedAcl])


@struct
class DeleteAclsRequest(RequestMessage):
    """Filters of the ACLs to delete: of all filters, or of none when one is wrong."""

    api = "delete_acls"

    filters: tuple[AclEntry, ...] = wire([AclEntry])


@struct
class DeleteAclsResponse(ResponseMessage):
    """The deleted ACLs; one that matched two filters appears once."""

    api = "delete_acls"

    acls: tuple[AclEntry, ...] = wire([AclEntry], max_count=limits.INT32_MAX)
