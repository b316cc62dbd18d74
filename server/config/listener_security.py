"""Identification of a listener's clients: TLS, logins, principals."""

from __future__ import annotations

import enum
from typing import Any, Final, Protocol

from ...protocol.kafka.scram import ScramMechanism
from .key import SECURITY, ConfigKey, enum_key, field


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
OAUTHBEARER: Final = "OAUTHBEARER"
PASSWORD_MECHANISMS: Final = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism))
SASL_MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER)
"""All mechanisms. The last one needs keys of its own, so it is not on by default."""


class TokenAuthority(Protocol):
    """The issuer of bearer tokens in the program that embeds a broker, in place of a server with a URL."""

    def jwks(self) -> bytes:
        """Return the keys that verify its tokens, as a JSON Web Key Set."""

    def refuses(self, principal: str) -> bool:
        """Return whether the broker refuses tokens of this user."""

    def note_login(self, principal: str) -> None:
        """Count a login by a token, or its renewal."""


def mechanisms(value: Any) -> tuple[str, ...]:
    """Some of SASL_MECHANISMS. Raises ValueError."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not set(names) <= set(SASL_MECHANISMS):
        raise ValueError(f"{value!r} is not a list of mechanisms from {', '.join(SASL_MECHANISMS)}")
    return tuple(names)


def words(value: Any) -> tuple[str, ...]:
    """Texts without spaces; commas are between two. Raises ValueError."""
    found = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(word, str) and word and " " not in word for word in found):
        raise ValueError(f"{value!r} is not a list of texts without spaces")
    return tuple(found)


def words_key(doc: str, **more: Any) -> Any:
    """A field with a list of texts, by default empty."""
    return field(ConfigKey(type="list", default=(), read=words, doc=doc, section=SECURITY, **more))


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
