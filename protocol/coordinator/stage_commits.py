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
import struct
import uuid
from typing import Final

import attrs

from ..errors import InvalidRecordError
from ..types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Bytes, TopicPartition
from .fields import FieldReader, check_version, encode_count, encode_string, read_version

STAGE_COMMITS_TOPIC: Final = "__stage_commits"

_VERSION: Final = struct.Struct(">h")
_START: Final = struct.Struct(">qbqhq")
_PARTITION: Final = struct.Struct(">16siqqq")
_FILE: Final = struct.Struct(">qIq")


class StageCommitState(enum.IntEnum):
    """The state of a commit; the log stores these numbers."""

    DECIDED = 1
    DONE = 2


@attrs.frozen(kw_only=True)
class CommittedFile:
    """A file of staged batches: `size_bytes` of it count, in which `records_count` records are."""

    task: str
    size_bytes: int
    crc: int
    records_count: int


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

    @property
    def _start(self) -> tuple[int, ...]:
        return self.version, self.state, self.producer_id, self.producer_epoch, self.update_ms

    def encode(self) -> bytes:
        """ValueError for a text above 32,767 bytes."""
        parts = [_VERSION.pack(0), _START.pack(*self._start)]
        parts.append(encode_count(len(self.partitions)))
        for each in self.partitions:
            topic, partition = each.topic_partition
            numbers = _PARTITION.pack(each.topic_id.bytes, partition, each.start_offset, each.base_offset, each.end_offset)
            parts += (encode_string(topic), numbers, encode_count(len(each.files)))
            for file in each.files:
                parts += (encode_string(file.task), _FILE.pack(file.size_bytes, file.crc, file.records_count))
        return b"".join(parts)


def encode_stage_commit_key(application: str) -> bytes:
    """ValueError for an application above 32,767 bytes."""
    return _VERSION.pack(0) + encode_string(application)


def decode_stage_commit_key(data: Bytes) -> str | None:
    """The application; None for kinds of records that are not known here. Raises InvalidRecordError."""
    what = "the key of a stage commit's record"
    if read_version(what, data) != 0:
        return None
    reader = FieldReader(what, data, position=_VERSION.size)
    application = reader.string()
    reader.end()
    return application


def decode_stage_commit_value(data: Bytes) -> StageCommitValue:
    """Raises InvalidRecordError."""
    what = "a stage commit"
    check_version(what, data, 0)
    reader = FieldReader(what, data, position=_VERSION.size)
    version, state, producer_id, producer_epoch, update_ms = reader.numbers(_START)
    if state not in tuple(StageCommitState):
        raise InvalidRecordError(f"{what} has state {state}, {min(StageCommitState)} to {max(StageCommitState)} are known")

    def read_file() -> CommittedFile:
        task = reader.string()
        size_bytes, crc, records_count = reader.numbers(_FILE)
        return CommittedFile(task=task, size_bytes=size_bytes, crc=crc, records_count=records_count)

    def read_partition() -> StageCommitPartition:
        topic = reader.string()
        topic_id, partition, start_offset, base_offset, end_offset = reader.numbers(_PARTITION)
        return StageCommitPartition(
            topic_partition=TopicPartition(topic, partition),
            topic_id=uuid.UUID(bytes=topic_id),
            start_offset=start_offset,
            files=tuple(reader.array(read_file, 2 + _FILE.size) or ()),
            base_offset=base_offset,
            end_offset=end_offset,
        )

    partitions = tuple(reader.array(read_partition, 2 + _PARTITION.size + 4) or ())
    reader.end()
    return StageCommitValue(
        version=version,
        state=StageCommitState(state),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        update_ms=update_ms,
        partitions=partitions,
    )
