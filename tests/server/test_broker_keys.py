"""The table of the server's keys and the configuration that they fill."""

from __future__ import annotations

import resource
from typing import Any

import attrs
import pytest
from triolog.server.broker_config import BrokerConfig, ClientAuth, ListenerSecurity
from triolog.server.broker_keys import BROKER_KEYS


def test_every_key_but_durability_is_a_field_of_the_configuration() -> None:
    fields = {field.name for field in attrs.fields(BrokerConfig)}
    assert set(BROKER_KEYS) - fields == {"durability"}


@pytest.mark.parametrize(
    "key",
    [key for key in BROKER_KEYS.values() if key.type == "int" and key.name != "node_id"],
    ids=lambda key: key.name,
)
def test_the_default_that_is_printed_is_the_one_in_force(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert key.read(key.default) == getattr(BrokerConfig(data_dirs=("x",)), key.name)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("kafka_security", "SASL_SSL", ListenerSecurity.SASL_SSL),
        ("native_security", "ssl", ListenerSecurity.SSL),
        ("kafka_ssl_client_auth", "required", ClientAuth.REQUIRED),
        ("sasl_enabled_mechanisms", "PLAIN,SCRAM-SHA-512", ("PLAIN", "SCRAM-SHA-512")),
        ("super_users", "User:CN=a,O=b; User:c", ("User:CN=a,O=b", "User:c")),
    ],
)
def test_keys_of_security_are_read(name: str, text: str, value: object) -> None:
    assert BROKER_KEYS[name].read(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka_security", "tls"),
        ("native_security", "sasl_ssl"),
        ("native_ssl_client_auth", "yes"),
        ("sasl_enabled_mechanisms", "GSSAPI"),
        ("sasl_enabled_mechanisms", ""),
        ("super_users", "alice"),
    ],
)
def test_wrong_values_of_security_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of|is not a list"):
        BROKER_KEYS[name].read(text)
