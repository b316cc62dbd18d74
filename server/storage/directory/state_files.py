"""Files of a log directory that hold a state as a whole (`topics.json`, `security.json`, `groups.json`, `client-metrics.json`,
`brokers.json`): nothing is written that could not be read again, and the copy from before the last change stays beside the new
one.

Where the file cannot be read, no start goes by that copy on its own: it lacks the last change. `triolog repair` returns to it.

Small JSON files that are written as a whole: `{"format_version": n, ..., "crc32c": c}`, where `crc32c` is that of the
document without it.

Files that say which keys were set while the server ran, in every log directory beside `topics.json` (our own; Kafka keeps
this in its metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, FIELD: {"name": {"key": "value"}}, "crc32c": c}`; the copy with the highest generation
counts. A copy that cannot be read keeps the server from starting: it would do something else than was agreed.

`groups.json`: what groups were configured with, by group.

`client-metrics.json`: which metrics of clients are wanted (KIP-714), by subscription.

`security.json`: SCRAM credentials, ACLs and client quotas, in every log directory beside `topics.json` (our own; Kafka keeps
them in its metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, "scram_credentials": [{"user", "mechanism", "credential"}], "acls": [{"resource_type",
"resource_name", "pattern_type", "principal", "host", "operation", "permission"}], "client_quotas": [{"entity", "quotas"}],
"salt_secret", "crc32c": c}`; quotas are there when there are any; the secret gives users who do not exist, and those of the
configuration, salts that stay the same as long as stored ones do. The copy with the highest generation counts. A file of its
own rather than a log: it is small and changes seldom, it has to be known before the first connection is let in, and what says
who may log in should not hang on retention or compaction. There are no passwords in it, and only its owner may read it: from
a credential a password can be guessed at leisure. A copy that cannot be read keeps the server from starting: without its
rules too much would be allowed.
`crc32c` is that of the document without it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final, TypeVar

import attrs

from ....protocol.errors import RequestError
from ....protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from ....protocol.kafka.scram import ScramCredential, ScramMechanism
from ....protocol.records.batch import crc32c
from ...access.acls import Acl
from ...access.quotas import QuotaEntity, checked_entity
from ..disk.checkpoints import PREVIOUS_SUFFIX, check_size, maybe_read, read_small
from ..disk.filesystem import FileSystem, link_file, replace_file
from ..errors import UNREADABLE_JSON, CheckpointError

FORMAT_VERSION: Final = 1
CHECKSUM_KEY: Final = "crc32c"

T = TypeVar("T")


def encode_checked(fields: Mapping[str, Any]) -> bytes:
    document: dict[str, Any] = {"format_version": FORMAT_VERSION, **fields}
    document[CHECKSUM_KEY] = _checksum(document)
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_checked(
    path: str,
    data: bytes,
    read: Callable[[dict[str, Any]], T],
    *,
    remedy: str,
    editable: Set[str] | None = None,
    advice: str = "",
) -> T:
    """Return the result of `read` for the document. Raises CheckpointError, also where `read` raises one of UNREADABLE_JSON.
    The error names the file, the fault and the remedy; never the file's content, unless people may edit the file.

    `editable` are the fields of a file that people may edit: then the checksum may be missing, and `advice` is for one that is
    wrong. A field that is not listed is refused: one flipped bit in the name of the checksum would leave the file without one.
    """
    try:
        document = json.loads(data)
        version = document["format_version"]
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {version}, known is {FORMAT_VERSION}: a newer triolog wrote it, or it is "
                f"damaged. {remedy}"
            )
        found = document.pop(CHECKSUM_KEY) if editable is None else document.pop(CHECKSUM_KEY, None)
        if editable is not None and (unknown := document.keys() - editable):
            raise CheckpointError(
                f"{path} has a field {min(unknown)!r} that format version {FORMAT_VERSION} does not have. {advice}"
            )
        if (editable is None or found is not None) and found != (computed := _checksum(document)):
            raise CheckpointError(f"{path} has {CHECKSUM_KEY} {found}, its content has {computed}. {advice or remedy}")
        return read(document)
    except UNREADABLE_JSON as exc:
        if editable is None:
            raise CheckpointError(f"cannot read {path} ({type(exc).__name__}). {remedy}") from None
        raise CheckpointError(f"cannot read {path}: {type(exc).__name__}: {exc}. {remedy}") from exc


def _checksum(document: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(document, indent=1).encode())


def read_state(fs: FileSystem, path: str, decode: Callable[[str, bytes], T]) -> T | None:
    """Decode the file; None when there is none. Raises OSError, and CheckpointError that names every way out."""
    try:
        return maybe_read(fs, path, decode)
    except CheckpointError as exc:
        if fs.file_size(path + PREVIOUS_SUFFIX) is None:
            raise
        name = os.path.basename(path)
        raise CheckpointError(
            f"{exc}. Or `triolog repair {os.path.dirname(path)}` returns to {name}{PREVIOUS_SUFFIX}, which lacks "
            "the last change"
        ) from exc


def read_previous(fs: FileSystem, path: str, decode: Callable[[str, bytes], object]) -> bytes | None:
    """The bytes of the copy from before the last change; None when there is none that can be read. Raises OSError."""
    previous = path + PREVIOUS_SUFFIX
    try:
        data = read_small(fs, previous)
        decode(previous, data)
    except (FileNotFoundError, CheckpointError):
        return None
    return data


def write_state(fs: FileSystem, path: str, data: bytes, *, durable: bool, private: bool = False) -> None:
    """Put the file in place; on the device when this returns. Raises FileTooLargeError before anything is changed, OSError."""
    check_size(path, len(data))
    if durable:
        _keep_previous(fs, path, private=private)
    replace_file(fs, path, data, durable=durable, private=private)


def _keep_previous(fs: FileSystem, path: str, *, private: bool) -> None:
    """Give the file as it is a second name; a copy, where the mount knows no links. Its name is synced with that of the new
    file."""
    previous = path + PREVIOUS_SUFFIX
    if fs.file_size(path) is None:
        return
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(previous)
    if not link_file(fs, path, previous):
        with contextlib.suppress(CheckpointError):  # one that is too large is not worth keeping
            replace_file(fs, previous, read_small(fs, path), durable=False, private=private)


@attrs.frozen
class Overrides:
    """The contents of a file of overrides."""

    generation: int = 0
    overrides: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Key and value by name, without the names that set nothing."""

    def changed(self, name: str, keys: Mapping[str, str]) -> Overrides:
        """The same with other keys of one name."""
        others = {each: values for each, values in self.overrides.items() if each != name}
        return attrs.evolve(self, overrides={**others, name: dict(keys)} if keys else others)


