"""Schemas that others refer to, and the comparison of a schema with earlier versions of its subject.

| level | reads the data of the other |
|---|---|
| BACKWARD | the new schema |
| FORWARD | the old schema |
| FULL | both |

A level with `_TRANSITIVE` compares with all versions, the others with the last one. A comparison that cannot be decided counts
as incompatible, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from .errors import InvalidSchemaError, RegistryError
from .formats.parsed import Dependency, Parsed
from .formats.parsing import parse
from .records import Reference, StoredSchema
from .state import Schemas

MAX_REFERENCES: Final = 1_000
"""Schemas that one schema refers to, directly and through others."""
MAX_COMPARED_CHARS: Final = 8 * 2**20
"""Earlier versions that one schema is compared with, with their references. Each MiB takes about a second."""
TRANSITIVE: Final = "_TRANSITIVE"


@attrs.frozen
class Source:
    """A schema with the schemas that it refers to, each before the ones that refer to it."""

    schema_type: str
    schema: str
    dependencies: tuple[Dependency, ...]
    version: int = 0

    @property
    def chars(self) -> int:
        return len(self.schema) + sum(len(each.schema) for each in self.dependencies)

    def parse(self) -> Parsed:
        """Raises RegistryError."""
        return parse(self.schema_type, self.schema, self.dependencies)


def source_of(schemas: Schemas, stored: StoredSchema) -> Source:
    """Raises InvalidSchemaError."""
    dependencies = dependencies_of(schemas, stored.references, may_be_deleted=True)
    return Source(stored.schema_type, stored.schema, dependencies, stored.version)


def dependencies_of(
    schemas: Schemas, references: Sequence[Reference], *, may_be_deleted: bool = False
) -> tuple[Dependency, ...]:
    """Return the schemas behind references. Raises InvalidSchemaError for a missing one, and above MAX_REFERENCES."""
    if len(references) > MAX_REFERENCES:
        raise InvalidSchemaError(f"the schema has {len(references)} references, at most {MAX_REFERENCES} are allowed")
    found: dict[tuple[str, int], Dependency] = {}
    seen: set[tuple[str, int]] = set()
    stack = [(each, False) for each in reversed(references)]
    while stack:
        reference, is_done = stack.pop()
        place = reference.subject, reference.version
        if place in found:
            continue
        stored = schemas.version(*place)
        if stored is None or (stored.is_deleted and reference in references and not may_be_deleted):
            raise InvalidSchemaError(f'No schema reference found for subject "{place[0]}" and version {place[1]}')
        if is_done:
            found[place] = Dependency(reference.name, stored.schema)
        elif place not in seen:
            seen.add(place)
            if len(seen) > MAX_REFERENCES:
                raise InvalidSchemaError(f"the schema refers to more than {MAX_REFERENCES} others")
            stack.append((reference, True))
            stack += [(each, False) for each in reversed(stored.references)]
    return tuple(found.values())


def versions_to_compare(level: str, versions: Sequence[StoredSchema]) -> Sequence[StoredSchema]:
    """Return the versions, the newest first, that a level compares a new schema with."""
    if level == "NONE":
        return ()
    newest_first = versions[::-1]
    return newest_first if level.endswith(TRANSITIVE) else newest_first[:1]


def incompatibilities(level: str, schema_type: str, new: Parsed, olds: Iterable[Source]) -> list[str]:
    """Return why a schema is not compatible with the first of these that it is not compatible with. May take seconds."""
    kind, chars = level.removesuffix(TRANSITIVE), 0
    for old in olds:
        chars += old.chars
        if kind == "NONE":
            return []
        if chars > MAX_COMPARED_CHARS:
            found = [f"the earlier versions are too large to compare: they have more than {MAX_COMPARED_CHARS} characters"]
        else:
            found = _differences(kind, schema_type, new, old)
        if found:
            return [*found, f"{{oldSchemaVersion: {old.version}}}", f"{{compatibility: '{level}'}}"]
    return []


def _differences(kind: str, schema_type: str, new: Parsed, old: Source) -> list[str]:
    if old.schema_type != schema_type:
        return [f"the schema is of type {schema_type}, the earlier one of type {old.schema_type}"]
    try:
        parsed = old.parse()
    except RegistryError as exc:
        return [f"the earlier schema cannot be compared: {exc.message}"]
    found = []
    if kind in ("BACKWARD", "FULL"):
        found += [f"the new schema cannot read data of the old one: {each}" for each in new.incompatibilities(parsed)]
    if kind in ("FORWARD", "FULL"):
        found += [f"the old schema cannot read data of the new one: {each}" for each in parsed.incompatibilities(new)]
    return found
