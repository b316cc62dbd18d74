"""SIGHUP and a real server: what changes while it runs, what needs a restart, and that nothing ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.protocol.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from triolog.protocol.native import messages

from tests.support import kafka_wire, server_process, wire_client
from tests.support.certificates import HOST, Certificates, make_certificates

READ: Final = "settings read again"
REFUSED: Final = "no setting changed"
SETTINGS: Final[Mapping[str, Any]] = {
    "kafka": f"{HOST}:0",
    "kafka_security": "sasl_ssl",
    "connection_failed_authentication_delay_ms": 1,
}


def as_toml(value: Any) -> str:
    return json.dumps(value)


@attrs.define(eq=False)
class Reloaded:
    """A server whose settings are in files that a test writes."""

    folder: server_process.ServerFolder
    certificates: Certificates
    _signals: int = 0
    server: server_process.ServerProcess = attrs.field(init=False)

    @property
    def config(self) -> Path:
        return self.folder.path / "server.toml"

    @property
    def certificate(self) -> Path:
        return self.folder.path / "certificate.pem"

    @property
    def users(self) -> Path:
        return self.folder.path / "users.toml"

    def write(self, **changes: Any) -> None:
        files = {"ssl_certificate_file": str(self.certificate), "sasl_users_file": str(self.users)}
        keys = {**SETTINGS, **files, **changes}
        self.config.write_text("".join(f"{name} = {as_toml(value)}\n" for name, value in keys.items()))

    def write_users(self, **passwords: str) -> None:
        self.users.write_text("".join(f"[{user}]\npassword = {as_toml(password)}\n" for user, password in passwords.items()))

    def start(self) -> None:
        self.server = self.folder.start("--config", str(self.config))

    def hang_up(self) -> list[str]:
        """Send SIGHUP, and answer the lines that it has led to."""
        before = self.server.stderr()
        self.server.process.send_signal(signal.SIGHUP)
        self._signals += 1
        self.server._wait_for(lambda: self._answers() == self._signals, "an answer to SIGHUP", 60)
        with wire_client.WireClient.connect(self.server.address) as client:
            client.call(messages.MetadataRequest(()))  # the lines behind the first one are written in the same turn
        return self.server.stderr()[len(before) :].splitlines()

    def _answers(self) -> int:
        return self.server.stderr().count(READ) + self.server.stderr().count(REFUSED)

    @contextmanager
    def connected(self) -> Iterator[kafka_wire.KafkaWire]:
        address = self.server.address_of("kafka")
        context = self.certificates.client_context()
        with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname=HOST) as encrypted:
            yield kafka_wire.KafkaWire(encrypted)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def reloaded(server_folder: server_process.ServerFolder, certificates: Certificates) -> Reloaded:
    found = Reloaded(server_folder, certificates)
    shutil.copy(certificates.server, found.certificate)
    found.write()
    found.write_users(alice="a-secret", bob="b-secret")
    return found


def login(client: kafka_wire.KafkaWire, user: str, password: str) -> int:
    """The error code of a login."""
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)
    return int(answer.error_code)


def shown_certificate(client: kafka_wire.KafkaWire) -> bytes:
    assert isinstance(client.socket, ssl.SSLSocket)
    shown = client.socket.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def partitions_of_new_topic(client: kafka_wire.KafkaWire, name: str) -> int:
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 7)
    [topic] = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 7).topics
    return len(topic.partitions)


def test_new_connections_meet_new_users_and_certificates_and_old_ones_go_on(reloaded: Reloaded, tmp_path: Path) -> None:
    reloaded.start()
    with reloaded.connected() as alice, reloaded.connected() as bob:
        assert login(alice, "alice", "a-secret") == login(bob, "bob", "b-secret") == 0
        before, reloaded.certificates = shown_certificate(alice), make_certificates(tmp_path / "renewed")
        shutil.copy(reloaded.certificates.server, reloaded.certificate)
        reloaded.write_users(bob="another-secret", carol="c-secret")
        said = "\n".join(reloaded.hang_up())
        certificate = f"the content of {reloaded.certificate}"
        for change in (certificate, "users added: carol", "users removed: alice", "passwords of users: bob"):
            assert f"changed: {change}" in said
        assert "secret" not in reloaded.server.stderr()
        assert partitions_of_new_topic(alice, "still-served") == 1
    tried = []
    for user, password in (("alice", "a-secret"), ("bob", "b-secret"), ("bob", "another-secret"), ("carol", "c-secret")):
        with reloaded.connected() as client:
            assert shown_certificate(client) != before
            tried.append(login(client, user, password) == 0)
    assert tried == [False, False, True, True]
    assert reloaded.server.stop() == 0


def test_keys_that_may_change_do_and_the_others_are_named(reloaded: Reloaded) -> None:
    reloaded.start()
    reloaded.write(num_partitions=3, log_level="warning", max_connections=77, data_dirs=["elsewhere"])
    lines = reloaded.hang_up()
    said = "\n".join(lines)
    assert "needs a restart: max_connections: " in said
    assert " -> 77" in said
    assert "data_dirs" not in said, "the command line names them, and wins"
    with reloaded.connected() as client:
        assert login(client, "alice", "a-secret") == 0
        assert partitions_of_new_topic(client, "wider") == 3
    assert reloaded.server.stop() == 0
    assert "stopping" not in reloaded.server.stderr(), "which is an INFO line"


def test_super_users_are_those_of_the_new_settings(reloaded: Reloaded) -> None:
    reloaded.write(acl_enable=True, super_users="User:alice")
    reloaded.start()
    with reloaded.connected() as client:
        assert login(client, "bob", "b-secret") == 0
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="topic")])
        [refused] = client.call(asked, 7).topics
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reloaded.write(acl_enable=True, super_users="User:bob")
        assert any("changed: super_users: User:alice -> User:bob" in line for line in reloaded.hang_up())
        assert partitions_of_new_topic(client, "topic") == 1
    assert reloaded.server.stop() == 0


BROKEN: Final = {
    "no TOML": lambda reloaded: reloaded.config.write_text("num_partitions = "),
    "unknown key": lambda reloaded: reloaded.write(num_partitons=3),
    "no settings": lambda reloaded: reloaded.config.unlink(),
    "users": lambda reloaded: reloaded.users.write_text("[alice]\npasword = 'x'"),
    "no certificate": lambda reloaded: reloaded.certificate.write_text("gone"),
    "the key's file is away": lambda reloaded: reloaded.write(num_partitions=3, ssl_key_file="/nowhere/key.pem"),
}


def test_what_cannot_be_read_is_one_error_line_and_changes_nothing(reloaded: Reloaded) -> None:
    reloaded.start()
    for what, break_it in BROKEN.items():
        reloaded.write(num_partitions=3)
        break_it(reloaded)
        lines = reloaded.hang_up()
        assert len(lines) == 1, (what, lines)
        assert "level=error" in lines[0], what
        shutil.copy(reloaded.certificates.server, reloaded.certificate)
        reloaded.write_users(alice="a-secret")
    with reloaded.connected() as client:
        assert login(client, "bob", "b-secret") == 0
        assert partitions_of_new_topic(client, "narrow") == 1
    assert reloaded.server.stop() == 0


def test_a_server_that_is_starting_or_stopping_is_not_ended(reloaded: Reloaded) -> None:
    server = reloaded.folder.spawn("--config", str(reloaded.config))
    server.wait_locked(reloaded.folder.data_dir)
    server.process.send_signal(signal.SIGHUP)
    reloaded.server = server.wait_ready()
    with reloaded.connected() as client:
        assert login(client, "alice", "a-secret") == 0
    os.kill(server.pid, signal.SIGTERM)
    os.kill(server.pid, signal.SIGHUP)
    assert server.wait_exit() == 0
