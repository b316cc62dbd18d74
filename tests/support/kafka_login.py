"""Clients that log in: connections in the test's own trio loop, the client's side of SCRAM written from RFC 5802 and not from
the server's code, and rights of clients that do not say who they are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.protocol.types import ANONYMOUS
from triolog.server.broker import Acl, AclFilter
from triolog.server.config.listener_security import ListenerSecurity

from tests.support.kafka_server import KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

USERS: Final = {"root": "r", "alice": "a", "bob": "b"}


@asynccontextmanager
async def server_with_users(path: Path, **keys: Any) -> AsyncIterator[KafkaServer]:
    """root may do everything, alice and bob what ACLs say."""
    settings = {
        "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": USERS,
        "acl_enable": True,
        "super_users": ("User:root",),
        "connection_failed_authentication_delay_ms": 1,
        **keys,
    }
    async with kafka_server(path, **settings) as server:
        yield server


@asynccontextmanager
async def logged_in(server: KafkaServer, user: str) -> AsyncIterator[KafkaStream]:
    async with server.connected() as client:
        await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{USERS[user]}".encode()), 2)
        assert answer.error_code == 0, answer
        yield client


async def allow(kafka: KafkaServer, operation: AclOperation, kind: ResourceType, name: str) -> None:
    """From now on everybody may do this."""
    acl = Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=ANONYMOUS,
        host="*",
        operation=operation,
        permission=AclPermission.ALLOW,
    )
    await kafka.broker.security.create_acls([acl])


async def forbid(kafka: KafkaServer, kind: ResourceType, name: str) -> None:
    """From now on nobody may do anything with this."""
    everything = AclFilter(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=None,
        host=None,
        operation=AclOperation.ANY,
        permission=AclPermission.ANY,
    )
    await kafka.broker.security.delete_acls([everything])


@attrs.define
class ScramClient:
    """One login: `first`, `final`, then `check`."""

    algorithm: str
    user: str
    password: str
    nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    header: str = "n,,"
    _first_bare: str = ""
    _salted: bytes = b""
    _signed: bytes = b""

    def first(self) -> bytes:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self.nonce}"
        return f"{self.header}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        self._salted = hashlib.pbkdf2_hmac(self.algorithm, self.password.encode(), salt, iterations)
        without_proof = f"c={base64.b64encode(self.header.encode()).decode()},r={fields['r']}"
        self._signed = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        key = self._mac(self._salted, b"Client Key")
        signature = self._mac(hashlib.new(self.algorithm, key).digest(), self._signed)
        proof = (int.from_bytes(key) ^ int.from_bytes(signature)).to_bytes(len(key))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> bool:
        """Whether the server knows the password, too."""
        expected = self._mac(self._mac(self._salted, b"Server Key"), self._signed)
        return server_final == b"v=" + base64.b64encode(expected)

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.algorithm).digest()
