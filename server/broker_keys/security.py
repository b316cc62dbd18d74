"""The keys of TLS, logins and ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..broker_config import SASL_MECHANISMS, ClientAuth, ListenerSecurity
from .key import BrokerKey, number, one_of, switch, text


def _mechanisms(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not set(names) <= set(SASL_MECHANISMS):
        raise ValueError(f"{value!r} is not a list of some of {', '.join(SASL_MECHANISMS)}")
    return tuple(names)


def _principals(value: Any) -> tuple[str, ...]:
    """Names of certificates have commas in them, so a semicolon is between two, as in Kafka."""
    names = [name.strip() for name in value.split(";")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and ":" in name for name in names):
        raise ValueError(f"{value!r} is not a list such as User:alice;User:bob")
    return tuple(names)


def _security(name: str, protocol: str, valid: Sequence[ListenerSecurity]) -> BrokerKey:
    def read(value: Any) -> ListenerSecurity:
        security = one_of(ListenerSecurity)(value)
        if security not in valid:
            raise ValueError(f"{value!r} is none of {', '.join(each.value for each in valid)}")
        return security

    choices = ", ".join(each.value for each in valid)
    doc = f"How {protocol} is spoken: {choices}."
    return BrokerKey(name=name, type="string", read=read, default="plaintext", doc=doc)


def _client_auth(name: str, protocol: str) -> BrokerKey:
    doc = f"Whether clients of {protocol} show a certificate over TLS: none, requested or required."
    return BrokerKey(name=name, type="string", read=one_of(ClientAuth), default="none", doc=doc)


SECURITY_KEYS: Final = (
    _security("native_security", "the native protocol", (ListenerSecurity.PLAINTEXT, ListenerSecurity.SSL)),
    _security("kafka_security", "Kafka's protocol", tuple(ListenerSecurity)),
    BrokerKey(
        name="ssl_certificate_file",
        type="path",
        read=text,
        default="-",
        doc="PEM with the server's certificate, and those between it and its CA.",
    ),
    BrokerKey(
        name="ssl_key_file",
        type="path",
        read=text,
        default="-",
        doc="PEM with its private key, without a passphrase; by default in the certificate's file.",
    ),
    BrokerKey(
        name="ssl_client_ca_file",
        type="path",
        read=text,
        default="-",
        doc="PEM with the CAs that certificates of clients are from.",
    ),
    _client_auth("native_ssl_client_auth", "the native protocol"),
    _client_auth("kafka_ssl_client_auth", "Kafka's protocol"),
    number(
        "ssl_handshake_timeout_ms",
        10_000,
        "How long a TLS handshake may take; then the connection is closed.",
        unit="ms",
        low=100,
        high=600_000,
    ),
    BrokerKey(
        name="sasl_enabled_mechanisms",
        type="list",
        read=_mechanisms,
        default=",".join(SASL_MECHANISMS),
        doc="How users may log in.",
    ),
    BrokerKey(name="sasl_users_file", type="path", read=text, default="-", doc="TOML with users: see the section on security."),
    number(
        "connections_max_reauth_ms",
        0,
        "How long a login holds; then the client logs in again (KIP-368) or is disconnected. 0: for ever.",
        unit="ms",
        low=0,
        high=2**53,
    ),
    number(
        "connection_failed_authentication_delay_ms",
        100,
        "How long the answer to a login that failed is held back.",
        unit="ms",
        low=0,
        high=10_000,
    ),
    BrokerKey(
        name="acl_enable",
        type="bool",
        read=switch,
        default="false",
        doc="Whether ACLs are enforced on Kafka's protocol. Without them everybody may do everything.",
    ),
    BrokerKey(
        name="super_users", type="list", read=_principals, default="-", doc="Who may do everything: User:alice;User:bob."
    ),
    BrokerKey(
        name="allow_everyone_if_no_acl_found",
        type="bool",
        read=switch,
        default="false",
        doc="Whether everybody may do what they like with resources that no ACL is about.",
    ),
)
