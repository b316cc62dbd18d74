"""The calls on groups without members: `commit_offsets`, `fetch_offsets`, `list_groups`, `delete_groups`.

A group is a name under which offsets are kept, in the log `__consumer_offsets`; it exists from its first commit on.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from .. import limits
from ..errors import RequestError
from ..types import NO_OFFSET
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body
from .transactions import TransactionProducer


def _read_group(body: Body) -> str:
    """A group that may be there: clients of Kafka's protocol make some with names longer than those of this one."""
    return fields.string(body, "group", limits.MAX_STRING_CHARS)


@attrs.frozen
class CommittedPartition:
    """An offset to keep for a partition: of the record to be read next. `metadata` is the group's own note."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "offset", "metadata")

    topic: str
    partition: int
    offset: int
    metadata: str | None = None

    @classmethod
    def from_body(cls, entry: Body) -> CommittedPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            fields.int64(entry, "offset"),
            fields.optional_string(entry, "metadata", limits.MAX_STRING_CHARS),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset, "metadata": self.metadata}


@attrs.frozen
class CommitOffsetsRequest:
    """Keep these offsets; with `transaction` they take effect when that commits, and never if it aborts."""

    api: ClassVar[str] = "commit_offsets"
    keys: ClassVar[frozenset[str]] = fields.names("group", "partitions", "transaction")

    group: str
    partitions: tuple[CommittedPartition, ...]
    transaction: TransactionProducer | None = None

    @classmethod
    def from_body(cls, body: Body) -> CommitOffsetsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        partitions = fields.entries(body, "partitions", CommittedPartition.from_body)
        transaction = None
        if body.get("transaction") is not None:
            entry = fields.map_at(body, "transaction")
            try:
                fields.check_keys(entry, TransactionProducer.keys)
                transaction = TransactionProducer.from_body(entry)
            except fields.FieldError as exc:
                raise exc.within("transaction") from None
        return cls(fields.string(body, "group", limits.MAX_GROUP_ID_CHARS), partitions, transaction)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "group": self.group,
            "partitions": [partition.to_body() for partition in self.partitions],
            "transaction": None if self.transaction is None else self.transaction.to_body(),
        }


@attrs.frozen
class CommitOffsetsPartitionResponse:
    """What became of one partition's offset."""

    topic: str
    partition: int
    error: RequestError | None = None

    @classmethod
    def from_body(cls, entry: Body) -> CommitOffsetsPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(fields.topic(entry), fields.int32(entry, "partition"), decode_error(entry.get("error")))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topic": self.topic, "partition": self.partition, "error": encode_error(self.error)}


@attrs.frozen
class CommitOffsetsResponse:
    """One entry per partition, in the same order."""

    api: ClassVar[str] = "commit_offsets"

    partitions: tuple[CommitOffsetsPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> CommitOffsetsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", CommitOffsetsPartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class OffsetsPartition:
    """A partition whose committed offset is asked for."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition")

    topic: str
    partition: int

    @classmethod
    def from_body(cls, entry: Body) -> OffsetsPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(fields.topic(entry), fields.int32(entry, "partition"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topic": self.topic, "partition": self.partition}


@attrs.frozen
class FetchOffsetsRequest:
    """The offsets that a group has committed for these partitions; None: for all it has any for.

    With `require_stable` an offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT (KIP-447).
    """

    api: ClassVar[str] = "fetch_offsets"
    keys: ClassVar[frozenset[str]] = fields.names("group", "partitions", "require_stable")

    group: str
    partitions: tuple[OffsetsPartition, ...] | None = None
    require_stable: bool = False

    @classmethod
    def from_body(cls, body: Body) -> FetchOffsetsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        partitions = None
        if body.get("partitions") is not None:
            partitions = fields.entries(body, "partitions", OffsetsPartition.from_body)
        return cls(_read_group(body), partitions, fields.boolean(body, "require_stable", False))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "group": self.group,
            "partitions": None if self.partitions is None else [each.to_body() for each in self.partitions],
            "require_stable": self.require_stable,
        }


@attrs.frozen
class FetchOffsetsPartitionResponse:
    """The committed offset of one partition; -1 when there is none."""

    topic: str
    partition: int
    error: RequestError | None = None
    offset: int = NO_OFFSET
    metadata: str | None = None

    @classmethod
    def from_body(cls, entry: Body) -> FetchOffsetsPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "offset", NO_OFFSET),
            fields.optional_string(entry, "metadata", limits.MAX_STRING_CHARS),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "offset": self.offset,
            "metadata": self.metadata,
        }


@attrs.frozen
class FetchOffsetsResponse:
    """One entry per partition asked for in the same order, or for all that the group has offsets for."""

    api: ClassVar[str] = "fetch_offsets"

    partitions: tuple[FetchOffsetsPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> FetchOffsetsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", FetchOffsetsPartitionResponse.from_body, limits.INT32_MAX))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class ListGroupsRequest:
    """Name every group."""

    api: ClassVar[str] = "list_groups"
    keys: ClassVar[frozenset[str]] = fields.names()

    @classmethod
    def from_body(cls, body: Body) -> ListGroupsRequest:
        """Nothing is in it."""
        return cls()

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {}


@attrs.frozen
class ListGroupsResponse:
    """Every group that has offsets, by name."""

    api: ClassVar[str] = "list_groups"

    groups: tuple[str, ...]

    @classmethod
    def from_body(cls, body: Body) -> ListGroupsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.strings(body, "groups", limits.INT32_MAX, limits.MAX_STRING_CHARS))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"groups": list(self.groups)}


@attrs.frozen
class DeleteGroupsRequest:
    """Groups whose offsets are to go, each succeeds or fails alone."""

    api: ClassVar[str] = "delete_groups"
    keys: ClassVar[frozenset[str]] = fields.names("groups")

    groups: tuple[str, ...]

    @classmethod
    def from_body(cls, body: Body) -> DeleteGroupsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.strings(body, "groups", limits.MAX_PARTITIONS_PER_REQUEST, limits.MAX_STRING_CHARS))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"groups": list(self.groups)}


@attrs.frozen
class DeletedGroup:
    """What became of one group."""

    group: str
    error: RequestError | None = None

    @classmethod
    def from_body(cls, entry: Body) -> DeletedGroup:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(_read_group(entry), decode_error(entry.get("error")))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"group": self.group, "error": encode_error(self.error)}


@attrs.frozen
class DeleteGroupsResponse:
    """One entry per group, in the same order."""

    api: ClassVar[str] = "delete_groups"

    groups: tuple[DeletedGroup, ...]

    @classmethod
    def from_body(cls, body: Body) -> DeleteGroupsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "groups", DeletedGroup.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"groups": [group.to_body() for group in self.groups]}
