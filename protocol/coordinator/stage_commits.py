"""Records of `__stage_commits`, our own: the last commit of staged records of each application.

The key is version 0 and the application. The value is version 0 and then:

| field | bytes | meaning |
|---|---:|---|
| version | 8 | which version of the application it is |
| state | 1 | 1 decided, 2 done |
| producer id, epoch | 8 + 2 | under which the records are appended: no two commits have both in common |
| update time, ms | 8 | |
| partitions | array | topic (string), topic id (16), partition (4), start offset (8), base offset (8), end offset (8), files |
| files of a partition | array | task (string), size (8), CRC-32C (4), records (8) |

The start offset is where the log ended when the commit was decided: the partition's records lie at or behind it. Base and end
offset are -1 until the records are there. A partition without files has all of its records; a commit that is done names none.
"""

from __future__ import annotations

import enum
import uuid
from typing import Final

import attrs

from ..errors import InvalidRecordError
from ..schema.fields import INT8, INT16, INT32, INT64, STRING, UINT32, UUID, struct, wire
from ..types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Bytes, TopicPartition
from .fields import VERSION, check_version, decode, encode, encode_string, read_version

STAGE_COMMITS_TOPIC: Final = "__stage_commits"


class StageCommitState(enum.IntEnum):
    """The state of a commit; the log stores these numbers."""

    DECIDED = 1
    DONE = 2


@struct
class CommittedFile:
    """A file of staged batches: `size_bytes` of it count, in which `records_count` records are."""

    task: str = wire(STRING)
    size_bytes: int = wire(INT64)
    crc: int = wire(UINT32)
    records_count: int = wire(INT64)


@attrs.frozen(kw_only=True)
class StageCommitPartition:
    """The records that a commit appends to one partition."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    start_offset: int
    files: tuple[CommittedFile, ...] = ()
    base_offset: int = NO_OFFSET
    end_offset: int = NO_OFFSET

    @property
    def records_count(self) -> int:
        """Of all files."""
        return sum(file.records_count for file in self.files)


@attrs.frozen(kw_only=True)
class StageCommitValue:
    """The last commit of one application."""

    version: int
    state: StageCommitState
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    update_ms: int
    partitions: tuple[StageCommitPartition, ...] = ()

    @property
    def is_done(self) -> bool:
        """Return whether the commit has appended every record to its partition."""
        return self.state is StageCommitState.DONE

    def encode(self) -> bytes:
        """struct.error for a text above 32,767 bytes."""
        partitions = [
            _Partition(
                topic=each.topic_partition.topic,
                topic_id=each.topic_id.bytes,
                partition=each.topic_partition.partition,
                start_offset=each.start_offset,
                base_offset=each.base_offset,
                end_offset=each.end_offset,
                files=list(each.files),
            )
            for each in self.partitions
        ]
        value = _Value(
            version=self.version,
            state=self.state,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            update_ms=self.update_ms,
            partitions=partitions,
        )
        return encode(value, 0)


@struct
class _Partition:
    topic: str = wire(STRING)
    topic_id: bytes = wire(UUID)
    partition: int = wire(INT32)
    start_offset: int = wire(INT64)
    base_offset: int = wire(INT64)
    end_offset: int = wire(INT64)
    files: list[CommittedFile] = wire([CommittedFile])


@struct
class _Value:
    version: int = wire(INT64)
    state: int = wire(INT8)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    update_ms: int = wire(INT64)
    partitions: list[_Partition] = wire([_Partition])


@struct
class _Key:
    application: str = wire(STRING)


def encode_stage_commit_key(application: str) -> bytes:
    """ValueError for an application above 32,767 bytes."""
    return VERSION.pack(0) + encode_string(application)


def decode_stage_commit_key(data: Bytes) -> str | None:
    """The application; None for kinds of records that are not known here. Raises InvalidRecordError."""
    what = "the key of a stage commit's record"
    if read_version(what, data) != 0:
        return None
    return decode(_Key, what, data, 0).application


def decode_stage_commit_value(data: Bytes) -> StageCommitValue:
    """Raises InvalidRecordError."""
    what = "a stage commit"
    value = decode(_Value, what, data, check_version(what, data, 0))
    if value.state not in tuple(StageCommitState):
        known = f"{min(StageCommitState)} to {max(StageCommitState)} are known"
        raise InvalidRecordError(f"{what} has state {value.state}, {known}")
    partitions = tuple(
        StageCommitPartition(
            topic_partition=TopicPartition(each.topic, each.partition),
            topic_id=uuid.UUID(bytes=each.topic_id),
            start_offset=each.start_offset,
            files=tuple(each.files),
            base_offset=each.base_offset,
            end_offset=each.end_offset,
        )
        for each in value.partitions
    )
    return StageCommitValue(
        version=value.version,
        state=StageCommitState(value.state),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        update_ms=value.update_ms,
        partitions=partitions,
    )
