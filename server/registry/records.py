"""Records of the topic `_schemas`, as Confluent's Schema Registry and Karapace write and read them.

A key is JSON, whose bytes compaction compares: the order of its members matters. A value is JSON; null deletes the key.

| keytype | other members of the key | value |
|---|---|---|
| SCHEMA | subject, version, magic 1 | a `StoredSchema` |
| CONFIG | subject or null, magic 0 | compatibilityLevel, normalize |
| MODE | subject or null, magic 0 | mode |
| DELETE_SUBJECT | subject, magic 0 | subject, version: versions up to this one are deleted softly |
| CLEAR_SUBJECT | subject, magic 0 | subject: forget deletions |
| NOOP | magic 0 | |
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import attrs

SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, NOOP = (
    "SCHEMA",
    "CONFIG",
    "MODE",
    "DELETE_SUBJECT",
    "CLEAR_SUBJECT",
    "NOOP",
)
IGNORED: Final = frozenset({NOOP, CLEAR_SUBJECT, "CONTEXT"})
"""Key types without an effect here: CLEAR_SUBJECT concerns a cache of Confluent's, and only its default context is served."""
AVRO: Final = "AVRO"

Written = tuple[bytes, bytes | None]
"""Key and value of a record."""


class Reference(NamedTuple):
    """A schema that another one uses under `name`."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


@attrs.frozen(kw_only=True)
class StoredSchema:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    is_deleted: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        """Return the type and the guid, by which the content is found."""
        return self.schema_type, guid_of(self.schema, self.references)

    def has_content_of(self, other: StoredSchema) -> bool:
        """Return whether both have the same type, text and references, and may share an id."""
        return (self.schema_type, self.schema, self.references) == (other.schema_type, other.schema, other.references)

    def record(self, *, is_deleted: bool = False) -> Written:
        """Return the record that stores it."""
        value: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.id}
        if self.schema_type != AVRO:
            value["schemaType"] = self.schema_type
        if self.references:
            value["references"] = [each.as_json() for each in self.references]
        return schema_key(self.subject, self.version), _dump({**value, "schema": self.schema, "deleted": is_deleted})

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> StoredSchema:
        """Raises KeyError, TypeError, ValueError."""
        return cls(
            subject=_text(value["subject"]),
            version=int(value["version"]),
            id=int(value["id"]),
            schema_type=_text(value.get("schemaType") or AVRO),
            schema=_text(value["schema"]),
            references=tuple(
                Reference(_text(each["name"]), _text(each["subject"]), int(each["version"]))
                for each in value.get("references") or ()
            ),
            is_deleted=bool(value.get("deleted")),
        )


def guid_of(schema: str, references: tuple[Reference, ...]) -> str:
    """Return the identity of a schema's content: an MD5 digest as a UUID, the same as Confluent's."""
    digest = hashlib.md5(schema.encode(), usedforsecurity=False)
    for name, subject, version in references:
        digest.update(name.encode() + subject.encode() + version.to_bytes(4, "big", signed=True))
    return str(uuid.UUID(bytes=digest.digest()))


def schema_key(subject: str, version: int) -> bytes:
    return _dump({"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1})


def subject_key(kind: str, subject: str | None) -> bytes:
    """Return the key of a CONFIG, MODE or DELETE_SUBJECT record. The subject None stands for all subjects."""
    return _dump({"keytype": kind, "subject": subject, "magic": 0})


def subject_record(kind: str, subject: str | None, **members: Any) -> Written:
    named = {} if subject is None else {"subject": subject}
    return subject_key(kind, subject), _dump({**named, **members})


def read_json(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError, RecursionError."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    value.encode()  # half a surrogate pair cannot be sent to clients
    return value


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
