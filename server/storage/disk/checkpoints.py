"""Kafka's small text files beside the data, byte for byte (Kafka: CheckpointFile, OffsetCheckpointFile, PartitionMetadataFile,
MetaProperties, CleanShutdownFileHandler). Encoding and decoding only; `filesystem.replace_file` puts them in place.

| file | where | lines |
|---|---|---|
| `recovery-point-offset-checkpoint` | log directory | `0`, count, then `topic partition offset` |
| `replication-offset-checkpoint` (high watermarks) | log directory | the same |
| `log-start-offset-checkpoint` | log directory | the same |
| `leader-epoch-checkpoint` | partition | `0`, count, then `epoch start_offset` |
| `partition.metadata` | partition | `version: 0`, `topic_id: <22 characters>`, no newline at the end |
| `meta.properties` | log directory | `#`, `#<date>`, then `key=value` |
| `.kafka_cleanshutdown` | log directory | `{"version":0,"brokerEpoch":N}` |

How large each file may be that is read whole: the one place that knows. Reading it and writing it go by the same number, so
nothing is written that cannot be read again.

`cleaner-offset-checkpoint` of a log directory: up to where each compacted partition is clean (Kafka: LogCleanerManager).

Without an entry, or with one that is not in the log, the whole log counts as dirty: work is repeated, nothing is lost.

`producer-id-block`: up to where producer ids may have been given out, in every log directory (our own; Kafka keeps this in
its metadata log and ignores plain files in a log directory).

A text checkpoint of one or two numbers, a line each, see ProducerIdBlock. Ids are taken in blocks, and a block is on the device
before the first of its ids is given out, so no id is given out twice, whatever happens. The highest numbers of all directories
count.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import attrs

from ....protocol.errors import ErrorCode
from ....protocol.limits import INT32_MAX, INT64_MAX, MIB
from ....protocol.types import TopicPartition
from ..errors import CheckpointError, FileTooLargeError
from .filesystem import FileSystem, read_file, replace_file

LOGGER: Final = logging.getLogger(__name__)

T = TypeVar("T")

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_PROPERTIES_FILE: Final = "meta.properties"
META_PROPERTIES_REMEDY: Final = "Restore it from a copy, or move it away: the directory then gets a new identity"
PARTITION_METADATA_FILE: Final = "partition.metadata"
LOCK_FILE: Final = ".lock"
OWNER_FILE: Final = ".owner"
"""Its lock decides which of the processes that joined a directory serves it."""

OWN_BROKER_EPOCH: Final = -1
"""In the marker of a clean stop: there is no controller that gives epochs to brokers."""

_VERSION: Final = "0"
_NUMBER: Final = re.compile("[0-9]{1,19}")
_SHOWN_CHARS: Final = 40
_UUID: Final = re.compile("[A-Za-z0-9_-]{22}")


def encode_checkpoint(lines: Iterable[str], *, version: str = _VERSION) -> bytes:
    """The generic text checkpoint: version, number of entries, one line each."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in [version, str(len(entries)), *entries]).encode()


def decode_checkpoint(path: str, data: bytes, *, fields: int) -> list[tuple[int, ...]]:
    """Entries of `fields` whole numbers each. No bytes, or a version line alone: no entries. Raises CheckpointError."""
    return [tuple(checkpoint_number(path, text) for text in entry) for entry in checkpoint_entries(path, data, fields)]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_checkpoint(f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))


def decode_offsets(path: str, data: bytes) -> dict[TopicPartition, int]:
    """Offset by partition; a partition that stands twice has its last one. Raises CheckpointError."""
    return {
        TopicPartition(topic, checkpoint_number(path, partition, INT32_MAX)): checkpoint_number(path, offset)
        for topic, partition, offset in checkpoint_entries(path, data, 3)
    }


