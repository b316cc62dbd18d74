"""`topics-in-creation.json`: partitions that are being made, kept in every log directory (our own; Kafka ignores plain files in
a log directory).

`{"format_version": 1, "generation": n, "creations": [{"name", "topic_id", "first_partition", "partitions"}], "crc32c": c}`, the
checksum as in `topics.json`. It is on the device before the first directory of a creation is made, and goes once `topics.json`
names what was made, or nothing is left of it. What it names and no `topics.json` does is removed when the server starts:
nobody was answered, and without it the directories would be adopted as Kafka's are, with another configuration.

`generation` is that of the `topics.json` beside it. Where that is an older one by now (put back from a copy, or gone) the file
says nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ....protocol.types import TopicPartition
from ..disk.checkpoints import MAX_CHECKPOINT_BYTES, decode_uuid, encode_uuid
from ..disk.filesystem import FileSystem, read_file
from ..errors import UNREADABLE_JSON, CheckpointError
from .partition_directory import holds_nothing, topic_id_at
from .topics_file import (
    CHECKSUM_KEY,
    TOPICS_FILE,
    Topic,
    check_checksum,
    checked_name,
    checked_partitions,
    checksum,
    decode_topics,
)

CREATIONS_FILE: Final = "topics-in-creation.json"
FORMAT_VERSION: Final = 1
_FIELDS: Final = frozenset({"format_version", "generation", "creations"})


@attrs.frozen(kw_only=True)
class Creation:
    """Partitions from `first_partition` up to, not including, `partitions` of one topic."""

    name: str
    topic_id: uuid.UUID
    first_partition: int
    partitions: int

    def covers(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.topic == self.name and self.first_partition <= topic_partition.partition < self.partitions


def encode_creations(generation: int, creations: Iterable[Creation]) -> bytes:
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "generation": generation,
        "creations": [{**attrs.asdict(creation), "topic_id": encode_uuid(creation.topic_id)} for creation in creations],
    }
    return json.dumps({**document, CHECKSUM_KEY: checksum(document)}, indent=1).encode() + b"\n"


def decode_creations(path: str, data: bytes) -> tuple[int, list[Creation]]:
    """(generation, creations). Raises CheckpointError naming the file and what is wrong with it."""
    try:
        document = json.loads(data)
        if document["format_version"] != FORMAT_VERSION:
            version = document["format_version"]
            raise CheckpointError(f"{path} has format version {version}, {FORMAT_VERSION} is known; delete it")
        check_checksum(path, document, _FIELDS, "delete it; topics that appear with another configuration were being made")
        return int(document["generation"]), [_decode_creation(entry) for entry in document["creations"]]
    except UNREADABLE_JSON as exc:
        raise CheckpointError(f"{path} cannot be read: {type(exc).__name__}: {exc}; delete it") from exc


def _decode_creation(entry: dict[str, Any]) -> Creation:
    creation = Creation(
        name=checked_name(entry["name"]),
        topic_id=decode_uuid(entry["topic_id"]),
        first_partition=int(entry["first_partition"]),
        partitions=checked_partitions(entry["partitions"]),
    )
    if not 0 <= creation.first_partition < creation.partitions:
        raise ValueError(
            f"topic {creation.name!r} was to get partitions {creation.first_partition} to {creation.partitions - 1}"
        )
    return creation


def read_creations(fs: FileSystem, directory: str, topics_generation: int) -> list[Creation]:
    """What was being made in a log directory whose topics.json is of that generation. Raises CheckpointError, OSError."""
    path = f"{directory}/{CREATIONS_FILE}"
    try:
        generation, creations = decode_creations(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return []
    return creations if generation <= topics_generation else []


def is_left_over(
    fs: FileSystem, creations: Iterable[Creation], topics: Mapping[str, Topic], topic_partition: TopicPartition, path: str
) -> bool:
    """Whether the directory of a partition is what one of `creations` left that is in no topics.json: `topics` are those that
    are. A directory that holds more than a creation makes never is. Raises OSError."""
    ids = {creation.topic_id for creation in creations if creation.covers(topic_partition)}
    if not ids:
        return False
    topic = topics.get(topic_partition.topic)
    is_named = topic is not None and topic_partition.partition < topic.partitions
    topic_id = topic_id_at(fs, path)
    if topic_id is None:
        return not is_named and holds_nothing(fs, path)
    is_another = not is_named or topic is None or topic.topic_id != topic_id
    return topic_id in ids and is_another and holds_nothing(fs, path)


def left_over(fs: FileSystem, directory: str, partitions: Mapping[TopicPartition, str]) -> set[TopicPartition]:
    """Which partitions of a log directory, by their paths, a server would remove; none where its files cannot be read, which
    is for others to say. Raises OSError."""
    path = f"{directory}/{TOPICS_FILE}"
    try:
        generation, topics = decode_topics(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
        creations = read_creations(fs, directory, generation)
    except (FileNotFoundError, CheckpointError):
        return set()
    named = {topic.name: topic for topic in topics}
    return {each for each, there in partitions.items() if is_left_over(fs, creations, named, each, there)}
