"""`topics.json`: which topics there are, kept beside the data in every log directory (our own; Kafka keeps this in its
metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, "topics": [{"name", "topic_id", "partitions", "configs": {key: value}}]}`; the copy
with the highest generation counts. A topic that is a mirror has `"mirror_of": SOURCE` and `"source_epoch": EPOCH` too.
`"deleted_topic_ids": [...]` is there while a log directory is out of service: what is found of these topics when it is back is
deleted. A topic whose partitions lie in directories without an entry is adopted when the server starts. `crc32c` is that of the
document without it, as written: a flipped digit could otherwise delete
records. Who edits the file takes that line out.

`topics-in-creation.json`: partitions that are being made, kept in every log directory (our own; Kafka ignores plain files in
a log directory).

`{"format_version": 1, "generation": n, "creations": [{"name", "topic_id", "first_partition", "partitions"}], "crc32c": c}`, the
checksum as in `topics.json`. It is on the device before the first directory of a creation is made, and goes once `topics.json`
names what was made, or nothing is left of it. What it names and no `topics.json` does is removed when the server starts:
nobody was answered, and without it the directories would be adopted as Kafka's are, with another configuration.

`generation` is that of the `topics.json` beside it. Where that is an older one by now (put back from a copy, or gone) the file
says nothing.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ....protocol.errors import InvalidTopicError
from ....protocol.limits import MAX_STORED_PARTITIONS
from ....protocol.records.batch import crc32c
from ....protocol.types import TopicPartition
from ..disk.checkpoints import decode_uuid, encode_uuid, maybe_read
from ..disk.filesystem import FileSystem
from ..disk.paths import check_topic_name
from ..errors import UNREADABLE_JSON, CheckpointError
from .partition_directory import holds_nothing, topic_id_at
from .state_files import CHECKSUM_KEY, FORMAT_VERSION, decode_checked, encode_checked

TOPICS_FILE: Final = "topics.json"
_FIELDS: Final = frozenset({"format_version", "generation", "topics", "deleted_topic_ids"})
_REMEDY: Final = "Copy the file of another log directory, or of a backup, over it"
_ADVICE: Final = f"{_REMEDY}. Or, if its content is right because you edited it, remove the line {CHECKSUM_KEY!r}"
_AROUND_BYTES: Final = 200
"""More than the lines around the entries have."""
_DELETED_BYTES: Final = 32


@attrs.frozen(kw_only=True)
class Topic:
    """A topic. `configs` holds only its overrides."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: dict[str, str] = attrs.field(factory=dict)
    mirror_of: str = ""
    """Name of the source that the topic is copied from; empty for every other topic."""
    source_epoch: int = 0
    """Of a mirror: the latest leader epoch in which its source may have written. A promotion begins a later one."""
    was_own: bool = False
    """Whether `triolog demote` made this a mirror, and its source has not had the topic with this id since."""

    @functools.cached_property
    def id_bytes(self) -> bytes:
        """The id as protocols have it, 16 bytes: one object for whoever keeps it."""
        return self.topic_id.bytes

    @functools.cached_property
    def entry(self) -> str:
        """Its lines in the file. They are made once: the file is written anew for every change of one topic among thousands."""
        fields = {
            "name": self.name,
            "topic_id": encode_uuid(self.topic_id),
            "partitions": self.partitions,
            "configs": self.configs,
            **({"mirror_of": self.mirror_of} if self.mirror_of else {}),
            **({"source_epoch": self.source_epoch} if self.source_epoch else {}),
            **({"was_own": True} if self.was_own else {}),
        }
        return "  " + json.dumps(fields, indent=1).replace("\n", "\n  ")


def encode_topics(generation: int, topics: Iterable[Topic], deleted_topic_ids: Iterable[uuid.UUID] = ()) -> bytes:
    """The file. What `json.dumps(document, indent=1)` writes, at a hundredth of its cost."""
    entries = ",\n".join(topic.entry for topic in sorted(topics, key=lambda topic: topic.name))
    lines = [
        f' "format_version": {FORMAT_VERSION}',
        f' "generation": {generation}',
        f' "topics": [\n{entries}\n ]' if entries else ' "topics": []',
    ]
    if deleted := sorted(map(encode_uuid, deleted_topic_ids)):
        lines.append(f' "deleted_topic_ids": {json.dumps(deleted, indent=1)}'.replace("\n", "\n "))
    checksum = crc32c(_document(lines).encode())
    return (_document([*lines, f' "{CHECKSUM_KEY}": {checksum}']) + "\n").encode()


def entry_bytes(topic: Topic) -> int:
    """Return the number of bytes that a topic adds to the file."""
    return len(topic.entry) + 2


def topics_bytes(entries_bytes: int, deleted_topics: int) -> int:
    """Return the largest possible size of the file, in bytes. `entries_bytes` is the sum of `entry_bytes` of all topics."""
    return _AROUND_BYTES + entries_bytes + deleted_topics * _DELETED_BYTES


