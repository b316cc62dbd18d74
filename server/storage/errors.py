"""Errors of files and logs. Each says which file, what was found, what was expected and what to do next."""

from __future__ import annotations

import errno
from typing import ClassVar, Final

from ...protocol.errors import ErrorCode, RequestError, TriologError
from ...protocol.types import TopicPartition

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


UNREADABLE_JSON: Final = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
"""What a JSON document raises that is not one, nests too deeply, or says something else than was expected."""


class StorageError(TriologError):
    """Something about the files of a log that is not an answer to a request by itself."""


class CorruptIndexError(StorageError):
    """An index that contradicts itself or its log. It is derived: drop it and rebuild it from the log."""


class CheckpointError(StorageError):
    """A checkpoint, properties or metadata file that cannot be understood."""


class FileTooLargeError(CheckpointError, ValueError):
    """A file that is read whole is larger than anything that belongs under its name; reading it could take all memory."""


class CorruptSnapshotError(StorageError):
    """A producer snapshot that cannot be read: an older one is taken, and what follows it is replayed from the log."""


class InvalidOffsetError(StorageError):
    """An index entry that does not lie after the last one (Kafka: InvalidOffsetException)."""


class SegmentOffsetOverflowError(StorageError):
    """An offset that does not fit in 32 bits above the segment's base offset (Kafka: LogSegmentOffsetOverflowException)."""


class LogDirectoryError(StorageError):
    """A log directory that cannot be used: locked by someone else, foreign content, inconsistent identity."""


class SnapshotExpiredError(StorageError):
    """Files that a snapshot names were truncated or deleted since: take a new snapshot and look again."""


class FileGoneError(SnapshotExpiredError, FileNotFoundError):
    """A log file is not there any more: a reader's snapshot has expired, for the log's owner the disk has failed."""


class SyncFailedError(StorageError, OSError):
    """A sync failed. The kernel forgets what it could not write, so a second one that succeeds says nothing: what was written
    since the last good one has to be written again, or given up."""

    @property
    def is_passing(self) -> bool:
        """Return whether the device only had no space (a thin volume, a quota): it works again as soon as it has some."""
        return is_out_of_space(self)


class LostWriteError(SyncFailedError):
    """The page cache no longer holds the data of a failed sync."""


class LogOfflineError(RequestError):
    """The log saw an I/O error that it cannot undo. Reads and appends are refused until the server is restarted."""

    default_code: ClassVar[ErrorCode] = ErrorCode.KAFKA_STORAGE_ERROR


class MirroredContentsError(LogOfflineError):
    """A coordinator whose log is a mirror. Clients look for the coordinator again, until the mirror is promoted."""

    default_code: ClassVar[ErrorCode] = ErrorCode.COORDINATOR_NOT_AVAILABLE


class AppendFailedError(RequestError):
    """The device refused an append (for example: no space). Nothing of it is visible; the next one may succeed."""

    default_code: ClassVar[ErrorCode] = ErrorCode.KAFKA_STORAGE_ERROR


class WaitsForSpaceError(AppendFailedError):
    """The log could not be opened for appends, because its device is full. Readers are served, and it is tried again."""


class OffsetInGapError(RequestError):
    """A fetch that cannot go on, because the next records were damaged on disk and taken out of the log."""

    default_code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, message: str, topic_partition: TopicPartition, offsets: tuple[int, int], *, by_policy: bool) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offsets = offsets
        """From, and up to which, exclusive."""
        self.by_policy = by_policy
        """Whether the topic's configuration says so, and not the reader."""


def is_out_of_space(error: BaseException) -> bool:
    """Return whether the device, or a quota on it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM
