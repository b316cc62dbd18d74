"""Identification of a listener's clients: TLS, logins, principals."""

from __future__ import annotations

import enum
from typing import Any, Final

from ...protocol.kafka.scram import ScramMechanism
from .key import SECURITY, enum_key


class ListenerSecurity(enum.Enum):
    """The security of a listener: whether clients log in, and whether TLS encrypts the connection (Kafka:
    security.protocol)."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def has_tls(self) -> bool:
        return self in (ListenerSecurity.SSL, ListenerSecurity.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (ListenerSecurity.SASL_PLAINTEXT, ListenerSecurity.SASL_SSL)


class ClientAuth(enum.Enum):
    """The policy for client certificates: whether clients show one (Kafka: ssl.client.auth)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


PLAIN: Final = "PLAIN"
SASL_MECHANISMS: Final = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism))
"""What there is."""


def mechanisms(value: Any) -> tuple[str, ...]:
    """Some of SASL_MECHANISMS. Raises ValueError."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not set(names) <= set(SASL_MECHANISMS):
        raise ValueError(f"{value!r} is not a list of mechanisms from {', '.join(SASL_MECHANISMS)}")
    return tuple(names)


def principals(value: Any) -> tuple[str, ...]:
    """Names of certificates have commas in them, so a semicolon is between two, as in Kafka. Raises ValueError."""
    names = [name.strip() for name in value.split(";")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and ":" in name for name in names):
        raise ValueError(f"{value!r} is not a list such as User:alice;User:bob")
    return tuple(names)


def security_key(protocol: str) -> Any:
    """A field that says how a protocol is spoken."""
    choices = ", ".join(each.value for each in ListenerSecurity)
    return enum_key(ListenerSecurity.PLAINTEXT, f"Security of {protocol}: {choices}.", section=SECURITY)


def client_auth_key(protocol: str) -> Any:
    """A field that says whether clients of a protocol show a certificate."""
    doc = f"Client certificates of {protocol} over TLS: none, requested or required."
    return enum_key(ClientAuth.NONE, doc, section=SECURITY, live=True)
