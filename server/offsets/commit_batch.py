"""Offsets that are committed together: one batch of records, and what is done with them when it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ...protocol.coordinator.offsets import NO_EXPIRE_TIMESTAMP, OffsetCommitKey, OffsetCommitValue
from ...protocol.errors import ErrorCode, RecordBatchTooLargeError, RecordTooLargeError, RequestError
from ...protocol.limits import INT64_MAX
from ...protocol.types import AppendResult, TopicPartition
from .group_offsets import GroupOffsets
from .offsets_topic import batch_builder

DEFAULT_RETENTION: Final = -1
"""As long as the server says."""


class Commit(NamedTuple):
    """An offset to be kept: of the record to be read next, with the group's own note and the leader epoch of the last one."""

    topic_partition: TopicPartition
    offset: int
    metadata: str | None = None
    leader_epoch: int = -1
    retention_ms: int = DEFAULT_RETENTION
    """How long it stays from now on, as clients before Kafka 2.1 can request."""

    def expire_timestamp(self, now_ms: int) -> int:
        """Return the time at which the offset expires; NO_EXPIRE_TIMESTAMP: the server decides."""
        return NO_EXPIRE_TIMESTAMP if self.retention_ms == DEFAULT_RETENTION else min(now_ms + self.retention_ms, INT64_MAX)


AnswerCommit = Callable[[list[RequestError | None] | RequestError], None]
"""Called with an answer for each offset, in order, or with the error of all. Must not raise and must not block."""


class CommitBatch(NamedTuple):
    """Offsets of a group that go into the log in one batch."""

    group: str
    producer_id: int
    now_ms: int
    answers: list[RequestError | None]
    """Of all that were to be committed; None for those that are in the batch."""
    entries: list[tuple[OffsetCommitKey, OffsetCommitValue]]

    def build(self, producer_epoch: int) -> bytes:
        """Its records."""
        builder = batch_builder(self.producer_id, producer_epoch)
        for key, value in self.entries:
            builder.append(self.now_ms, key.encode(), value.encode())
        return builder.build()

    def put_into(self, offsets: GroupOffsets, result: AppendResult) -> None:
        """It is stored."""
        for record_offset, (key, value) in enumerate(self.entries, result.base_offset):
            offsets.put(key, value, record_offset, self.producer_id)

    def in_words(self, topic_partition: TopicPartition, error: RequestError) -> RequestError:
        """Why it could not be stored, as who commits is told."""
        if not isinstance(error, RecordTooLargeError | RecordBatchTooLargeError):
            return error.as_answer()
        return RequestError(
            f"group {self.group!r}: {len(self.entries)} offsets do not fit one batch of {topic_partition}: {error.message}; "
            "commit fewer at a time, or with less metadata",
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        )
