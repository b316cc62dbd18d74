"""A request of the REST API, as far as its handler needs it: names in the path, parameters, and the schema in the body.

Source: the API reference of Confluent's Schema Registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .errors import INVALID_RULE_SET, INVALID_SUBJECT, INVALID_VERSION, InvalidSchemaError, RegistryError, schema_not_found
from .formats.parsed import TYPES
from .records import AVRO, Reference
from .registry import LATEST, Submission

MAX_SUBJECT_CHARS: Final = 1_000
ANY_CONTEXT: Final = ":*:"
NO_CONTEXTS: Final = "contexts are not supported, only the default context is: use subjects that do not begin with a colon"


class Call(NamedTuple):
    """A request of the API, as far as its handler needs it."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def subject(self) -> str | None:
        """Return the subject in the path; None without one. Raises RegistryError."""
        return checked_subject(self.path["subject"]) if "subject" in self.path else None

    @property
    def named_subject(self) -> str:
        """Return the subject in the path, which has one. Raises RegistryError."""
        return checked_subject(self.path["subject"])

    @property
    def version(self) -> int:
        """Return the version in the path, LATEST for `latest`. Raises RegistryError."""
        return _version(self.path["version"])

    @property
    def schema_id(self) -> int:
        """Return the id in the path. Raises RegistryError."""
        text = self.path["id"]
        if not (text.isascii() and text.isdecimal()) or len(text) > 10:
            raise schema_not_found(text[:40])
        return int(text)

    @property
    def prefix(self) -> str:
        """Return the first letters of the wanted subjects. Raises RegistryError."""
        prefix = self.query.get("subjectPrefix", "").removeprefix(ANY_CONTEXT).removeprefix(":.:")
        if prefix.startswith(":"):
            raise RegistryError(INVALID_SUBJECT, NO_CONTEXTS)
        return prefix

    def flag(self, name: str) -> bool:
        """Return whether a parameter is `true`."""
        return self.query.get(name, "").lower() == "true"

    def page(self, found: Sequence[Any]) -> Sequence[Any]:
        """Return the part that `offset` and `limit` name. Raises RegistryError."""
        offset, limit = _number(self.query, "offset", 0), _number(self.query, "limit", -1)
        return found[max(offset, 0) :][: limit if limit >= 0 else None]

    def submission(self) -> Submission:
        """Return the schema in the body. Raises RegistryError."""
        body = self.body
        schema, kind = body.get("schema"), body.get("schemaType") or AVRO
        if not isinstance(schema, str) or not schema.strip():
            raise InvalidSchemaError("Empty schema")
        if kind not in TYPES:
            raise InvalidSchemaError(f"Invalid schema type {str(kind)[:40]}. Use {', '.join(TYPES)}")
        if body.get("ruleSet"):
            raise RegistryError(INVALID_RULE_SET, "rule sets are not supported: register the schema without ruleSet")
        if body.get("metadata"):
            raise InvalidSchemaError("metadata is not supported: register the schema without it")
        schema_id, version = _given_number(body, "id"), _given_number(body, "version")
        return Submission(
            schema=schema,
            schema_type=kind,
            references=_references(body.get("references") or []),
            id=schema_id if schema_id is not None and schema_id > 0 else None,
            version=version if version is not None and version > 0 else None,
        )


def checked_subject(subject: str) -> str:
    """Return the subject without the default context. Raises RegistryError."""
    name = subject.removeprefix(":.:")
    if name.startswith(":"):
        raise RegistryError(INVALID_SUBJECT, f"The specified subject '{subject[:100]}' is not a valid subject: {NO_CONTEXTS}")
    if not name or len(name) > MAX_SUBJECT_CHARS or not name.isprintable() or name in ("__GLOBAL", "__EMPTY"):
        raise RegistryError(INVALID_SUBJECT, f"The specified subject '{subject[:100]}' is not a valid subject.")
    return name


def _version(text: str) -> int:
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdecimal()) or not 0 < len(text) <= 10 or not 0 < int(text) < 2**31:
        raise RegistryError(
            INVALID_VERSION,
            f"The specified version '{text[:40]}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
            'string "latest"',
        )
    return int(text)


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise RegistryError(400, f"{name} is {text[:40]!r}, expected a number") from None


def _given_number(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**31):
        raise InvalidSchemaError(f"{name} is {str(value)[:40]!r}, expected a number up to 2^31-1")
    return value


def _references(given: Any) -> tuple[Reference, ...]:
    """Raises InvalidSchemaError."""
    try:
        found = tuple(Reference(each["name"], each["subject"], each.get("version", LATEST)) for each in given)
    except (TypeError, KeyError, AttributeError):
        raise InvalidSchemaError("a reference has no name or no subject") from None
    for name, subject, version in found:
        is_number = isinstance(version, int) and not isinstance(version, bool) and (version == LATEST or 0 < version < 2**31)
        is_text = isinstance(name, str) and name.isprintable() and isinstance(subject, str)
        if not is_text or not is_number:
            raise InvalidSchemaError("a reference needs a name, a subject and a version from 1 on")
    return tuple(each._replace(subject=checked_subject(each.subject)) for each in found)
