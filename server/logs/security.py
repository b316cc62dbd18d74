"""Owner of who may log in, who may do what and how much of it: SCRAM credentials, ACLs, client quotas, and the users of the
configuration.

What clients change is in `security.json` in every log directory before it counts, and before it is answered. What the
configuration's file of users says is read at the start, and again when settings are, and written nowhere.

The audit log (`audit_file`): who logged in and who did not, what was refused, and who changed what, a JSON object a line.

    {"time": "2026-11-26T01:02:03.004Z", "event": "login", "principal": "User:alice", "host": "10.0.0.1", ...}

Lines are appended in the order of events by one task, in a thread, and the file is opened for each write, so that it may be
moved away at any time. They are not synced. What cannot be written, or is too much while the device is busy, is counted, and
said in the server's log. No event has a password, a token or a credential in it: who notes one names things only.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import trio

from ...protocol.errors import InvalidRequestError
from ...protocol.kafka.authorization import AclOperation, ResourceType
from ...protocol.kafka.scram import DEFAULT_SHAPE, MIN_ITERATIONS, ScramCredential, ScramMechanism, Shape, decoy, salt_of
from ...protocol.limits import MAX_RULE_NAME_CHARS, MIB
from ..access.acls import Acl, AclAuthorizer, AclFilter
from ..access.quotas import ClientQuotas, QuotaEntity
from ..access.users import MAX_USERS_FILE_BYTES, ConfiguredUser, decode_users
from ..config.broker_config import BrokerConfig
from ..config.listener_security import OAUTHBEARER
from ..partitions.disk import Disk
from ..storage.directory.state_files import CredentialKey, SecurityState, read_security, write_security
from ..storage.disk.filesystem import read_file
from ..system.clock import NowMs
from .configs import Copies
from .log_manager import LogManager

if TYPE_CHECKING:
    from .bearer_tokens import BearerTokens

LOGGER: Final = logging.getLogger(__name__)

MOST_SHAPES: Final = 128
"""Of credentials that are imitated. Each costs a challenge of a user who does not exist about 2 us."""
MOST_NAMES: Final = 10
"""In a log line."""
MOST_CHARS: Final = 256
"""Of a name in a log line."""
MAX_KNOWN_PASSWORDS: Final = 64
"""Passwords that were right once and are not derived again. Each takes some ms of CPU."""


@attrs.define
class SecurityStatistics:
    """Counted since the start."""

    logins: int = 0
    failed_logins: int = 0
    failed_handshakes: int = 0
    denied: int = 0
    """Decisions that something may not be done; one that is remembered counts again."""


@attrs.define(eq=False, repr=False)
class Security:
    """See the module. Use `open_security`; every method belongs to the trio thread."""

    _manager: LogManager
    _copies: Copies[SecurityState]
    statistics: SecurityStatistics = attrs.field(factory=SecurityStatistics)
    authorizer: AclAuthorizer | None = None
    """None: everybody may do everything."""
    quotas: ClientQuotas = attrs.field(factory=ClientQuotas)
    """Those that are in effect."""
    audit: AuditLog | None = None
    """None: nobody wants to know."""
    tokens: BearerTokens | None = None
    """None: OAUTHBEARER is not enabled."""
    exposed: tuple[str, ...] = ()
    """Listeners that everybody may use who reaches the machine."""
    _users: dict[str, ConfiguredUser] = attrs.field(factory=dict)
    _derived: dict[CredentialKey, ScramCredential] = attrs.field(factory=dict)
    """From passwords of the configuration, made when first needed."""
    _checking: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """Wrong passwords take at most one processor."""
    _checked: dict[bytes, ScramCredential] = attrs.field(factory=dict)
    """Digests of users and passwords that were right, with the credential that they fit."""
    _salt_secret: bytes = attrs.field(factory=lambda: secrets.token_bytes(32), repr=False)
    """Stored with the first change: before that nothing has a salt that outlives the process."""
    _shapes: dict[ScramMechanism, dict[Shape, int]] = attrs.field(factory=dict)
    """Users who exist, by the shape of their challenges, as far as they were looked up."""

    @classmethod
    def of(cls, manager: LogManager) -> Self:
        config = manager.config
        authorizer = None
        if config.acl_enable:
            authorizer = AclAuthorizer(frozenset(config.super_users), config.allow_everyone_if_no_acl_found)
        copies = Copies(manager, "users, ACLs and quotas", read_security, write_security, SecurityState())
        audit = None if config.audit_file is None else AuditLog(config.audit_file, manager.disk, manager.now_ms)
        return cls(manager, copies, authorizer=authorizer, audit=audit)

    async def load(self) -> None:
        """Read what is stored, and the configuration's users. Raises CheckpointError, InvalidConfigError, OSError."""
        self._apply(await self._copies.load())
        self._salt_secret = self._copies.state.salt_secret or self._salt_secret
        self._users = await self._manager.disk.call(_configured_users, self._manager, self._manager.config)
        if OAUTHBEARER in self._manager.config.sasl_enabled_mechanisms:
            from .bearer_tokens import BearerTokens  # brokers without it do not load it

            self.tokens = await BearerTokens.open(self._manager)
        if self.audit is not None:
            await self.audit.open()
            self._manager.nursery.start_soon(self.audit.run)

    async def read_again(self, config: BrokerConfig) -> tuple[tuple[str, ...], Callable[[], None]]:
        """Read the users of a configuration: what is to be said of them, and what makes it hold for logins and decisions from
        then on. Who has logged in stays so. Raises InvalidConfigError, OSError."""
        users = await self._manager.disk.call(_configured_users, self._manager, config)

        def apply() -> None:
            self._users = users
            self._derived.clear()
            self._shapes.clear()
            if self.authorizer is not None:
                self.authorizer.super_users = frozenset(config.super_users)
                self.authorizer.allow_everyone_if_no_acl_found = config.allow_everyone_if_no_acl_found
                self.authorizer.replace(self._copies.state.acls)

        return _said_of_users(self._users, users), apply

    def is_password(self, user: str, password: str) -> bool:
        """Return whether a user of the configuration has this password (PLAIN)."""
        configured = self._users.get(user)
        known = None if configured is None else configured.password
        return hmac.compare_digest((known or "").encode(), password.encode()) and known is not None

    async def accepts_password(self, user: str, password: str) -> bool:
        """Return whether a login with this password succeeds, whichever mechanism the credential of the user is for."""
        mechanisms = self._manager.config.sasl_enabled_mechanisms
        if mechanisms != (OAUTHBEARER,) and self.is_password(user, password):
            return True
        for mechanism in ScramMechanism:
            # Of a stranger too: the time that it takes would reveal users.
            if mechanism.sasl_name in mechanisms and await self._fits(
                await self.scram_credential(user, mechanism), user, password
            ):
                return True
        return False

    async def _fits(self, credential: ScramCredential, user: str, password: str) -> bool:
        digest = credential.mechanism.mac(self._salt_secret, f"password\0{user}\0{password}".encode())
        if self._checked.get(digest) == credential:
            return True
        derive = partial(ScramCredential.from_password, credential.mechanism, credential.iterations, credential.salt)
        derived = await trio.to_thread.run_sync(derive, password, limiter=self._checking)
        if not hmac.compare_digest(derived.stored_key, credential.stored_key):
            return False
        if len(self._checked) >= MAX_KNOWN_PASSWORDS:
            self._checked.pop(next(iter(self._checked)))
        self._checked[digest] = credential
        return True

    def scram_challenge(self, user: str, mechanism: ScramMechanism) -> tuple[int, bytes]:
        """Return iterations and salt for a login of the user, who need not exist. Never slow: a pause would reveal users."""
        known = self._known_credential(user, mechanism)
        return (
            (MIN_ITERATIONS, salt_of(mechanism, self._salt_secret, user)) if known is None else (known.iterations, known.salt)
        )

    async def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the credential of the user: the stored one, else the configured one, else a decoy that no password fits."""
        if (known := self._known_credential(user, mechanism)) is not None:
            return known
        iterations, salt = self.scram_challenge(user, mechanism)
        # Some ms of CPU: in a thread, so that no other connection waits for it.
        make = partial(ScramCredential.from_password, mechanism, iterations, salt)
        made = await trio.to_thread.run_sync(make, self._users[user].password)
        return self._derived.setdefault((user, mechanism), made)

    def _known_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return what `scram_credential` returns, or None if it has to be derived from a password first."""
        key = user, mechanism
        if (stored := self._copies.state.credentials.get(key)) is not None:
            return stored
        if (configured := self._users.get(user)) is not None:
            if (written := configured.credentials.get(mechanism)) is not None:
                return written
            if configured.password is not None:
                return self._derived.get(key)
        return decoy(mechanism, self._salt_secret, user, self._shapes_of(mechanism))

    def _shapes_of(self, mechanism: ScramMechanism) -> dict[Shape, int]:
        """Return how many users have each shape of a challenge; where shapes are many, only of the most common ones."""
        if mechanism not in self._shapes:
            stored = {user: each for (user, of), each in self._copies.state.credentials.items() if of is mechanism}
            written = {user: each.credentials.get(mechanism) for user, each in self._users.items() if user not in stored}
            counts = Counter((each.iterations, len(each.salt)) for each in (*stored.values(), *written.values()) if each)
            counts[DEFAULT_SHAPE] += sum(
                each is None and self._users[user].password is not None for user, each in written.items()
            )
            self._shapes[mechanism] = dict((+counts).most_common(MOST_SHAPES)) or {DEFAULT_SHAPE: 1}
        return self._shapes[mechanism]

    def note_login(self, principal: str, host: str, protocol: str, mechanism: str | None) -> None:
        """Count a login, and note it in the audit log."""
        self.statistics.logins += 1
        if self.audit is not None:
            self.audit.note("login", principal=principal, host=host, protocol=protocol, mechanism=mechanism)

    def note_failed_login(self, user: str, host: str, protocol: str, mechanism: str | None, why: str, *, peer: str) -> None:
        """Count a login that failed, note it in the audit log and log it. `user`: empty where the peer has named none."""
        self.statistics.failed_logins += 1
        if self.audit is not None:
            self.audit.note("login failed", user=user, host=host, protocol=protocol, mechanism=mechanism, why=why)
        LOGGER.warning("login failed: %s as %r by %s: %s", peer, user[:MOST_CHARS] or None, mechanism, why)

    def scram_users(self) -> Mapping[CredentialKey, ScramCredential]:
        """The stored SCRAM credentials."""
        return self._copies.state.credentials

    async def alter_scram_users(
        self, upsertions: Mapping[CredentialKey, ScramCredential], deletions: Iterable[CredentialKey]
    ) -> None:
        """Store and delete credentials; durable and in effect when this returns. Raises RequestError."""
        gone = frozenset(deletions)

        def change(state: SecurityState) -> SecurityState:
            kept = {key: each for key, each in state.credentials.items() if key not in gone}
            return attrs.evolve(state, credentials={**kept, **upsertions})

        await self._change(change)

    def acls(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that match a filter, in order."""
        return sorted(acl for acl in self._copies.state.acls if wanted.matches(acl))

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; durable and in effect when this returns. Raises RequestError."""
        new = frozenset(acls)
        for acl in new:
            for name in (acl.resource_name, acl.principal, acl.host):
                _check_name(name)
        await self._change(lambda state: attrs.evolve(state, acls=state.acls | new))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete the ACLs that match each filter, and return them by filter. Raises RequestError."""
        found: list[list[Acl]] = []

        def change(state: SecurityState) -> SecurityState:
            found[:] = [sorted(acl for acl in state.acls if wanted.matches(acl)) for wanted in filters]
            return attrs.evolve(state, acls=state.acls.difference(*found))

        await self._change(change)
        return found

    def allows(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str, *, quietly: bool = False
    ) -> bool:
        """Return whether the principal may do this; needs an authorizer. `quietly`: a refusal is neither counted nor logged."""
        assert self.authorizer is not None
        question = principal, host, operation, kind, name
        known = self.authorizer.known(question)
        allowed = self.authorizer.decide(question) if known is None else known
        if not allowed and not quietly:
            self.statistics.denied += 1
            if known is None:
                LOGGER.info("denied: %s at %s may not %s %s %s", principal, host, operation.name, kind.name, name[:MOST_CHARS])
                if self.audit is not None:
                    self.audit.note(
                        "denied", principal=principal, host=host, operation=operation.name, resource=kind.name, name=name
                    )
        return allowed

    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The stored quotas, by entity and key."""
        return self._copies.state.quotas

    async def alter_client_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        """Set quotas, or remove those that are None; durable and in effect when this returns. Raises RequestError."""

        for entity in changes.keys() - self.client_quotas().keys():
            for _, name in entity:
                _check_name(name or "")

        def change(state: SecurityState) -> SecurityState:
            quotas = dict(state.quotas)
            for entity, values in changes.items():
                both: dict[str, float | None] = {**quotas.pop(entity, {}), **values}
                if left := {key: value for key, value in both.items() if value is not None}:
                    quotas[entity] = left
            return attrs.evolve(state, quotas=quotas)

        await self._change(change)

    async def _change(self, change: Callable[[SecurityState], SecurityState]) -> None:
        def with_secret(state: SecurityState) -> SecurityState:
            changed = change(state)
            return changed if changed == state else attrs.evolve(changed, salt_secret=self._salt_secret)

        await self._copies.change(with_secret)
        self._apply(self._copies.state)

    def _apply(self, state: SecurityState) -> None:
        self._shapes.clear()
        self.quotas.replace(state.quotas)
        if self.authorizer is not None:
            self.authorizer.replace(state.acls)


def _configured_users(manager: LogManager, config: BrokerConfig) -> dict[str, ConfiguredUser]:
    users = {name: ConfiguredUser(password) for name, password in config.sasl_users.items()}
    if config.sasl_users_file is not None:
        data = read_file(manager.disk.fs, config.sasl_users_file, max_bytes=MAX_USERS_FILE_BYTES)
        users |= decode_users(config.sasl_users_file, data)
    return users


def _check_name(name: str) -> None:
    """Raises InvalidRequestError for one that is too long to be kept."""
    if len(name) > MAX_RULE_NAME_CHARS:
        raise InvalidRequestError(
            f"a name in ACLs and quotas has at most {MAX_RULE_NAME_CHARS} characters, this one has {len(name)}"
        )


def _said_of_users(old: Mapping[str, ConfiguredUser], new: Mapping[str, ConfiguredUser]) -> tuple[str, ...]:
    """Names only."""
    names = {
        "users added": sorted(new.keys() - old.keys()),
        "users removed": sorted(old.keys() - new.keys()),
        "passwords of users": sorted(name for name in new.keys() & old.keys() if new[name] != old[name]),
    }
    return tuple(f"{what}: {_few(found)}" for what, found in names.items() if found)


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


async def open_security(manager: LogManager) -> Security:
    """Raises CheckpointError, InvalidConfigError, OSError."""
    security = Security.of(manager)
    await security.load()
    return security


MAX_WAITING_BYTES: Final = 4 * MIB
"""Lines that wait to be written."""
MAX_TEXT_CHARS: Final = 1000
"""Of a value: names come from clients."""
MAX_NAMES: Final = 100
"""Of a list; how many there are is said."""
PERMISSIONS: Final = 0o600
LAST_WRITE_S: Final = 5.0


@attrs.define(eq=False, repr=False)
class AuditLog:
    """Owner: the broker's security. `run` is its task; `note` may be called from anywhere in the trio thread."""

    path: str
    _disk: Disk
    _now_ms: NowMs
    lost: int = 0
    """Events that were not written."""
    _lines: list[bytes] = attrs.field(factory=list)
    _waiting_bytes: int = 0
    _wake: trio.Event = attrs.field(factory=trio.Event)

    def note(self, event: str, **facts: Any) -> None:
        """Add an event. Facts are text, numbers, and lists of text."""
        time = datetime.fromtimestamp(self._now_ms() / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"time": time, "event": event, **{name: _bounded(value) for name, value in facts.items()}}
        line = json.dumps(told, ensure_ascii=True).encode() + b"\n"
        if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
            self._lose(1, "the device does not take them")
            return
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._wake.set()

    async def open(self) -> None:
        """Raises OSError, naming the file, when it cannot be written."""
        await self._disk.call(_append, self.path, b"")

    async def run(self) -> None:
        """Write until cancelled, and then what is left."""
        try:
            await self._disk.errors.repeat("audit-log", self._write_next)
        finally:
            with trio.move_on_after(LAST_WRITE_S) as scope:
                scope.shield = True
                await self._write()

    async def _write_next(self) -> None:
        await self._wake.wait()
        self._wake = trio.Event()
        await self._write()

    async def _write(self) -> None:
        lines, self._lines, self._waiting_bytes = self._lines, [], 0
        if not lines:
            return
        try:
            await self._disk.call(_append, self.path, b"".join(lines))
        except trio.Cancelled:  # before its thread began
            self._lines[:0] = lines
            self._waiting_bytes += sum(map(len, lines))
            raise
        except OSError as exc:
            self._lose(len(lines), exc.strerror or str(exc))

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        LOGGER.error("audit_file %s lost events=%d since the start: %s", self.path, self.lost, why)


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]}..."
    if isinstance(value, list):
        kept = [_bounded(each) for each in value[:MAX_NAMES]]
        return kept if len(value) <= MAX_NAMES else [*kept, f"and {len(value) - MAX_NAMES} more"]
    return value


def _append(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PERMISSIONS)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
