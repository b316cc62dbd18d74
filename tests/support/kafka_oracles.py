"""kafka-python's codec, which knows nothing of ours, on Kafka's message schemas: those that it comes with, and those of a jar.

`KafkaPython` encodes values of ours and decodes bytes into values of ours, by the names of fields. `declared` returns what its
schema declares about a message, and `declared_here` what ours does. `KafkaJar` does the same with the files of Kafka's clients.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import re
import uuid
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import GROUP_ID, PRODUCER_ID, TOPIC_NAME, TRANSACTIONAL_ID
from triolog.protocol.schema.fields import UUID, Primitive, fields_of

from .kafka_values import Message

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    # importlib.resources.read_text, which is deprecated in Python 3.11 and 3.12 only.
    from kafka.protocol.schemas import StructField, load_json

MESSAGES_IN_JAR: Final = "common/message/"
ENTITIES: Final = (TOPIC_NAME, GROUP_ID, TRANSACTIONAL_ID, PRODUCER_ID)
"""The kinds of entities that ours tells apart."""

LACKING: Final = frozenset(
    {
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "ShareFetch",
        "ShareAcknowledge",
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    }
)
"""kafka-python 3 has none of KIP-848, KIP-932, KIP-1071 and KIP-714."""

NEWER: Final = frozenset({("ApiVersions", 5), ("DeleteGroups", 3), ("TxnOffsetCommit", 6)})
"""Versions of Kafka 4.4 that it lacks, too."""

RENAMED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "TxnOffsetCommitRequest": (("GenerationIdOrMemberEpoch", "GenerationId"),),
    "StreamsGroupHeartbeatResponse": (
        ('"AcceptableRecoveryLag"', '"AcceptableRecoveryLagSince1"'),
        ('"AcceptableRecoveryLagLegacy"', '"AcceptableRecoveryLag"'),
    ),
}
"""Fields that have another name since Kafka 4.4; here they have the one that all versions' definitions know."""


@attrs.frozen
class Declared:
    """What a schema says about a field in one version."""

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    entity: str | None
    """One of ENTITIES, by its name."""
    fields: Sequence[Declared] = ()


STRUCTURE: Final = "structure"
OWN_DEFAULTS: Final = "its own defaults"


def declared_here(cls: type, version: int) -> list[Declared]:
    """What ours says."""
    found = []
    for field in fields_of(cls, version):
        element, default = field.element, field.make_default()
        is_primitive = isinstance(element, Primitive)
        found.append(
            Declared(
                name=field.name,
                kind=element.name if isinstance(element, Primitive) else STRUCTURE,
                is_array=field.is_array,
                is_nullable=version in field.nullable,
                tag=field.tag,
                default=default if is_primitive or field.is_array or default is None else OWN_DEFAULTS,
                entity=field.entity.name if field.entity in ENTITIES else None,
                fields=() if isinstance(element, Primitive) else declared_here(element, version),
            )
        )
    return found


class KafkaPython:
    """Kafka's schema files themselves, without what its client patches into them; values are dictionaries."""

    def knows(self, message: Message) -> bool:
        return message.api.name not in LACKING and (message.api.name, message.version) not in NEWER

    def schema(self, message: Message) -> Any:
        return _schema(message)

    def encode(self, message: Message, value: Any) -> bytes:
        encoded: bytes = self.schema(message).encode(
            _as_dict(value, message.version), version=message.version, compact=message.flexible, tagged=message.flexible
        )
        return encoded

    def decode(self, message: Message, data: bytes) -> Any:
        with io.BytesIO(data) as buffer:
            schema, flexible = self.schema(message), message.flexible
            found = schema.decode(buffer, version=message.version, compact=flexible, tagged=flexible)
            assert buffer.tell() == len(data)
        return _from_dict(message.cls, found, message.version)

    def declared(self, message: Message) -> list[Declared]:
        return self._declared(self.schema(message).fields.values(), message.version)

    def _declared(self, fields: Any, version: int) -> list[Declared]:
        found = []
        for field in fields:
            if not field.for_version_q(version):
                continue
            inner = field.fields if field.is_struct() or field.is_struct_array() else None
            kind = field.type_str.removeprefix("[]")
            found.append(
                Declared(
                    name=field.name,
                    kind=STRUCTURE if inner else kind,
                    is_array=field.is_array(),
                    is_nullable=field.nullable_for_version_q(version),
                    tag=field.tag if field.tagged_field_q(version) else None,
                    default=self._default(field, kind),
                    entity=field._entity_type if not inner and field._entity_type in {each.name for each in ENTITIES} else None,
                    fields=self._declared(inner.values(), version) if inner else (),
                )
            )
        return found

    def _default(self, field: Any, kind: str) -> Any:
        if field.is_struct():
            return None if field._json.get("default") == "null" else OWN_DEFAULTS
        if kind == "uuid" and not field.is_array():
            return bytes(16)
        return None if kind == "records" else field.default


