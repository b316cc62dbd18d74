"""Subjects, versions, ids, compatibility levels and modes: the state that a replay of `_schemas` gives.

*Invariants*: only `apply` changes the state, by one record; a version of a subject never changes its content; an id stands for
one content. A record that breaks one of these, or is not readable, has no effect and is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import attrs

from ..system.client_memory import Account, deep_bytes
from .records import (
    CONFIG,
    DELETE_SUBJECT,
    IGNORED,
    MODE,
    SCHEMA,
    StoredSchema,
    read_json,
)

LOGGER: Final = logging.getLogger(__name__)

LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
DEFAULT_LEVEL: Final = "BACKWARD"
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)


@attrs.frozen
class Config:
    """The settings of a subject, or of all subjects."""

    level: str = DEFAULT_LEVEL
    normalize: bool = False


@attrs.define(eq=False, repr=False)
class Schemas:
    """See the module. Owner: `SchemasTopic`."""

    account: Account
    max_id: int = 0
    """The largest id that was ever seen, so that an id is not given twice."""
    unreadable: int = 0
    _subjects: dict[str, dict[int, StoredSchema]] = attrs.field(factory=dict)
    _uses: dict[int, dict[tuple[str, int], StoredSchema]] = attrs.field(factory=dict)
    """By id, the versions with it, deleted ones too."""
    _ids: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """By type and guid."""
    _referrers: dict[tuple[str, int], set[tuple[str, int]]] = attrs.field(factory=dict)
    """By version, the versions that refer to it."""
    _configs: dict[str | None, Config] = attrs.field(factory=dict)
    _modes: dict[str | None, str] = attrs.field(factory=dict)

    # ---- replay ----------------------------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the topic."""
        try:
            self._apply(read_json(key or b""), None if value is None else read_json(value))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as exc:
            self.unreadable += 1
            if self.unreadable == 1:
                LOGGER.warning("schema registry skipped a record: key=%.200r reason=%r", key, exc)

    def _apply(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        kind = key["keytype"]
        if kind in IGNORED:
            return
        subject = key["subject"]
        if subject is not None and not isinstance(subject, str):
            raise TypeError("the subject is not text")
        if kind == CONFIG:
            self._set(self._configs, kind, subject, None if value is None else _config(value))
        elif kind == MODE:
            self._set(self._modes, kind, subject, None if value is None else _one_of(value["mode"], MODES))
        elif subject is None:
            raise TypeError("the subject is missing")
        elif kind == SCHEMA:
            version = int(key["version"])
            schema = None if value is None else attrs.evolve(StoredSchema.parse(value), subject=subject, version=version)
            if schema is not None:
                self._check_id(schema)
            self._forget(subject, version)
            if schema is not None:
                self._put(schema)
        elif kind == DELETE_SUBJECT:
            if value is not None:
                self._delete_softly(subject, int(value["version"]))
        else:
            raise ValueError(f"unknown keytype {kind!r}")

    def _check_id(self, schema: StoredSchema) -> None:
        """Raises ValueError if other versions have the id for another content."""
        others = (each for place, each in self._uses.get(schema.id, {}).items() if place != (schema.subject, schema.version))
        if any(not each.has_content_of(schema) for each in others):
            raise ValueError(f"id {schema.id} has another schema already")

    def _put(self, schema: StoredSchema) -> None:
        place = schema.subject, schema.version
        self._subjects.setdefault(schema.subject, {})[schema.version] = schema
        self._uses.setdefault(schema.id, {})[place] = schema
        self._ids.setdefault(schema.identity, schema.id)
        for each in schema.references:
            self._referrers.setdefault((each.subject, each.version), set()).add(place)
        self.max_id = max(self.max_id, schema.id)
        self.account.put(place, size_of(schema))

    def _forget(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        schema = versions.pop(version, None)
        if schema is None:
            return
        if not versions:
            del self._subjects[subject]
        place = subject, version
        del self._uses[schema.id][place]
        if not self._uses[schema.id]:
            del self._uses[schema.id]
            if self._ids[schema.identity] == schema.id:
                del self._ids[schema.identity]
        for each in schema.references:
            referrers = self._referrers.get((each.subject, each.version), set())
            referrers.discard(place)
            if not referrers:
                self._referrers.pop((each.subject, each.version), None)
        self.account.drop(place)

    def _delete_softly(self, subject: str, up_to: int) -> None:
        for version, schema in self._subjects.get(subject, {}).items():
            if version <= up_to and not schema.is_deleted:
                deleted = attrs.evolve(schema, is_deleted=True)
                self._subjects[subject][version] = self._uses[schema.id][subject, version] = deleted

    def _set(self, table: dict[str | None, Any], kind: str, subject: str | None, value: Any) -> None:
        if value is None:
            table.pop(subject, None)
            self.account.drop((kind, subject))
        else:
            table[subject] = value
            self.account.put((kind, subject), size_of_settings(subject))

    # ---- reading ---------------------------------------------------------------------------------------------------------

    def subjects(self) -> Iterator[str]:
        """Names of all subjects with a version, deleted ones too, in order."""
        return iter(sorted(self._subjects))

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """The versions of a subject in order; with `deleted`, softly deleted ones too."""
        found = self._subjects.get(subject, {})
        return [found[version] for version in sorted(found) if deleted or not found[version].is_deleted]

    def version(self, subject: str, version: int) -> StoredSchema | None:
        """A version, softly deleted or not."""
        return self._subjects.get(subject, {}).get(version)

    def uses(self, schema_id: int) -> list[StoredSchema]:
        """The versions with this id, softly deleted ones too, in order."""
        return [each for _, each in sorted(self._uses.get(schema_id, {}).items())]

    def id_of(self, identity: tuple[str, str]) -> int | None:
        return self._ids.get(identity)

    def ids_with(self, guid: str, types: tuple[str, ...]) -> list[int]:
        """The ids of the schemas with this guid, of any of these types."""
        return [found for each in types if (found := self._ids.get((each, guid))) is not None]

    def referrers(self, subject: str, version: int) -> list[StoredSchema]:
        """The versions, not deleted ones, that refer to a version."""
        places = sorted(self._referrers.get((subject, version), ()))
        found = [self._subjects[name][number] for name, number in places]
        return [each for each in found if not each.is_deleted]

    def config(self, subject: str | None) -> Config | None:
        """The settings of a subject (None: of all subjects), if it has some."""
        return self._configs.get(subject)

    def effective_config(self, subject: str) -> Config:
        return self._configs.get(subject) or self._configs.get(None) or Config()

    def mode(self, subject: str | None) -> str | None:
        """The mode of a subject (None: of all subjects), if it has one."""
        return self._modes.get(subject)

    def effective_mode(self, subject: str | None) -> str:
        everywhere = self._modes.get(None, READWRITE)
        if everywhere == READONLY_OVERRIDE:
            return everywhere
        return self._modes.get(subject, everywhere)


def size_of(schema: StoredSchema) -> int:
    """Return the bytes that a version is charged."""
    return deep_bytes(schema)


def size_of_settings(subject: str | None) -> int:
    """Return the bytes that the compatibility or the mode of a subject is charged."""
    return deep_bytes(subject or "")


def _config(value: dict[str, Any]) -> Config:
    return Config(_one_of(value.get("compatibilityLevel") or DEFAULT_LEVEL, LEVELS), bool(value.get("normalize")))


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is not one of {', '.join(known)}")
    return str(value)
