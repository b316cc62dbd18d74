"""The call `describe_groups`: who is in a group right now, and who reads what. Members join over Kafka's protocol."""

from __future__ import annotations

from typing import ClassVar

import attrs

from .. import limits
from ..errors import RequestError
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body
from .groups import OffsetsPartition


def _text(body: Body, key: str) -> str:
    """A str that may be empty, and is when it is absent."""
    return fields.optional_string(body, key, limits.MAX_STRING_CHARS) or ""


@attrs.frozen
class DescribeGroupsRequest:
    """Groups to be described, each succeeds or fails alone."""

    api: ClassVar[str] = "describe_groups"
    keys: ClassVar[frozenset[str]] = fields.names("groups")

    groups: tuple[str, ...]

    @classmethod
    def from_body(cls, body: Body) -> DescribeGroupsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.strings(body, "groups", limits.MAX_PARTITIONS_PER_REQUEST, limits.MAX_STRING_CHARS))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"groups": list(self.groups)}


@attrs.frozen
class GroupMember:
    """A member, and the partitions that it reads; none while the group rebalances, or when it is no consumer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[OffsetsPartition, ...] = ()

    @classmethod
    def from_body(cls, entry: Body) -> GroupMember:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            _text(entry, "member_id"),
            fields.optional_string(entry, "group_instance_id", limits.MAX_STRING_CHARS),
            _text(entry, "client_id"),
            _text(entry, "client_host"),
            fields.entries(entry, "assignment", OffsetsPartition.from_body, limits.INT32_MAX),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.group_instance_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "assignment": [partition.to_body() for partition in self.assignment],
        }


@attrs.frozen
class DescribedGroup:
    """One group, or why it cannot be described."""

    group: str
    error: RequestError | None = None
    state: str = ""
    type: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()

    @classmethod
    def from_body(cls, entry: Body) -> DescribedGroup:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.string(entry, "group", limits.MAX_STRING_CHARS),
            decode_error(entry.get("error")),
            _text(entry, "state"),
            _text(entry, "type"),
            _text(entry, "protocol_type"),
            _text(entry, "protocol"),
            fields.entries(entry, "members", GroupMember.from_body, limits.INT32_MAX),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "group": self.group,
            "error": encode_error(self.error),
            "state": self.state,
            "type": self.type,
            "protocol_type": self.protocol_type,
            "protocol": self.protocol,
            "members": [member.to_body() for member in self.members],
        }


@attrs.frozen
class DescribeGroupsResponse:
    """One entry per group, in the same order."""

    api: ClassVar[str] = "describe_groups"

    groups: tuple[DescribedGroup, ...]

    @classmethod
    def from_body(cls, body: Body) -> DescribeGroupsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "groups", DescribedGroup.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"groups": [group.to_body() for group in self.groups]}
