"""Connections that have logged in, in the test's own trio loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from triolog.protocol.kafka.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
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
