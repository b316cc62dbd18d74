"""`topics.json`: which topics there are, kept beside the data in every log directory (our own; Kafka keeps this in its
metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, "topics": [{"name", "topic_id", "partitions", "configs": {key: value}}]}`; the copy
with the highest generation counts. `"deleted_topic_ids": [...]` is there while a log directory is out of service: what is
found of these topics when it is back is deleted. A topic whose partitions lie in directories without an entry is adopted
when the server starts. `crc32c` is that of the document without it, as written: a flipped digit could otherwise delete
records. Who edits the file takes that line out.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Set
from typing import Any, Final

import attrs

from ....protocol.errors import InvalidTopicError
from ....protocol.limits import MAX_STORED_PARTITIONS
from ....protocol.records.crc32c import crc32c
from ..disk.checkpoints import decode_uuid, encode_uuid
from ..disk.paths import check_topic_name
from ..errors import UNREADABLE_JSON, CheckpointError

TOPICS_FILE: Final = "topics.json"
FORMAT_VERSION: Final = 1
CHECKSUM_KEY: Final = "crc32c"
_FIELDS: Final = frozenset({"format_version", "generation", "topics", "deleted_topic_ids"})
_REMEDY: Final = "copy the one of another log directory, or of a backup, over it"
_ADVICE: Final = f"{_REMEDY}; or, if its content is right because you edited it, take the line {CHECKSUM_KEY!r} out"
_AROUND_BYTES: Final = 200
"""More than the lines around the entries have."""
_DELETED_BYTES: Final = 32


@attrs.frozen(kw_only=True)
class Topic:
    """One topic: `configs` holds only what it overrides."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: dict[str, str] = attrs.field(factory=dict)

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
    """What a topic adds to the file."""
    return len(topic.entry) + 2


def topics_bytes(entries_bytes: int, deleted_topics: int) -> int:
    """How large the file gets at most, with `entry_bytes` of all topics."""
    return _AROUND_BYTES + entries_bytes + deleted_topics * _DELETED_BYTES


def _document(lines: Iterable[str]) -> str:
    return "{\n" + ",\n".join(lines) + "\n}"


def decode_topics(path: str, data: bytes) -> tuple[int, list[Topic]]:
    """(generation, topics). Raises CheckpointError naming the file and what is wrong with it."""
    try:
        document = json.loads(data)
        version = document["format_version"]
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {version}, {FORMAT_VERSION} is known: a newer triolog wrote it, or it is damaged; "
                f"{_REMEDY}"
            )
        check_checksum(path, document, _FIELDS, _ADVICE)
        topics = [_decode_topic(entry) for entry in document["topics"]]
        if twice := [name for name, count in Counter(topic.name for topic in topics).items() if count > 1]:
            raise ValueError(f"topic {twice[0]!r} stands there twice")
        return int(document["generation"]), topics
    except UNREADABLE_JSON as exc:
        raise CheckpointError(f"{path} cannot be read: {type(exc).__name__}: {exc}; {_REMEDY}") from exc


def decode_deleted_topic_ids(path: str, data: bytes) -> set[uuid.UUID]:
    """Topics that were deleted while a log directory was out of service. Raises CheckpointError."""
    try:
        return {decode_uuid(text) for text in json.loads(data).get("deleted_topic_ids", ())}
    except UNREADABLE_JSON as exc:
        raise CheckpointError(f"{path} cannot be read: {type(exc).__name__}: {exc}; {_REMEDY}") from exc


def checked_name(found: Any) -> str:
    """A name that a topic can have. Raises ValueError."""
    name = str(found)
    try:
        check_topic_name(name)
    except InvalidTopicError as exc:
        raise ValueError(exc.message) from None
    return name


def checked_partitions(found: Any) -> int:
    """How many partitions a topic has. Raises ValueError."""
    count = int(found)
    if not 0 < count <= MAX_STORED_PARTITIONS:
        raise ValueError(f"a topic cannot have {count} partitions, 1 to {MAX_STORED_PARTITIONS} are possible")
    return count


def checksum(document: dict[str, Any]) -> int:
    """Of a document of ours as `json.dumps(document, indent=1)` writes it."""
    return crc32c(json.dumps(document, indent=1).encode())


def check_checksum(path: str, document: dict[str, Any], fields: Set[str], advice: str) -> None:
    """Take the checksum out of the document. Raises CheckpointError with the advice when there is one and it is another, or a
    field that is none of these: one flipped bit in the checksum's own name would leave the file without one."""
    found = document.pop(CHECKSUM_KEY, None)
    if unknown := document.keys() - fields:
        raise CheckpointError(f"{path} has a field {min(unknown)!r}, which format version {FORMAT_VERSION} has not: {advice}")
    if found is not None and found != (computed := checksum(document)):
        raise CheckpointError(f"{path} has {CHECKSUM_KEY} {found}, its content has {computed}: {advice}")


def _decode_topic(entry: dict[str, Any]) -> Topic:
    return Topic(
        name=checked_name(entry["name"]),
        topic_id=decode_uuid(entry["topic_id"]),
        partitions=checked_partitions(entry["partitions"]),
        configs={str(key): str(value) for key, value in entry["configs"].items()},
    )