@attrs.frozen
class OverridesFile:
    """A kind of file of overrides."""

    name: str
    field: str
    without_it: str
    """What holds without the file, for whoever has to repair it."""

    def encode(self, overrides: Overrides) -> bytes:
        named = {name: dict(sorted(keys.items())) for name, keys in sorted(overrides.overrides.items())}
        return encode_checked({"generation": overrides.generation, self.field: named})

    def decode(self, path: str, data: bytes) -> Overrides:
        """Raises CheckpointError naming the file and what is wrong with it."""
        remedy = f"Copy the file of another log directory, or of a backup, over it. Without the file {self.without_it}"
        return decode_checked(path, data, self._overrides, remedy=remedy)

    def _overrides(self, document: dict[str, Any]) -> Overrides:
        named = document[self.field]
        found = {str(name): {str(key): str(value) for key, value in keys.items()} for name, keys in named.items()}
        return Overrides(int(document["generation"]), found)

    def read(self, fs: FileSystem, directory: str) -> Overrides:
        """Return the overrides of a log directory; generation 0 without the file. Raises CheckpointError, OSError."""
        return read_state(fs, f"{directory}/{self.name}", self.decode) or Overrides()

    def write(self, fs: FileSystem, directory: str, overrides: Overrides, *, durable: bool) -> None:
        """Put the file in place; on the device when this returns. Raises FileTooLargeError, OSError."""
        write_state(fs, f"{directory}/{self.name}", self.encode(overrides), durable=durable)