def without_partitions(path: str, data: bytes, topic: str, numbers: range) -> bytes:
    """An offset checkpoint without these partitions of a topic. Nothing else is decoded: there may be 10,000 entries, and a
    change of a topic waits for it. Raises CheckpointError where the number of entries cannot be read."""
    if f"\n{topic} ".encode() not in data:
        return data
    head, tail = data[: data.index(b"\n") + 1], data[data.index(b"\n") + 1 :]
    removed = 0

    def keep(line: re.Match[bytes]) -> bytes:
        nonlocal removed
        if int(line[1]) not in numbers:
            return line[0]
        removed += 1
        return b""

    kept = re.sub(rb"(?m)^%s ([0-9]{1,10}) .*\n" % re.escape(topic.encode()), keep, tail)
    count, entries = kept.split(b"\n", 1)
    left = checkpoint_number(path, count.decode("ascii", "replace")) - removed
    return head + str(left).encode() + b"\n" + entries


def checkpoint_entries(path: str, data: bytes, fields: int, *, version: str = _VERSION) -> list[list[str]]:
    """The fields of each line as text. Raises CheckpointError."""
    if not data:
        return []
    if (count := data.count(b"\n")) > MAX_CHECKPOINT_ENTRIES + 2:
        raise CheckpointError(f"{path} has {count} lines. A checkpoint has at most {MAX_CHECKPOINT_ENTRIES} entries")
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as exc:
        raise CheckpointError(f"{path} is not UTF-8 text: {exc}") from exc
    if lines.pop() != "":
        raise CheckpointError(f"{path} ends in the middle of a line: it is truncated")
    if lines[0] != version:
        raise CheckpointError(f"{path} has version {lines[0]!r}, {version} is known")
    if len(lines) == 1:
        return []
    expected = checkpoint_number(path, lines[1])
    entries = [line.split() for line in lines[2:]]
    for line, entry in zip(lines[2:], entries, strict=True):
        if len(entry) != fields:
            raise CheckpointError(f"{path}: the line {line!r} has {len(entry)} fields, expected {fields}")
    if len(entries) != expected:
        raise CheckpointError(f"{path} has {len(entries)} entries, but its count is {expected}")
    return entries


def checkpoint_number(path: str, text: str, largest: int = INT64_MAX) -> int:
    """A number of a line: nothing that Kafka writes into such a file is negative. Raises CheckpointError."""
    number = int(text) if _NUMBER.fullmatch(text) else -1
    if not 0 <= number <= largest:
        raise CheckpointError(f"{path}: {text[:_SHOWN_CHARS]!r} is not a whole number from 0 to {largest}")
    return number


def encode_uuid(value: uuid.UUID) -> str:
    """22 characters: URL-safe base64 of the 16 big-endian bytes, without padding (Kafka: Uuid)."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> uuid.UUID:
    """Raises ValueError for anything but the text of 16 bytes."""
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is not an id: an id has 22 characters of A-Z, a-z, 0-9, '-' and '_'")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def random_uuid() -> uuid.UUID:
    """A random id outside of Kafka's first 100 reserved values, whose text does not start with a dash."""
    while True:
        value = uuid.uuid4()
        if value.int >= 100 and not encode_uuid(value).startswith("-"):
            return value


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(path: str, data: bytes) -> uuid.UUID:
    """The topic id. Raises CheckpointError when it cannot be read or is zero."""
    fields = _fields(data, ":")
    try:
        version = int(fields["version"])
        topic_id = decode_uuid(fields["topic_id"])
    except (KeyError, ValueError) as exc:
        raise CheckpointError(f"{path} is not `version: 0` and `topic_id: <id>`: {exc}") from exc
    if version < 0 or topic_id.int == 0:
        raise CheckpointError(f"{path} has version {version} and topic id {encode_uuid(topic_id)}. Neither is possible")
    return topic_id


