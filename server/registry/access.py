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

from collections.abc import Iterable
from typing import Final

import attrs
import trio

from ...protocol.errors import SaslAuthenticationError
from ...protocol.kafka.authorization import AclOperation, ResourceType
from ...protocol.types import ANONYMOUS, SCHEMAS_TOPIC
from ..broker import Broker
from ..config.broker_settings import registry_needs_login
from ..listeners.connections.session import USER_PREFIX
from ..listeners.connections.transport import host_of
from ..listeners.http.access import HttpRequest
from ..listeners.http.login import read_basic
from ..system.client_memory import PAYER, new_payer
from .errors import RegistryError

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 40301
PROTOCOL: Final = "schema registry"


@attrs.frozen
class Client:
    """The client of a request."""

    broker: Broker
    principal: str
    host: str

    def check(self, operation: AclOperation) -> None:
        """Raises RegistryError without the right."""
        security = self.broker.security
        if security.authorizer is None or security.allows(
            self.principal, self.host, operation, ResourceType.TOPIC, SCHEMAS_TOPIC
        ):
            return
        raise RegistryError(FORBIDDEN, f"{self.principal} may not {operation.name} the topic {SCHEMAS_TOPIC}")

    def note(self, api: str, names: Iterable[str], errors: list[str]) -> None:
        """Note a change in the audit log."""
        if (audit := self.broker.security.audit) is not None:
            who = {"principal": self.principal, "host": self.host, "client_id": None}
            audit.note("change", **who, protocol=PROTOCOL, api=api, names=list(names), errors=errors)


async def identify(broker: Broker, request: HttpRequest) -> Client:
    """Return the client of a request, who pays for what it adds. Raises RegistryError."""
    config, host, begin_s = broker.config, host_of(request.peer), trio.current_time()
    if not registry_needs_login(config):
        PAYER.set(new_payer(host))
        return Client(broker, ANONYMOUS, host)
    authorization = request.headers.get("authorization", "")
    user, password = _credentials(authorization)
    if user and await broker.security.accepts_password(user, password):
        principal = f"{USER_PREFIX}{user}"
        PAYER.set(new_payer(principal))
        return Client(broker, principal, host)
    if authorization:
        broker.security.note_failed_login(user, host, PROTOCOL, "Basic", "wrong name or password", peer=host)
        await trio.sleep_until(begin_s + config.connection_failed_authentication_delay_ms / 1000)
    raise RegistryError(UNAUTHORIZED, "Unauthorized: name and password of a user are missing or wrong")


def _credentials(authorization: str) -> tuple[str, str]:
    """Return name and password of the header; empty where it has none."""
    scheme, _, credentials = authorization.partition(" ")
    try:
        return read_basic(credentials) if scheme.lower() == "basic" else ("", "")
    except SaslAuthenticationError:
        return "", ""