BROKERS: Final = OverridesFile(
    "brokers.json", "brokers", "the server's keys are those of its own file, its environment and its arguments"
)
"""Kafka's keys of brokers, by the number of a node, or by nothing for all of them."""


GROUPS: Final = OverridesFile("groups.json", "groups", "groups are configured as the server is")

CLIENT_METRICS: Final = OverridesFile("client-metrics.json", "subscriptions", "no metrics are requested")


SECURITY_FILE: Final = "security.json"
REMEDY: Final = (
    "Copy the file of another log directory, or of a backup, over it. Without the file there are neither "
    "SCRAM users nor ACLs nor quotas"
)

CredentialKey = tuple[str, ScramMechanism]


@attrs.frozen
class SecurityState:
    """The contents of the file."""

    generation: int = 0
    credentials: Mapping[CredentialKey, ScramCredential] = attrs.field(factory=dict)
    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = attrs.field(factory=dict)
    """By entity: its quotas by key, of which it has at least one."""
    salt_secret: bytes = attrs.field(default=b"", repr=False)
    """Empty: none was stored yet."""


def encode_security(state: SecurityState) -> bytes:
    fields: dict[str, Any] = {
        "generation": state.generation,
        "scram_credentials": [
            {"user": user, "mechanism": mechanism.sasl_name, "credential": credential.as_text()}
            for (user, mechanism), credential in sorted(state.credentials.items())
        ],
        "acls": [_acl_entry(acl) for acl in sorted(state.acls)],
    }
    if state.quotas:
        fields["client_quotas"] = [
            {"entity": dict(entity), "quotas": dict(sorted(values.items()))}
            for entity, values in sorted(state.quotas.items(), key=repr)
        ]
    if state.salt_secret:
        fields["salt_secret"] = state.salt_secret.hex()
    return encode_checked(fields)


def decode_security(path: str, data: bytes) -> SecurityState:
    """Raises CheckpointError naming the file and what is wrong with it, never what is secret."""
    return decode_checked(path, data, _state, remedy=REMEDY)


def _state(document: dict[str, Any]) -> SecurityState:
    try:
        quotas = dict(map(_quotas, document.get("client_quotas", ())))
    except RequestError as exc:
        raise ValueError(exc.message) from exc
    return SecurityState(
        int(document["generation"]),
        dict(_credentials(document["scram_credentials"])),
        frozenset(map(_acl, document["acls"])),
        quotas,
        bytes.fromhex(document.get("salt_secret", "")),
    )


def read_security(fs: FileSystem, directory: str) -> SecurityState:
    """Return the security state of a log directory; generation 0 without the file. Raises CheckpointError, OSError."""
    return read_state(fs, f"{directory}/{SECURITY_FILE}", decode_security) or SecurityState()


def write_security(fs: FileSystem, directory: str, state: SecurityState, *, durable: bool) -> None:
    """Put the file in place; on the device when this returns. Raises FileTooLargeError, OSError."""
    write_state(fs, f"{directory}/{SECURITY_FILE}", encode_security(state), durable=durable, private=True)


def _credentials(entries: Iterable[Any]) -> Iterable[tuple[CredentialKey, ScramCredential]]:
    for entry in entries:
        mechanism = ScramMechanism[entry["mechanism"].replace("-", "_")]
        yield (str(entry["user"]), mechanism), ScramCredential.parse(mechanism, entry["credential"])


def _quotas(entry: Any) -> tuple[QuotaEntity, dict[str, float]]:
    return checked_entity(entry["entity"].items()), {str(key): float(value) for key, value in entry["quotas"].items()}


def _acl_entry(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _acl(entry: Any) -> Acl:
    return Acl(
        ResourceType[entry["resource_type"]],
        str(entry["resource_name"]),
        PatternType[entry["pattern_type"]],
        str(entry["principal"]),
        str(entry["host"]),
        AclOperation[entry["operation"]],
        AclPermission[entry["permission"]],
    )