def _document(lines: Iterable[str]) -> str:
    return "{\n" + ",\n".join(lines) + "\n}"


def decode_topics(path: str, data: bytes) -> tuple[int, list[Topic]]:
    """(generation, topics). Raises CheckpointError naming the file and what is wrong with it."""
    return decode_checked(path, data, _read_topics, remedy=_REMEDY, editable=_FIELDS, advice=_ADVICE)


def _read_topics(document: dict[str, Any]) -> tuple[int, list[Topic]]:
    topics = [_decode_topic(entry) for entry in document["topics"]]
    if twice := [name for name, count in Counter(topic.name for topic in topics).items() if count > 1]:
        raise ValueError(f"topic {twice[0]!r} is listed twice")
    return int(document["generation"]), topics


def decode_deleted_topic_ids(path: str, data: bytes) -> set[uuid.UUID]:
    """Topics that were deleted while a log directory was out of service. Raises CheckpointError."""
    try:
        return {decode_uuid(text) for text in json.loads(data).get("deleted_topic_ids", ())}
    except UNREADABLE_JSON as exc:
        raise CheckpointError(f"cannot read {path}: {type(exc).__name__}: {exc}. {_REMEDY}") from exc


def checked_name(found: Any) -> str:
    """A name that a topic can have. Raises ValueError."""
    name = str(found)
    try:
        check_topic_name(name)
    except InvalidTopicError as exc:
        raise ValueError(exc.message) from None
    return name


def checked_partitions(found: Any) -> int:
    """Return the number of partitions of a topic. Raises ValueError."""
    count = int(found)
    if not 0 < count <= MAX_STORED_PARTITIONS:
        raise ValueError(f"a topic cannot have {count} partitions, 1 to {MAX_STORED_PARTITIONS} are possible")
    return count


def _decode_topic(entry: dict[str, Any]) -> Topic:
    return Topic(
        name=checked_name(entry["name"]),
        topic_id=decode_uuid(entry["topic_id"]),
        partitions=checked_partitions(entry["partitions"]),
        configs={str(key): str(value) for key, value in entry["configs"].items()},
        mirror_of=str(entry.get("mirror_of", "")),
        source_epoch=int(entry.get("source_epoch", 0)),
        was_own=entry.get("was_own") is True,
    )


CREATIONS_FILE: Final = "topics-in-creation.json"
_CREATIONS_FIELDS: Final = frozenset({"format_version", "generation", "creations"})


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
    entries = [{**attrs.asdict(creation), "topic_id": encode_uuid(creation.topic_id)} for creation in creations]
    return encode_checked({"generation": generation, "creations": entries})


def decode_creations(path: str, data: bytes) -> tuple[int, list[Creation]]:
    """(generation, creations). Raises CheckpointError naming the file and what is wrong with it."""
    advice = "Delete it. Topics that appear with another configuration were being created"
    return decode_checked(path, data, _read_creations, remedy="Delete it", editable=_CREATIONS_FIELDS, advice=advice)


def _read_creations(document: dict[str, Any]) -> tuple[int, list[Creation]]:
    return int(document["generation"]), [_decode_creation(entry) for entry in document["creations"]]


def _decode_creation(entry: dict[str, Any]) -> Creation:
    creation = Creation(
        name=checked_name(entry["name"]),
        topic_id=decode_uuid(entry["topic_id"]),
        first_partition=int(entry["first_partition"]),
        partitions=checked_partitions(entry["partitions"]),
    )
    if not 0 <= creation.first_partition < creation.partitions:
        raise ValueError(
            f"an interrupted creation gave topic {creation.name!r} partitions {creation.first_partition} to "
            f"{creation.partitions - 1}"
        )
    return creation


def read_creations(fs: FileSystem, directory: str, topics_generation: int) -> list[Creation]:
    """Return the unfinished creations of a log directory with this generation of topics.json. Raises CheckpointError,
    OSError."""
    generation, creations = maybe_read(fs, f"{directory}/{CREATIONS_FILE}", decode_creations) or (0, [])
    return creations if generation <= topics_generation else []


def is_left_over(
    fs: FileSystem, creations: Iterable[Creation], topics: Mapping[str, Topic], topic_partition: TopicPartition, path: str
) -> bool:
    """Return whether a partition's directory is a leftover of one of `creations` that no topics.json contains. `topics` are the
    topics in topics.json. A directory with more than a creation puts into it is never a leftover. Raises OSError."""
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
    """Return the partitions of a log directory that a server would remove, from their paths. The set is empty where the
    directory's files cannot be read; other checks report that. Raises OSError."""
    try:
        found = maybe_read(fs, f"{directory}/{TOPICS_FILE}", decode_topics)
        creations = [] if found is None else read_creations(fs, directory, found[0])
    except CheckpointError:
        return set()
    topics = [] if found is None else found[1]
    named = {topic.name: topic for topic in topics}
    return {each for each, there in partitions.items() if is_left_over(fs, creations, named, each, there)}