class InconsistentTopicIdError(CheckpointError):
    """A partition directory that belongs to another topic of the same name."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


def encode_meta_properties(*, cluster_id: str, node_id: int, directory_id: uuid.UUID) -> bytes:
    """Version 1, as Java's Properties.store writes it. The date line is a comment, written in UTC."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    values = {
        "cluster.id": cluster_id,
        "directory.id": encode_uuid(directory_id),
        "node.id": str(node_id),
        "version": "1",
    }
    return f"#\n#{date}\n{''.join(f'{key}={value}' + chr(10) for key, value in values.items())}".encode()


def decode_meta_properties(path: str, data: bytes) -> dict[str, str]:
    """Its keys and values. Raises CheckpointError for an unknown version or a version 1 that lacks its keys.

    Only version 0, which has a broker.id, was ever written without its version: else the file was cut off, and so may be one
    of its values.
    """
    fields = _fields(data, "=")
    if "version" not in fields and "broker.id" not in fields:
        raise CheckpointError(f"{path} has neither version nor broker.id, so it is truncated. {META_PROPERTIES_REMEDY}")
    version = fields.setdefault("version", "0")
    if version not in ("0", "1"):
        raise CheckpointError(f"{path} has version {version}, 0 and 1 are known. {META_PROPERTIES_REMEDY}")
    missing = [key for key in ("cluster.id", "node.id") if version == "1" and key not in fields]
    if missing:
        raise CheckpointError(f"{path} is of version 1 and lacks {' and '.join(missing)}. {META_PROPERTIES_REMEDY}")
    return fields


