"""Operations of the registry: each reads the state, decides, and stores the records of a change.

Source: the API reference of Confluent's Schema Registry, version 8.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError
from .compatibility import Source, dependencies_of, incompatibilities, source_of, versions_to_compare
from .errors import (
    INCOMPATIBLE,
    NO_SUBJECT_COMPATIBILITY,
    NO_SUBJECT_MODE,
    NOT_PERMITTED,
    REFERENCE_EXISTS,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    InvalidSchemaError,
    RegistryError,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from .formats.parsed import PROTOBUF, Parsed
from .formats.parsing import serialized
from .records import CONFIG, DELETE_SUBJECT, MODE, Reference, StoredSchema, Written, subject_key, subject_record
from .state import IMPORT, READONLY, READONLY_OVERRIDE, READWRITE, Config, Schemas, size_of, size_of_settings
from .topic import SchemasTopic

MAX_VERSIONS: Final = 1_000
"""Versions of a subject, softly deleted ones too: a transitive level compares with all of them."""
LAST_ID: Final = 2**31 - 1
CHARS_AT_ONCE: Final = 4_096
"""Schemas up to this length are parsed on the spot, in a millisecond. Larger ones are parsed in a thread."""
LATEST: Final = -1

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Submission:
    """A schema that a client sends."""

    schema: str
    schema_type: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    version: int | None = None


@attrs.define(eq=False, repr=False)
class Registry:
    """See the module. It keeps no state of its own."""

    topic: SchemasTopic
    _comparing: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """One long parse or comparison at a time."""

    # ---- registration ----------------------------------------------------------------------------------------------------

    async def register(self, subject: str, submission: Submission, *, normalize: bool = False) -> StoredSchema:
        """Register a schema under a subject, or find it there. Raises RegistryError."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], StoredSchema]]:
            parsed, wanted = await self._parse(schemas, subject, submission, normalize=normalize)
            known = _find(schemas.versions(subject), wanted)
            if known is not None and submission.id in (None, known.id):
                return (), _given(known)
            self._check_mode(schemas, subject, submission)
            if schemas.effective_mode(subject) != IMPORT:
                await self._check_compatible(schemas, subject, wanted.schema_type, parsed)
            stored = _numbered(schemas, wanted, submission)
            _check_memory(schemas, (subject, stored.version), size_of(stored))
            return (stored.record(),), _given(stored)

        return await self.topic.change(decide)

    async def find(
        self, subject: str, submission: Submission, *, normalize: bool = False, deleted: bool = False
    ) -> StoredSchema:
        """Return the version of a subject with this schema. Raises RegistryError."""
        schemas = await self.topic.read()
        if not schemas.versions(subject, deleted=deleted):
            raise subject_not_found(subject)
        _, wanted = await self._parse(schemas, subject, submission, normalize=normalize, may_be_deleted=True)
        found = _find(schemas.versions(subject, deleted=deleted), wanted)
        if found is None:
            raise schema_not_found()
        return found

    async def compare(self, subject: str, submission: Submission, version: int | None, *, normalize: bool = False) -> list[str]:
        """Return why a schema is not compatible with a version of a subject (None: with those that its level names). Raises
        RegistryError."""
        schemas = await self.topic.read()
        level = schemas.effective_config(subject).level
        versions = schemas.versions(subject)
        if version is None:
            olds = versions_to_compare(level, versions)
        elif version == LATEST:
            olds = versions[-1:]
        else:
            olds = [self._version(schemas, subject, version)]
        parsed, wanted = await self._parse(schemas, subject, submission, normalize=normalize)
        return await self._compare(schemas, level, wanted.schema_type, parsed, olds)

    async def _parse(
        self, schemas: Schemas, subject: str, submission: Submission, *, normalize: bool, may_be_deleted: bool = False
    ) -> tuple[Parsed, StoredSchema]:
        """Return the schema, and its form as it would be stored, without an id. Raises RegistryError."""
        references = tuple(
            each._replace(version=_latest(schemas, each)) if each.version == LATEST else each for each in submission.references
        )
        dependencies = dependencies_of(schemas, references, may_be_deleted=may_be_deleted)
        source = Source(submission.schema_type, submission.schema, dependencies)
        parsed = await self._in_thread_if_long(source.chars, source.parse)
        is_normalized = normalize or schemas.effective_config(subject).normalize
        text = parsed.normalized() if is_normalized else parsed.canonical
        return parsed, StoredSchema(
            subject=subject, version=0, id=0, schema_type=submission.schema_type, schema=text, references=references
        )

    async def _check_compatible(self, schemas: Schemas, subject: str, schema_type: str, parsed: Parsed) -> None:
        level = schemas.effective_config(subject).level
        olds = versions_to_compare(level, schemas.versions(subject))
        if found := await self._compare(schemas, level, schema_type, parsed, olds):
            raise RegistryError(
                INCOMPATIBLE,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
                f"[{', '.join(found)}]",
            )

    async def _compare(
        self, schemas: Schemas, level: str, schema_type: str, parsed: Parsed, olds: Sequence[StoredSchema]
    ) -> list[str]:
        sources = [source_of(schemas, each) for each in olds]
        compare = partial(incompatibilities, level, schema_type, parsed, sources)
        return await self._in_thread_if_long(len(parsed.canonical) + sum(each.chars for each in sources), compare)

    async def _in_thread_if_long(self, chars: int, work: Callable[[], T]) -> T:
        if chars <= CHARS_AT_ONCE:
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._comparing)

    def _check_mode(self, schemas: Schemas, subject: str, submission: Submission | None = None) -> None:
        """Raises RegistryError for a change that the mode does not allow."""
        mode = schemas.effective_mode(subject)
        if submission is None:
            if mode in (READONLY, READONLY_OVERRIDE):
                raise RegistryError(NOT_PERMITTED, f"Subject {subject} is in read-only mode")
        elif submission.id is not None:
            if mode != IMPORT:
                raise RegistryError(NOT_PERMITTED, f"Subject {subject} is not in import mode")
        elif mode != READWRITE:
            raise RegistryError(NOT_PERMITTED, f"Subject {subject} is not in read-write mode")

    # ---- reading ---------------------------------------------------------------------------------------------------------

    async def version(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema:
        """Raises RegistryError."""
        return self._version(await self.topic.read(), subject, version, deleted=deleted)

    def _version(self, schemas: Schemas, subject: str, version: int, *, deleted: bool = False) -> StoredSchema:
        versions = schemas.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        if version == LATEST:
            return versions[-1]
        found = schemas.version(subject, version)
        if found is None or (found.is_deleted and not deleted):
            raise version_not_found(version)
        return found

    async def schema(self, schema_id: int, subject: str | None = None) -> StoredSchema:
        """Return a version with this id, one of `subject` if there is one. Raises RegistryError."""
        uses = (await self.topic.read()).uses(schema_id)
        if not uses:
            raise schema_not_found(schema_id)
        return next((each for each in uses if each.subject == subject), uses[0])

    async def text(self, stored: StoredSchema, form: str) -> str:
        """Return the text of a schema. The form `serialized` of a Protobuf schema is its descriptor, in base64. Raises
        RegistryError."""
        if form != "serialized" or stored.schema_type != PROTOBUF:
            return stored.schema
        source = source_of(await self.topic.read(), stored)
        return serialized(await self._in_thread_if_long(source.chars, source.parse))

    # ---- deletion --------------------------------------------------------------------------------------------------------

    async def delete_version(self, subject: str, version: int, *, permanent: bool) -> int:
        """Delete a version and return it. Raises RegistryError."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], int]]:
            stored = self._version(schemas, subject, version, deleted=version != LATEST)
            self._check_mode(schemas, subject)
            named = f"Subject '{subject}' Version {stored.version} was"
            if stored.is_deleted and not permanent:
                raise RegistryError(VERSION_SOFT_DELETED, f"{named} soft deleted. Set permanent=true to delete permanently")
            if permanent and not stored.is_deleted:
                raise RegistryError(VERSION_NOT_SOFT_DELETED, f"{named} not deleted first before being permanently deleted")
            _check_unreferenced(schemas, [stored])
            key, value = stored.record(is_deleted=True)
            records: list[Written] = [(key, None if permanent else value)]
            if [stored] == schemas.versions(subject):
                records += _forget_settings(schemas, subject)
            return records, _given(stored.version)

        return await self.topic.change(decide)

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject and return them. Raises RegistryError."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], list[int]]]:
            versions, active = schemas.versions(subject, deleted=True), schemas.versions(subject)
            if not versions:
                raise subject_not_found(subject)
            self._check_mode(schemas, subject)
            if not active and not permanent:
                raise RegistryError(
                    SUBJECT_SOFT_DELETED, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
                )
            if active and permanent:
                raise RegistryError(
                    SUBJECT_NOT_SOFT_DELETED, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
            gone = versions if permanent else active
            _check_unreferenced(schemas, gone)
            records: list[Written] = [(each.record()[0], None) for each in gone] if permanent else []
            if permanent:
                records.append((subject_key(DELETE_SUBJECT, subject), None))
            else:
                records.append(subject_record(DELETE_SUBJECT, subject, version=versions[-1].version))
            return [*records, *_forget_settings(schemas, subject)], _given([each.version for each in gone])

        return await self.topic.change(decide)

    # ---- settings --------------------------------------------------------------------------------------------------------

    async def config(self, subject: str | None, *, default: bool = False) -> Config:
        """Return the settings of a subject, or of all; with `default`, those that apply to it. Raises RegistryError."""
        schemas = await self.topic.read()
        found = schemas.config(subject)
        if found is None and subject is not None:
            if not default:
                raise RegistryError(
                    NO_SUBJECT_COMPATIBILITY, f"Subject '{subject}' does not have subject-level compatibility configured"
                )
            found = schemas.effective_config(subject)
        return found or Config()

    async def set_config(self, subject: str | None, level: str | None, normalize: bool | None) -> None:
        """Change settings; None leaves one as it is. Raises RegistryError."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], None]]:
            self._check_settings_mode(schemas, subject)
            old = schemas.config(subject) or Config()
            _check_memory(schemas, (CONFIG, subject), size_of_settings(subject))
            members = {"compatibilityLevel": level or old.level}
            flag = {"normalize": True} if (old.normalize if normalize is None else normalize) else {}
            return (subject_record(CONFIG, subject, **members, **flag),), _given(None)

        await self.topic.change(decide)

    async def delete_config(self, subject: str | None) -> Config:
        """Return to the default, and return the settings before. Raises RegistryError."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], Config]]:
            self._check_settings_mode(schemas, subject)
            old = schemas.config(subject)
            if old is None and subject is not None:
                raise subject_not_found(subject)
            return ((subject_key(CONFIG, subject), None),), _given(old or Config())

        return await self.topic.change(decide)

    def _check_settings_mode(self, schemas: Schemas, subject: str | None) -> None:
        if schemas.effective_mode(subject) in (READONLY, READONLY_OVERRIDE):
            raise RegistryError(NOT_PERMITTED, f"{f'Subject {subject}' if subject else 'The registry'} is in read-only mode")

    async def mode(self, subject: str | None, *, default: bool = False) -> str:
        """Return the mode of a subject, or of all; with `default`, the one that applies to it. Raises RegistryError."""
        schemas = await self.topic.read()
        found = schemas.mode(subject)
        if found is None and subject is not None and not default:
            raise RegistryError(NO_SUBJECT_MODE, f"Subject '{subject}' does not have subject-level mode configured")
        return found or schemas.effective_mode(subject)

    async def set_mode(self, subject: str | None, mode: str, *, force: bool) -> None:
        """Raises RegistryError: schemas may be imported only where there are none, unless `force`."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], None]]:
            names = schemas.subjects() if subject is None else iter((subject,))
            if mode == IMPORT and not force and any(schemas.versions(each) for each in names):
                raise RegistryError(NOT_PERMITTED, "Cannot import since found existing subjects")
            _check_memory(schemas, (MODE, subject), size_of_settings(subject))
            return (subject_record(MODE, subject, mode=mode),), _given(None)

        await self.topic.change(decide)

    async def delete_mode(self, subject: str | None) -> str:
        """Return to the default, and return the mode before. Raises RegistryError."""

        async def decide(schemas: Schemas) -> tuple[Sequence[Written], Callable[[], str]]:
            old = schemas.mode(subject)
            if old is None and subject is not None:
                raise subject_not_found(subject)
            return ((subject_key(MODE, subject), None),), _given(old or READWRITE)

        return await self.topic.change(decide)


def _check_memory(schemas: Schemas, key: Hashable, size: int) -> None:
    """Raises RegistryError for an entry for which the client has no memory left."""
    try:
        schemas.account.check(key, size)
    except RequestError as exc:
        raise RegistryError(NOT_PERMITTED, exc.message) from exc


def _given(value: T) -> Callable[[], T]:
    return lambda: value


def _find(versions: Sequence[StoredSchema], wanted: StoredSchema) -> StoredSchema | None:
    """Return the newest version with the same content."""
    return next((each for each in reversed(versions) if each.has_content_of(wanted)), None)


def _latest(schemas: Schemas, reference: Reference) -> int:
    versions = schemas.versions(reference.subject)
    if not versions:
        raise InvalidSchemaError(f'No schema reference found for subject "{reference.subject}" and version latest')
    return versions[-1].version


def _numbered(schemas: Schemas, wanted: StoredSchema, submission: Submission) -> StoredSchema:
    """Return the schema with its id and version. Raises RegistryError."""
    versions = schemas.versions(wanted.subject, deleted=True)
    if len(versions) >= MAX_VERSIONS:
        raise RegistryError(
            NOT_PERMITTED,
            f"Subject '{wanted.subject}' has {len(versions)} versions, the maximum. Delete some permanently",
        )
    following = versions[-1].version + 1 if versions else 1
    version = submission.version or following
    if submission.id is None:
        if version != following:
            raise InvalidSchemaError(f"Version {version} is not one more than previous version {following - 1}")
        schema_id = schemas.id_of(wanted.identity) or schemas.max_id + 1
    else:
        schema_id = submission.id
        if not all(each.has_content_of(wanted) for each in schemas.uses(schema_id)):
            raise RegistryError(NOT_PERMITTED, f"Overwrite new schema with id {schema_id} is not permitted.")
        if schemas.version(wanted.subject, version) is not None:
            raise RegistryError(NOT_PERMITTED, f"Overwrite of version {version} is not permitted.")
    if schema_id > LAST_ID:
        raise RegistryError(NOT_PERMITTED, "no schema id is left")
    return attrs.evolve(wanted, id=schema_id, version=version)


def _check_unreferenced(schemas: Schemas, versions: Sequence[StoredSchema]) -> None:
    """Raises RegistryError if other schemas refer to one of these."""
    for each in versions:
        if any(other not in versions for other in schemas.referrers(each.subject, each.version)):
            raise RegistryError(
                REFERENCE_EXISTS,
                "One or more references exist to the schema "
                f"{{magic=1,keytype=SCHEMA,subject={each.subject},version={each.version}}}.",
            )


def _forget_settings(schemas: Schemas, subject: str) -> list[Written]:
    """Return the records that delete the settings of a subject without versions."""
    found = []
    if schemas.mode(subject) is not None:
        found.append((subject_key(MODE, subject), None))
    if schemas.config(subject) is not None:
        found.append((subject_key(CONFIG, subject), None))
    return list[Written](found)
