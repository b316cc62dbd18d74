"""Two implementations of Kafka's protocol that know nothing of ours: kio and kafka-python.

Both are generated from Kafka's message schemas. An oracle encodes values of ours and decodes bytes into values of ours, by the
names of fields; and it tells what its schema says about a message, in words that ours can be told in too.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import io
import json
import re
import uuid
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import attrs
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from triolog.protocol.schema.fields import UUID, Field, Primitive, fields_of

from .kafka_values import ANYTHING, Message

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    # importlib.resources.read_text, which is deprecated in Python 3.11 and 3.12 only.
    from kafka.protocol.schemas import StructField, load_json

MESSAGES_IN_JAR: Final = "common/message/"
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KIO_TIMES: Final = ("log_append_time_ms", "transaction_start_time_ms", "retention_time_ms", "session_lifetime_ms")
"""64 bits on the wire, which kio makes objects of Python's datetime: through floats, exact for the next hundred years."""

WITHOUT_KIO: Final = frozenset({("ListOffsets", 0)})
"""kio begins where Kafka 4 does; kafka-python alone compares these."""

NEWER: Final = frozenset({("ApiVersions", 5), ("DeleteGroups", 3), ("TxnOffsetCommit", 6)})
"""Kafka 4.4's, which neither library has yet: `kafka/test_message_definitions.py` compares these with Kafka's own files."""

