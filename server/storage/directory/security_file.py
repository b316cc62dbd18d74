"""`security.json`: SCRAM credentials, ACLs and client quotas, in every log directory beside `topics.json` (our own; Kafka keeps
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

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ....protocol.errors import RequestError
from ....protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from ....protocol.kafka.scram import ScramCredential, ScramMechanism
from ...access.acls import Acl
from ...access.quotas import QuotaEntity, checked_entity
from ..disk.filesystem import FileSystem
from .state_files import decode_checked, encode_checked, read_state, write_state

SECURITY_FILE: Final = "security.json"
REMEDY: Final = (
    "copy the one of another log directory, or of a backup, over it; "
    "without the file there are neither SCRAM users nor ACLs nor quotas"
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
    try:
        return read_state(fs, f"{directory}/{SECURITY_FILE}", decode_security)
    except FileNotFoundError:
        return SecurityState()


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
