"""Users and ACLs that were answered are there after SIGKILL, and no password ever is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.messages.admin.acls import CreateAclsAclCreation, CreateAclsRequest, DescribeAclsRequest
from triolog.protocol.kafka.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsScramCredentialUpsertion,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from tests.support.kafka_wire import KafkaWire
from tests.support.scram_client import ScramClient
from tests.support.server_process import Address, ServerFolder, ServerProcess

ROUNDS: Final = 4
PASSWORD: Final = "a password that must not be found"
ARGUMENTS: Final = ("--kafka", "127.0.0.1:0", "--config", "server.toml")


def start(folder: ServerFolder) -> tuple[ServerProcess, Address]:
    server = folder.start(*ARGUMENTS)
    return server, Address.parse(json.loads(server.ready_file.read_text())["kafka"])


def logged_in(address: Address, user: str, password: str) -> KafkaWire:
    wire = KafkaWire.connect(address)
    client = ScramClient("sha512", user, password)
    assert wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1).error_code == 0
    challenge = wire.call(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
    answer = wire.call(SaslAuthenticateRequest(auth_bytes=client.final(challenge.auth_bytes)), 2)
    assert answer.error_code == 0, answer
    assert client.check(answer.auth_bytes)
    return wire


def make(wire: KafkaWire, number: int) -> None:
    salted = ScramClient("sha512", "", PASSWORD)
    salted.first()
    salted.final(b"r=x,s=c2FsdA==,i=4096")
    user = AlterUserScramCredentialsScramCredentialUpsertion(
        name=f"user-{number}", mechanism=2, iterations=4096, salt=b"salt", salted_password=salted._salted
    )
    [result] = wire.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]), 0).results
    assert result.error_code == 0, result
    acl = CreateAclsAclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=f"topic-{number}",
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:user-{number}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermission.ALLOW,
    )
    [result] = wire.call(CreateAclsRequest(creations=[acl]), 3).results
    assert result.error_code == 0, result


def test_users_and_acls_survive_sigkill(server_folder: ServerFolder, tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text('[root]\npassword = "r"\n')
    (tmp_path / "server.toml").write_text(
        'kafka_security = "sasl_plaintext"\nsasl_users_file = "users.toml"\nacl_enable = true\nsuper_users = "User:root"\n'
    )
    open_filter = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    for number in range(ROUNDS):
        server, address = start(server_folder)
        for known in range(number):
            logged_in(address, f"user-{known}", PASSWORD).close()
        with logged_in(address, "root", "r") as root:
            names = [resource.resource_name for resource in root.call(open_filter, 3).resources]
            assert names == [f"topic-{known}" for known in range(number)]
            make(root, number)
            server.kill()
    for path in server_folder.data_dir.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path
    assert (server_folder.data_dir / "security.json").stat().st_mode & 0o077 == 0
