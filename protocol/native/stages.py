"""The calls of exactly-once writers: `stage`, `commit_stage`, `abort_stage`, `last_commit`.

A writer gives its record batches to the server, which keeps them where no reader sees them, and later commits all of one
version of an application at once. The application says which tasks count; a commit of a version that is committed already
changes nothing, so whoever lost the answer asks again.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from .. import limits
from ..errors import RequestError
from ..types import NO_OFFSET, Bytes
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body

NO_VERSION = -1
"""Of an application that has committed nothing."""


def _read_application(body: Body) -> str:
    return fields.string(body, "application", limits.MAX_APPLICATION_CHARS)


def _read_task(body: Body) -> str:
    return fields.string(body, "task", limits.MAX_TASK_CHARS)


def _read_crc(body: Body, default: int = fields.REQUIRED) -> int:
    return fields.integer(body, "crc", 0, limits.UINT32_MAX, default)


@attrs.frozen
class StagePartition:
    """Whole record batches for one partition, without a producer: the commit gives them one."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "records")

    topic: str
    partition: int
    records: Bytes

    @classmethod
    def from_body(cls, entry: Body) -> StagePartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(fields.topic(entry), fields.int32(entry, "partition"), fields.binary(entry, "records"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topic": self.topic, "partition": self.partition, "records": self.records}


@attrs.frozen
class StageRequest:
    """Keep batches of one task of a version aside, behind what the task has staged for the same partitions before."""

    api: ClassVar[str] = "stage"
    keys: ClassVar[frozenset[str]] = fields.names("application", "version", "task", "partitions")

    application: str
    version: int
    task: str
    partitions: tuple[StagePartition, ...]

    @classmethod
    def from_body(cls, body: Body) -> StageRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(
            _read_application(body),
            fields.int64(body, "version"),
            _read_task(body),
            fields.entries(body, "partitions", StagePartition.from_body),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "application": self.application,
            "version": self.version,
            "task": self.task,
            "partitions": [partition.to_body() for partition in self.partitions],
        }


@attrs.frozen
class StagePartitionResponse:
    """All that the task has staged for the partition so far: its size in bytes and its CRC-32C, for `commit_stage`."""

    topic: str
    partition: int
    error: RequestError | None = None
    size_bytes: int = 0
    crc: int = 0

    @classmethod
    def from_body(cls, entry: Body) -> StagePartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "size_bytes", default=0),
            _read_crc(entry, 0),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "size_bytes": self.size_bytes,
            "crc": self.crc,
        }


@attrs.frozen
class StageResponse:
    """One entry per partition asked for, in the same order."""

    api: ClassVar[str] = "stage"

    partitions: tuple[StagePartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> StageResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", StagePartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class StagedPartition:
    """What a task has staged for one partition, as the last answer to its `stage` said."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "size_bytes", "crc")

    topic: str
    partition: int
    size_bytes: int
    crc: int

    @classmethod
    def from_body(cls, entry: Body) -> StagedPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(
            fields.topic(entry), fields.int32(entry, "partition"), fields.int64(entry, "size_bytes", 1), _read_crc(entry)
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return attrs.asdict(self)


@attrs.frozen
class StagedTask:
    """A task whose batches count."""

    keys: ClassVar[frozenset[str]] = fields.names("task", "partitions")

    task: str
    partitions: tuple[StagedPartition, ...]

    @classmethod
    def from_body(cls, entry: Body) -> StagedTask:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(_read_task(entry), fields.entries(entry, "partitions", StagedPartition.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"task": self.task, "partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class CommitStageRequest:
    """Append what these tasks have staged to its partitions, unless the version is committed already. Of a partition the
    records come in the order of the tasks. What other tasks have staged for the version is thrown away."""

    api: ClassVar[str] = "commit_stage"
    keys: ClassVar[frozenset[str]] = fields.names("application", "version", "tasks")

    application: str
    version: int
    tasks: tuple[StagedTask, ...]

    @classmethod
    def from_body(cls, body: Body) -> CommitStageRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        tasks = fields.entries(body, "tasks", StagedTask.from_body, limits.MAX_TASKS_PER_COMMIT)
        return cls(_read_application(body), fields.int64(body, "version"), tasks)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "application": self.application,
            "version": self.version,
            "tasks": [task.to_body() for task in self.tasks],
        }


@attrs.frozen
class StageCommittedPartition:
    """Where the records of a partition went: offset of the first, and the one behind the last. Records of others may lie
    between."""

    topic: str
    partition: int
    base_offset: int = NO_OFFSET
    end_offset: int = NO_OFFSET

    @classmethod
    def from_body(cls, entry: Body) -> StageCommittedPartition:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            fields.int64(entry, "base_offset", NO_OFFSET),
            fields.int64(entry, "end_offset", NO_OFFSET),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return attrs.asdict(self)


@attrs.frozen
class CommitStageResponse:
    """The version is committed: by this call, or it was before. Partitions by name; empty for a version below the last."""

    api: ClassVar[str] = "commit_stage"

    committed: bool
    partitions: tuple[StageCommittedPartition, ...] = ()

    @classmethod
    def from_body(cls, body: Body) -> CommitStageResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        partitions = fields.entries(body, "partitions", StageCommittedPartition.from_body)
        return cls(fields.boolean(body, "committed"), partitions)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"committed": self.committed, "partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class AbortStageRequest:
    """Throw away what these tasks of a version have staged; None: what all of them have. Never undoes a commit."""

    api: ClassVar[str] = "abort_stage"
    keys: ClassVar[frozenset[str]] = fields.names("application", "version", "tasks")

    application: str
    version: int
    tasks: tuple[str, ...] | None = None

    @classmethod
    def from_body(cls, body: Body) -> AbortStageRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        tasks = None
        if body.get("tasks") is not None:
            tasks = fields.strings(body, "tasks", limits.MAX_TASKS_PER_COMMIT, limits.MAX_TASK_CHARS)
        return cls(_read_application(body), fields.int64(body, "version"), tasks)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "application": self.application,
            "version": self.version,
            "tasks": None if self.tasks is None else list(self.tasks),
        }


@attrs.frozen
class AbortStageResponse:
    """It is gone."""

    api: ClassVar[str] = "abort_stage"

    @classmethod
    def from_body(cls, body: Body) -> AbortStageResponse:
        """Nothing is in it."""
        return cls()

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {}


@attrs.frozen
class LastCommitRequest:
    """Which version of an application was committed last?"""

    api: ClassVar[str] = "last_commit"
    keys: ClassVar[frozenset[str]] = fields.names("application")

    application: str

    @classmethod
    def from_body(cls, body: Body) -> LastCommitRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(_read_application(body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"application": self.application}


@attrs.frozen
class LastCommitResponse:
    """The version, -1 when there was none."""

    api: ClassVar[str] = "last_commit"

    version: int = NO_VERSION

    @classmethod
    def from_body(cls, body: Body) -> LastCommitResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.int64(body, "version", NO_VERSION))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"version": self.version}
