"""Users of the registry and their rights.

Where a listener of the server has logins, every request needs the name and password of a user (HTTP Basic). Rights are those
on the topic `_schemas`, because a client that may write there by Kafka's protocol may change everything anyway:

| request | right on the topic |
|---|---|
| read, look up, compare | READ |
| register | WRITE |
| delete | DELETE |
| change compatibility or mode | ALTER_CONFIGS |
"""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Iterable
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.kafka.authorization import AclOperation, ResourceType
from ...protocol.kafka.scram import ScramCredential, ScramMechanism
from ...protocol.types import ANONYMOUS
from ..broker import Broker
from ..listeners.connections.session import USER_PREFIX
from ..listeners.connections.transport import host_of
from ..listeners.http.access import HttpRequest
from ..system.client_memory import PAYER, new_payer
from .errors import RegistryError
from .topic import TOPIC

LOGGER: Final = logging.getLogger(__name__)

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 40301
PROTOCOL: Final = "schema registry"
MOST_USER_CHARS: Final = 256
MAX_KNOWN_PASSWORDS: Final = 64
"""Checks of SCRAM passwords that are remembered. Each takes some ms of CPU."""


@attrs.frozen
class Client:
    """The client of a request."""

    broker: Broker
    principal: str
    host: str

    def check(self, operation: AclOperation) -> None:
        """Raises RegistryError without the right."""
        security = self.broker.security
        if security.authorizer is None or security.allows(self.principal, self.host, operation, ResourceType.TOPIC, TOPIC):
            return
        raise RegistryError(FORBIDDEN, f"{self.principal} may not {operation.name} the topic {TOPIC}")

    def note(self, api: str, names: Iterable[str], errors: list[str]) -> None:
        """Note a change in the audit log."""
        if (audit := self.broker.security.audit) is not None:
            who = {"principal": self.principal, "host": self.host, "client_id": None}
            audit.note("change", **who, protocol=PROTOCOL, api=api, names=list(names), errors=errors)


@attrs.define(eq=False, repr=False)
class Logins:
    """Owner of the memory of checked SCRAM passwords."""

    _secret: bytes = attrs.field(factory=lambda: secrets.token_bytes(32), repr=False)
    _deriving: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """Wrong passwords take at most one processor."""
    _checked: dict[bytes, ScramCredential] = attrs.field(factory=dict)
    """Digests of user and password, with the credential that they fit."""

    async def identify(self, broker: Broker, request: HttpRequest) -> Client:
        """Return the client of a request, who pays for what it adds. Raises RegistryError."""
        config, host, begin_s = broker.config, host_of(request.peer), trio.current_time()
        if not (config.kafka_security.has_sasl or config.native_security.has_sasl):
            PAYER.set(new_payer(host))
            return Client(broker, ANONYMOUS, host)
        user, password = _credentials(request.headers.get("authorization", ""))
        if user and await self._is_password(broker, user, password):
            principal = f"{USER_PREFIX}{user}"
            PAYER.set(new_payer(principal))
            return Client(broker, principal, host)
        if request.headers.get("authorization"):
            self._count_failure(broker, user, host)
            await trio.sleep_until(begin_s + config.connection_failed_authentication_delay_ms / 1000)
        raise RegistryError(UNAUTHORIZED, "Unauthorized: name and password of a user are missing or wrong")

    async def _is_password(self, broker: Broker, user: str, password: str) -> bool:
        security = broker.security
        if security.is_password(user, password):
            return True
        for mechanism in ScramMechanism:
            if await self._fits(await security.scram_credential(user, mechanism), user, password):
                return True
        return False

    async def _fits(self, credential: ScramCredential, user: str, password: str) -> bool:
        digest = credential.mechanism.mac(self._secret, f"{user}\0{password}".encode())
        if self._checked.get(digest) == credential:
            return True
        derive = partial(ScramCredential.from_password, credential.mechanism, credential.iterations, credential.salt)
        derived = await trio.to_thread.run_sync(derive, password, limiter=self._deriving)
        if not secrets.compare_digest(derived.stored_key, credential.stored_key):
            return False
        if len(self._checked) >= MAX_KNOWN_PASSWORDS:
            self._checked.pop(next(iter(self._checked)))
        self._checked[digest] = credential
        return True

    def _count_failure(self, broker: Broker, user: str, host: str) -> None:
        security, why = broker.security, "wrong name or password"
        security.statistics.failed_logins += 1
        if security.audit is not None:
            security.audit.note("login failed", user=user, host=host, protocol=PROTOCOL, mechanism="Basic", why=why)
        LOGGER.warning("login failed: %s as %r by HTTP Basic: %s", host, user[:MOST_USER_CHARS], why)


def _credentials(authorization: str) -> tuple[str, str]:
    """Return name and password of the header; empty where it has none."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return (user, password) if scheme.lower() == "basic" and colon else ("", "")