def _fields(data: bytes, separator: str) -> dict[str, str]:
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, found, value = line.partition(separator)
        if found and not line.startswith(("#", "!")):
            fields[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return fields


def encode_clean_shutdown(broker_epoch: int = OWN_BROKER_EPOCH) -> bytes:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def decode_clean_shutdown(data: bytes) -> int | None:
    """The broker epoch, None when the content says nothing. That the file exists is what counts."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    epoch = document.get("brokerEpoch") if isinstance(document, dict) and document.get("version") == 0 else None
    return epoch if isinstance(epoch, int) else None


PREVIOUS_SUFFIX: Final = ".previous"
"""Of the copy of a file as it was before its last change."""

MAX_CHECKPOINT_BYTES: Final = 64 * MIB
"""Of a file without a limit of its own."""
MAX_CHECKPOINT_ENTRIES: Final = 1_000_000
"""Ten times what a broker with many partitions has; reading them takes some seconds and half a GiB of memory."""
LIMITS: Final[dict[str, int]] = {"security.json": 256 * MIB, "client-metrics.json": MIB, "brokers.json": MIB}
"""Largest size in bytes, by the name of the file."""
LIMITS_BY_SUFFIX: Final[dict[str, int]] = {".batches": 256 * MIB}
"""The same for files that are named after an offset: four batches of each of two million producers, more than a snapshot of the
largest size has."""

_OFFSET_LINE_BYTES: Final = len(" 2147483647 9223372036854775807\n")


def limit_of(path: str) -> int:
    """Return the largest size of a file in bytes."""
    name = os.path.basename(path).removesuffix(PREVIOUS_SUFFIX)
    return LIMITS.get(name, LIMITS_BY_SUFFIX.get(os.path.splitext(name)[1], MAX_CHECKPOINT_BYTES))


def read_small(fs: FileSystem, path: str) -> bytes:
    """All of a small file. Raises FileTooLargeError, OSError."""
    return read_file(fs, path, max_bytes=limit_of(path))


def maybe_read(fs: FileSystem, path: str, decode: Callable[[str, bytes], T]) -> T | None:
    """Return the content of a small file; None when there is none. Raises what `decode` raises, FileTooLargeError, OSError."""
    try:
        return decode(path, read_small(fs, path))
    except FileNotFoundError:
        return None


def check_size(path: str, size: int) -> None:
    """Raises FileTooLargeError when a file of this size could not be read again."""
    if size > limit_of(path):
        raise FileTooLargeError(
            f"{os.path.basename(path)} would have {size} bytes, more than the {limit_of(path)} that can be read"
        )


def offset_lines_bytes(topic: str, partitions: int) -> int:
    """Return the most bytes that a topic adds to a checkpoint, for any offsets."""
    return (len(topic) + _OFFSET_LINE_BYTES) * partitions


def check_offset_checkpoints(size: int, entries: int) -> None:
    """Raises FileTooLargeError when a checkpoint of this many partitions, with `offset_lines_bytes` of all topics, could not be
    read again."""
    check_size("recovery-point-offset-checkpoint", size)
    if entries > MAX_CHECKPOINT_ENTRIES:
        raise FileTooLargeError(
            f"{entries} partitions would exist, more than the {MAX_CHECKPOINT_ENTRIES} that a checkpoint can hold"
        )


CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"
CUT_FILE: Final = "mirror-cut"
"""See `broker.mirroring`."""


def read_cleaner_offsets(fs: FileSystem, directory: str) -> dict[TopicPartition, int]:
    """First dirty offset by partition; a file that cannot be read or understood is taken as empty, and says so."""
    try:
        return maybe_read(fs, f"{directory}/{CLEANER_OFFSET_FILE}", decode_offsets) or {}
    except (CheckpointError, OSError, ValueError) as exc:
        LOGGER.warning("%s: cleaning compacted logs from their start", exc)
        return {}


def write_cleaner_offsets(fs: FileSystem, directory: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
    replace_file(fs, f"{directory}/{CLEANER_OFFSET_FILE}", encode_offsets(offsets), durable=durable)


PRODUCER_ID_BLOCK_FILE: Final = "producer-id-block"
FIRST_PRODUCER_ID: Final = 1 << 40
"""Of a directory without a file."""
MOST_IDS_APART: Final = 1 << 46
"""How far the ids of a copy begin from those of the original at most. Copies of copies stay below 2^53, as JavaScript reads."""


@attrs.frozen
class ProducerIdBlock:
    """The producer ids that a log directory knows of."""

    first_free: int = 0
    """No id from here on was given out."""
    first_own: int = 0
    """Another server may have given out smaller ids and further epochs of them: this directory is a copy, or was a mirror."""

    def encode(self) -> bytes:
        """The second line only where it says something."""
        return encode_checkpoint(str(each) for each in (self.first_free, self.first_own)[: 2 if self.first_own else 1])


def read_producer_id_block(fs: FileSystem, directory: str) -> ProducerIdBlock:
    """Return zeros where there is no file. Raises CheckpointError, OSError.

    A file that cannot be read is an error, not 0: ids that are given out twice would mix up two producers' batches.
    """
    return maybe_read(fs, f"{directory}/{PRODUCER_ID_BLOCK_FILE}", decode_producer_id_block) or ProducerIdBlock()


def decode_producer_id_block(path: str, data: bytes) -> ProducerIdBlock:
    """Raises CheckpointError."""
    entries = [number for (number,) in decode_checkpoint(path, data, fields=1)]
    if len(entries) not in (1, 2) or min(entries) < 0 or max(entries) > entries[0]:
        raise CheckpointError(
            f"{path} must hold the first free producer id and perhaps the first of this server's own, not {entries}. Write `0` "
            "and `2`, then twice a number above every producer id that `triolog dump` shows in the directory, one per line"
        )
    return ProducerIdBlock(*entries)


def block_apart(first_free: int) -> ProducerIdBlock:
    """Return a block for a copy of a directory that begins at a random id. Neither the original nor another copy reaches it, so
    a producer that used one of them never shares its id with a producer of another."""
    first = max(first_free, FIRST_PRODUCER_ID) + 1 + secrets.randbelow(MOST_IDS_APART)
    return ProducerIdBlock(first, first)


def write_producer_id_block(fs: FileSystem, directory: str, block: ProducerIdBlock, *, durable: bool) -> None:
    """Put the file in place; on the device when this returns. Raises OSError."""
    replace_file(fs, f"{directory}/{PRODUCER_ID_BLOCK_FILE}", block.encode(), durable=durable)
