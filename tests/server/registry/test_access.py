"""Users and rights: a password of any user of the server, and rights on the topic `_schemas`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.broker import Acl
from triolog.server.config.broker_config import Address, BrokerConfig
from triolog.server.config.broker_settings import REGISTRY, exposed
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.registry.rest import ROUTES

from tests.support.registry_client import RegistryClient, submission

pytestmark = pytest.mark.usefixtures("extra")

BODY: Final = submission('"string"')
SECURITY: Final = {"acl_enable": True, "super_users": "User:admin", "connection_failed_authentication_delay_ms": 1}
CALLS: Final = {
    "READ": [
        ("GET", "/subjects", None),
        ("GET", "/subjects/s/versions/1", None),
        ("GET", "/schemas/ids/1", None),
        ("GET", "/config", None),
        ("POST", "/subjects/s", BODY),
        ("POST", "/compatibility/subjects/s/versions/latest", BODY),
    ],
    "WRITE": [("POST", "/subjects/s/versions", BODY)],
    "ALTER_CONFIGS": [
        ("PUT", "/config/s", {"compatibility": "NONE"}),
        ("DELETE", "/config/s", None),
        ("PUT", "/mode/s", {"mode": "READWRITE"}),
        ("DELETE", "/mode/s", None),
    ],
    "DELETE": [("DELETE", "/subjects/s/versions/1", None), ("DELETE", "/subjects/s?permanent=true", None)],
}
"""Calls by the right that they need, in an order in which each succeeds."""


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def broker(audit: Path, extra: None) -> Iterator[BlockingBroker]:
    users = {name: f"{name}-secret" for name in ("admin", *(right.lower() for right in CALLS))}
    security = {**SECURITY, "audit_file": str(audit)}
    with triolog.blocking.open(MEMORY, kafka="127.0.0.1:0", users=users, security=security) as broker:
        yield broker


def client(broker: BlockingBroker, user: str) -> RegistryClient:
    return RegistryClient(broker.schema_registry_url, user, f"{user}-secret")


def allow(broker: BlockingBroker, user: str, operation: AclOperation) -> None:
    acl = Acl(ResourceType.TOPIC, "_schemas", PatternType.LITERAL, f"User:{user}", "*", operation, AclPermission.ALLOW)
    broker.call(lambda: broker._target.core.security.create_acls([acl]))


def test_each_call_needs_its_right_and_no_other(broker: BlockingBroker) -> None:
    client(broker, "admin").register("s", '"string"')
    for right, calls in CALLS.items():
        allow(broker, right.lower(), AclOperation[right])
        for method, path, body in calls:
            for other in CALLS:
                if other != right:
                    assert client(broker, other.lower()).error(method, path, body) == 40301, (path, other)
            client(broker, right.lower()).value(method, path, body)
    tried = {method for calls in CALLS.values() for method, _, _ in calls}
    assert tried == {each.method for each in ROUTES}
    assert {each.right.name for each in ROUTES} == set(CALLS)


def test_a_request_without_a_login_is_not_served(broker: BlockingBroker) -> None:
    url = broker.schema_registry_url
    for stranger in (RegistryClient(url), RegistryClient(url, "admin", "wrong"), RegistryClient(url, "nobody", "x")):
        status, answer = stranger.call("GET", "/subjects")
        assert (status, answer["error_code"]) == (401, 401)
    for header in ("Bearer x", "Basic", "Basic !", "Basic /w==", "Basic YQ=="):
        assert RegistryClient(url, headers={"Authorization": header}).error("GET", "/subjects") == 401
    assert client(broker, "admin").get("/subjects") == []


def test_a_user_that_a_client_created_logs_in_with_its_password(broker: BlockingBroker) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    for password in ("carol-secret", "carol-changed"):
        credential = ScramCredential.from_password(mechanism, 4096, b"salt", password)
        upsertions = {("carol", mechanism): credential}
        broker.call(lambda upsertions=upsertions: broker._target.core.security.alter_scram_users(upsertions, []))
        allow(broker, "carol", AclOperation.READ)
        registry = RegistryClient(broker.schema_registry_url, "carol", password)
        assert registry.get("/subjects") == registry.get("/subjects") == []
    assert RegistryClient(broker.schema_registry_url, "carol", "carol-secret").error("GET", "/subjects") == 401


def test_failed_logins_denials_and_changes_are_in_the_audit_log(broker: BlockingBroker, audit: Path) -> None:
    url, admin = broker.schema_registry_url, client(broker, "admin")
    RegistryClient(url, "admin", "very wrong").error("GET", "/subjects")
    client(broker, "read").error("POST", "/subjects/s/versions", BODY)
    admin.register("s", '"string"')
    admin.error("POST", "/subjects/s/versions", submission("{"))
    broker.stop()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    told: list[Any] = [
        {name: each[name] for name in ("event", "user", "principal", "operation", "api", "names", "errors") if name in each}
        for each in lines
        if each.get("protocol") == "schema registry" or each["event"] == "denied"
    ]
    api = "POST /subjects/{subject}/versions"
    assert told == [
        {"event": "login failed", "user": "admin"},
        {"event": "denied", "principal": "User:read", "operation": "WRITE"},
        {"event": "change", "principal": "User:admin", "api": api, "names": ["s"], "errors": []},
        {"event": "change", "principal": "User:admin", "api": api, "names": ["s"], "errors": ["42201"]},
    ]
    assert "very wrong" not in audit.read_text()


@pytest.mark.parametrize(
    ("kafka", "native", "http", "is_exposed"),
    [
        ("plaintext", "plaintext", "plaintext", True),
        ("sasl_plaintext", "plaintext", "plaintext", False),
        ("plaintext", "sasl_plaintext", "plaintext", False),
        ("plaintext", "plaintext", "sasl_plaintext", False),
        ("sasl_ssl", "plaintext", "plaintext", True),
        ("sasl_plaintext", "ssl", "plaintext", True),
        ("sasl_plaintext", "plaintext", "ssl", True),
    ],
)
def test_other_machines_need_a_login_and_passwords_stay_in_a_server_with_tls(
    kafka: str, native: str, http: str, is_exposed: bool
) -> None:
    config = BrokerConfig(
        data_dirs=("x",),
        kafka_security=ListenerSecurity(kafka),
        native_security=ListenerSecurity(native),
        http_security=ListenerSecurity(http),
        ssl_certificate_file="x",
    )
    assert exposed(config, {REGISTRY: Address("0.0.0.0", 1)}) == ((REGISTRY,) if is_exposed else ())
    assert exposed(config, {REGISTRY: Address("127.0.0.1", 1)}) == ()


@pytest.mark.parametrize("listener", ["kafka", "native", "http"])
def test_logins_at_any_listener_are_logins_at_the_registry(listener: str, extra: None) -> None:
    settings = {f"{listener}_security": "sasl_plaintext", "sasl_enabled_mechanisms": "PLAIN", "schema_registry": "127.0.0.1:0"}
    with triolog.blocking.open(MEMORY, users={"admin": "admin-secret"}, settings=settings) as broker:
        assert RegistryClient(broker.schema_registry_url).error("GET", "/subjects") == 401
        assert client(broker, "admin").get("/subjects") == []


def test_a_registry_for_everybody_has_to_be_wanted(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"schema_registry 0\.0\.0\.0:0"):
        triolog.blocking.open(tmp_path, settings={"schema_registry": "0.0.0.0:0"}).start()
    with triolog.blocking.open(tmp_path, settings={"schema_registry": "0.0.0.0:0", "insecure": True}) as broker:
        port = broker.schema_registry_url.rpartition(":")[2]
        assert RegistryClient(f"http://127.0.0.1:{port}").get("/subjects") == []