@functools.cache
def _schema(message: Message) -> Any:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return StructField(load_json(f"{message.api.name}{message.side.capitalize()}"))


def _as_dict(value: Any, version: int) -> dict[str, Any]:
    """Tagged fields at their defaults are left out: the library knows no default of a structure."""
    found = {}
    for field in fields_of(type(value), version):
        each = getattr(value, field.name)
        if field.tag is not None and each == field.make_default():
            continue
        if field.element is UUID:
            each = [uuid.UUID(bytes=item) for item in each] if field.is_array else uuid.UUID(bytes=each)
        elif not isinstance(field.element, Primitive) and each is not None:
            each = [_as_dict(item, version) for item in each] if field.is_array else _as_dict(each, version)
        found[field.name] = each
    return found


def _raw(value: uuid.UUID | None) -> bytes:
    return bytes(16) if value is None else value.bytes


def _from_dict(cls: type, found: dict[str, Any], version: int) -> Any:
    values = {}
    for field in fields_of(cls, version):
        if field.name not in found and field.tag is not None:
            continue
        each = found[field.name]
        if field.element is UUID:
            each = [_raw(item) for item in each] if field.is_array else _raw(each)
        elif not isinstance(field.element, Primitive) and each is not None:
            inner = field.element
            each = [_from_dict(inner, item, version) for item in each] if field.is_array else _from_dict(inner, each, version)
        values[field.name] = each
    return cls(**values)


class KafkaJar(KafkaPython):
    """kafka-python's codec on the message definitions that lie in a jar of Kafka's clients."""

    def __init__(self, jar: Path) -> None:
        with zipfile.ZipFile(jar) as archive:
            self._texts = {
                Path(name).stem: archive.read(name).decode() for name in archive.namelist() if name.startswith(MESSAGES_IN_JAR)
            }
        self._schemas: dict[str, Any] = {}

    def knows(self, message: Message) -> bool:
        return message.version in self.versions(message.api.name)

    def definition(self, name: str) -> dict[str, Any]:
        """The file of that name, without its comments."""
        text = self._texts[name]
        for new, old in RENAMED.get(name, ()):
            text = text.replace(new, old)
        found: dict[str, Any] = json.loads(re.sub(r"(?m)//.*$", "", text))
        return found

    def versions(self, name: str) -> range:
        """That Kafka serves of an API."""
        definition = self.definition(f"{name}Request")
        first, _, last = definition["validVersions"].partition("-")
        return range(int(first), int(last or first) + (0 if definition.get("latestVersionUnstable") else 1))

    def of_brokers(self) -> dict[int, str]:
        """The APIs that brokers serve, by key."""
        definitions = (self.definition(name) for name in self._texts if name.endswith("Request"))
        return {
            each["apiKey"]: each["name"].removesuffix("Request")
            for each in definitions
            if "broker" in each.get("listeners", ()) and each["validVersions"] != "none"
        }

    def schema(self, message: Message) -> Any:
        name = f"{message.api.name}{message.side.capitalize()}"
        if name not in self._schemas:
            definition = self.definition(name)
            _insert_common(definition["fields"], {each["name"]: each["fields"] for each in definition.get("commonStructs", ())})
            self._schemas[name] = StructField(definition)
        return self._schemas[name]


def _insert_common(fields: list[dict[str, Any]], common: dict[str, Any]) -> None:
    """Structures that a file declares once, where they are used."""
    for field in fields:
        if (kind := field["type"].removeprefix("[]")) in common:
            field["fields"] = copy.deepcopy(common[kind])
        _insert_common(field.get("fields", []), common)
