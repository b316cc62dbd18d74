"""The table of the server's keys and the configuration that they fill."""

from __future__ import annotations

import resource

import attrs
import pytest
from triolog.server.config.broker_config import BROKER_KEYS, BrokerConfig
from triolog.server.config.listener_security import ClientAuth, ListenerSecurity

SHOWN_FOR_WHAT_COMES_LATER = {"native", "node_id", "cluster_id", "durability"}
"""None in the configuration: whoever needs the value chooses it. The table says what that is."""


def test_the_default_that_is_printed_is_the_one_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    config = BrokerConfig(data_dirs=())
    for name in BROKER_KEYS.keys() - SHOWN_FOR_WHAT_COMES_LATER:
        key, found = BROKER_KEYS[name], getattr(config, name)
        assert found in (None, ()) if key.default_text == "-" else key.read(key.default_text) == found, name


def test_a_key_has_the_unit_that_its_name_ends_in() -> None:
    assert {name: BROKER_KEYS[name].unit for name in ("stop_grace_ms", "max_frame_bytes", "scrub_bytes_per_second")} == {
        "stop_grace_ms": "ms",
        "max_frame_bytes": "bytes",
        "scrub_bytes_per_second": "bytes/s",
    }
    assert BROKER_KEYS["max_records_per_batch"].unit == ""


def test_fields_that_programs_set_are_no_keys() -> None:
    fields = {field.name for field in attrs.fields(BrokerConfig)}
    assert fields - BROKER_KEYS.keys() == {"topic_defaults", "sasl_users", "adopted_topics", "durable"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("kafka_security", "SASL_SSL", ListenerSecurity.SASL_SSL),
        ("native_security", "ssl", ListenerSecurity.SSL),
        ("native_security", "sasl_ssl", ListenerSecurity.SASL_SSL),
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
        ("native_security", "sasl"),
        ("native_ssl_client_auth", "yes"),
        ("sasl_enabled_mechanisms", "GSSAPI"),
        ("sasl_enabled_mechanisms", ""),
        ("super_users", "alice"),
    ],
)
def test_wrong_values_of_security_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of|is not a list"):
        BROKER_KEYS[name].read(text)
