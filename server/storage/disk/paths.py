"""Names of directories and files of a log (Kafka: LocalLog, LogFileUtils, Topic). Pure text, no file is touched.

| name | is |
|---|---|
| `<topic>-<partition>` | directory of a partition; split at the last dash |
| `<base offset, 20 digits>.log` `.index` `.timeindex` | files of a segment |
| `<topic>-<partition>.<32 hex>-delete` | a partition that is being deleted; at most 255 characters, the topic is cut |
| `... .deleted` | a file taken out of a log, deleted later |
| `<base offset>.log.corrupt-<position>` | damaged bytes taken out of a segment |
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from ....protocol.errors import InvalidTopicError
from ....protocol.limits import INT32_MAX, MAX_TOPIC_NAME_CHARS
from ....protocol.types import TopicPartition
from ..errors import LogDirectoryError

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
BATCHES_SUFFIX: Final = ".batches"
"""Of what a producer snapshot leaves out; ours."""
SNAPSHOT_SUFFIXES: Final = (SNAPSHOT_SUFFIX, BATCHES_SUFFIX)
"""Both files that say what producers had done before an offset."""
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
CORRUPT_MARK: Final = ".corrupt-"
"""Between the name of a `.log` and the position of bytes that were taken out of it."""
ASIDE_MARK: Final = ".aside-"
"""Between the name of a `.log` that the file could be, and the offset where its records ended; see `broker.mirroring`."""
DELETE_DIR_SUFFIX: Final = "-delete"
STRAY_DIR_SUFFIX: Final = "-stray"
FUTURE_DIR_SUFFIX: Final = "-future"
TEMPORARY_SUFFIX: Final = ".tmp"
"""Of a file that is being written."""

INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)
"""Every file of a segment, the log first."""

STAGE_DIRECTORY: Final = ".stage"
"""Record batches that wait for their commit, in every log directory."""
LEASE_DIRECTORY: Final = ".lease"
"""Second names of segments that readers of files have leased, in every log directory."""
IGNORED_DIRECTORIES: Final = frozenset({"remote-log-index-cache", "lost+found", STAGE_DIRECTORY, LEASE_DIRECTORY})
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
PRUNED_TOPICS: Final = frozenset({"__share_group_state"})
"""Those whose records the server deletes when later ones say all that they did."""
INTERNAL_TOPICS: Final = PRUNED_TOPICS | {"__consumer_offsets", "__transaction_state", "__stage_commits"}
"""Topics in which the server keeps state of its own."""

_MAX_DIRECTORY_CHARS: Final = 255
_AFTER_NAME_CHARS: Final = 16
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_MARKED_DIRECTORY = re.compile(r"(\S+)-(\S+)\.(\S+)-(delete|stray|future)")


def segment_file(base_offset: int, suffix: str) -> str:
    """File name of a segment: the base offset in 20 digits, then the suffix."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(file_name: str) -> int | None:
    """The base offset that a file name starts with, None when it does not start with 20 digits and a dot."""
    stem, dot, _ = file_name.partition(".")
    return int(stem) if dot and len(stem) == 20 and stem.isascii() and stem.isdigit() else None


def check_topic_name(topic: str) -> None:
    """Refuse what Kafka refuses: 1 to 249 of a-z A-Z 0-9 . _ -, neither `.` nor `..`. Raises InvalidTopicError."""
    if not topic:
        raise InvalidTopicError("the topic name is empty")
    if topic in (".", ".."):
        raise InvalidTopicError(f"the topic name cannot be {topic!r}")
    if len(topic) > MAX_TOPIC_NAME_CHARS:
        raise InvalidTopicError(f"the topic name has {len(topic)} characters, at most {MAX_TOPIC_NAME_CHARS} are possible")
    if not _TOPIC.fullmatch(topic):
        raise InvalidTopicError(f"the topic name {topic!r} has characters other than a-z, A-Z, 0-9, '.', '_' and '-'")


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


def may_be_trimmed(topic: str) -> bool:
    """Return whether the log of a topic may begin later than its first file. Only the server deletes records of its own topics,
    and only of a few of them."""
    return topic not in INTERNAL_TOPICS or topic in PRUNED_TOPICS


def collision_key(topic: str) -> str:
    """Topics whose keys are equal collide in metric names, so Kafka refuses the second one."""
    return topic.replace(".", "_")


def partition_directory(topic_partition: TopicPartition) -> str:
    return str(topic_partition)


def marked_directory(topic_partition: TopicPartition, suffix: str) -> str:
    """A new unique directory name for a partition on its way out; at most 255 characters, the topic part is cut."""
    tail = f"-{topic_partition.partition}.{uuid.uuid4().hex}{suffix}"
    return topic_partition.topic[: _MAX_DIRECTORY_CHARS - len(tail)] + tail


def file_beside(topic_partition: TopicPartition, name: str) -> str:
    """Return the name of a file in the log directory for a file of a partition, short enough for a number and `.tmp` after it;
    the topic is cut."""
    tail = f"-{topic_partition.partition}.{name}"
    return topic_partition.topic[: _MAX_DIRECTORY_CHARS - len(tail) - _AFTER_NAME_CHARS] + tail


def is_marked(directory: str) -> bool:
    return directory.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX))


def parse_partition_directory(directory: str) -> TopicPartition:
    """The partition that a directory name stands for. Raises LogDirectoryError for names that are no partition's."""
    name = directory
    if is_marked(directory):
        if not _MARKED_DIRECTORY.fullmatch(directory):
            raise _foreign(directory)
        name = directory[: directory.rindex(".")]
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit() or int(partition) > INT32_MAX:
        raise _foreign(directory)
    return TopicPartition(topic, int(partition))


def _foreign(directory: str) -> LogDirectoryError:
    return LogDirectoryError(
        f"found directory {directory!r}, which is not of the form topic-partition or "
        "topic-partition.unique-delete. A log directory holds nothing else: move it away"
    )