WITHOUT_KAFKA_PYTHON: Final = frozenset(
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
"""kafka-python 3 has none of KIP-848, KIP-932, KIP-1071 and KIP-714: kio alone compares these."""


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
    fields: Sequence[Declared] = ()


class _Unsaid:
    """A default that a library does not tell; equal to any."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


STRUCTURE: Final = "structure"
OWN_DEFAULTS: Final = "its own defaults"
UNSAID: Final = _Unsaid()


class Oracle(Protocol):
    """A second opinion."""

    def knows(self, message: Message) -> bool: ...

    def encode(self, message: Message, value: Any) -> bytes: ...

    def decode(self, message: Message, data: bytes) -> Any: ...

    def declared(self, message: Message) -> list[Declared]: ...

    def choose(self, field: Field, random: Random) -> Any:
        """A value that the oracle can represent, for fields where it cannot represent all."""


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
                fields=() if isinstance(element, Primitive) else declared_here(element, version),
            )
        )
    return found


class Kio:
    """One frozen dataclass for each structure and version; error codes, times and UUIDs are objects there."""

    _KINDS: Final = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}

    def knows(self, message: Message) -> bool:
        return (message.api.name, message.version) not in WITHOUT_KIO | NEWER

    def encode(self, message: Message, value: Any) -> bytes:
        schema = kio_schema(message)
        with io.BytesIO() as buffer:
            entity_writer(schema)(buffer, self._theirs(schema, value))
            return buffer.getvalue()

    def decode(self, message: Message, data: bytes) -> Any:
        value, size = entity_reader(kio_schema(message))(data, 0)
        assert size == len(data)
        return self._ours(message.cls, value, message.version)

    def declared(self, message: Message) -> list[Declared]:
        return self._declared(kio_schema(message))

    def choose(self, field: Field, random: Random) -> Any:
        if field.name.endswith("error_code"):
            return int(random.choice(list(KioErrorCode)))
        if field.name in KIO_TIMES:
            return random.choice((-1, 0, 1, random.randrange(2**42)) if field.name == "log_append_time_ms" else (0, 1, 2**40))
        return ANYTHING

    def _theirs(self, schema: type, value: Any) -> Any:
        return schema(**{field.name: self._their_field(field, value) for field in dataclasses.fields(schema)})

    def _their_field(self, field: dataclasses.Field[Any], value: Any) -> Any:
        kind = field.metadata.get("kafka_type")
        found = getattr(value, kio_name(field))
        if kind is None:
            inner = kio_element(field)
            if isinstance(found, list):
                return tuple(self._theirs(inner, each) for each in found)
            return None if found is None else self._theirs(inner, found)
        if isinstance(found, list):
            return tuple(self._their_primitive(kind, each) for each in found)
        return self._their_primitive(kind, found)

    def _their_primitive(self, kind: str, value: Any) -> Any:
        if kind == "error_code":
            return KioErrorCode(value)
        if kind.startswith("timedelta"):
            return datetime.timedelta(milliseconds=value)
        if kind == "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        if kind == "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        return value

    def _ours(self, cls: type, value: Any, version: int) -> Any:
        by_name = {kio_name(field): (field, getattr(value, field.name)) for field in dataclasses.fields(value)}
        values = {}
        for field in fields_of(cls, version):
            theirs, found = by_name.pop(field.name)
            values[field.name] = self._our_field(field, theirs.metadata.get("kafka_type"), found, version)
        assert not by_name
        return cls(**values)

    def _our_field(self, field: Field, kind: str | None, found: Any, version: int) -> Any:
        if isinstance(found, tuple):
            return [self._our_element(field, kind, each, version) for each in found]
        return self._our_element(field, kind, found, version)

    def _our_element(self, field: Field, kind: str | None, found: Any, version: int) -> Any:
        if not isinstance(field.element, Primitive):
            return None if found is None else self._ours(field.element, found, version)
        if kind == "error_code":
            return int(found)
        if isinstance(found, datetime.timedelta):
            return found // datetime.timedelta(milliseconds=1)
        if kind == "datetime_i64":
            return -1 if found is None else (found - EPOCH) // datetime.timedelta(milliseconds=1)
        if kind == "uuid":
            return bytes(16) if found is None else found.bytes
        return found

    def _declared(self, schema: type) -> list[Declared]:
        found = []
        for field in dataclasses.fields(schema):
            kind = field.metadata.get("kafka_type")
            text = str(field.type)
            is_array = text.startswith("tuple[")
            found.append(
                Declared(
                    name=kio_name(field),
                    kind=STRUCTURE if kind is None else self._KINDS.get(kind, kind),
                    is_array=is_array,
                    is_nullable="None" in text and kind not in ("uuid", "datetime_i64"),
                    tag=field.metadata.get("tag"),
                    default=_kio_default(field, kind, is_array=is_array),
                    fields=self._declared(kio_element(field)) if kind is None else (),
                )
            )
        return found


@functools.cache
def kio_schema(message: Message) -> type:
    load = load_request_schema if message.side == "request" else load_response_schema
    return load(message.api.key, message.version)


def kio_name(field: dataclasses.Field[Any]) -> str:
    kind = field.metadata.get("kafka_type") or ""
    return f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name


def _kio_default(field: dataclasses.Field[Any], kind: str | None, *, is_array: bool) -> Any:
    """Where the schema names none: what Kafka's generator takes."""
    default = field.default
    if kind == "uuid" and not is_array:
        return bytes(16)
    if default is dataclasses.MISSING or default == ():
        implicit = {"string": "", "bytes": b"", "bool": False, "records": None, None: OWN_DEFAULTS}
        may_be_null = kind is None and "None" in str(field.type)
        return (UNSAID if may_be_null else []) if is_array else implicit.get(kind, 0)
    if dataclasses.is_dataclass(default):
        return OWN_DEFAULTS if default == type(default)() else default
    if isinstance(default, datetime.timedelta):
        return default // datetime.timedelta(milliseconds=1)
    return -1 if kind == "datetime_i64" and default is None else default


@functools.cache
def kio_element(field: dataclasses.Field[Any]) -> Any:
    """The dataclass inside of `X`, `X | None`, `tuple[X, ...]` and `tuple[X, ...] | None`."""

    def inside(kind: Any) -> Any:
        if dataclasses.is_dataclass(kind):
            return kind
        return next((found for each in getattr(kind, "__args__", ()) if (found := inside(each)) is not None), None)

    return inside(field.type)


class KafkaPython:
    """Kafka's schema files themselves, without what its client patches into them; values are dictionaries."""

    def knows(self, message: Message) -> bool:
        return message.api.name not in WITHOUT_KAFKA_PYTHON and (message.api.name, message.version) not in NEWER

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

    def choose(self, field: Field, random: Random) -> Any:
        return ANYTHING

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


ORACLES: Final[dict[str, Oracle]] = {"kio": Kio(), "kafka-python": KafkaPython()}
