"""Users that clients make: what is asked for, what is refused, and that they log in with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages import security
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism

from tests.support.kafka_login import ScramClient, logged_in, server_with_users
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def put(name: str, password: str = "p", mechanism: int = SHA_256, **fields: Any) -> Any:
    hash_name = ScramMechanism(mechanism).hash_name if mechanism in set(ScramMechanism) else "sha256"
    values = {"iterations": 4096, "salt": b"salt", **fields}
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), values["salt"], max(1, values["iterations"] % 20_000))
    values.setdefault("salted_password", salted)
    return security.AlterUserScramCredentialsScramCredentialUpsertion(name=name, mechanism=mechanism, **values)


def take(name: str, mechanism: int = SHA_256) -> Any:
    return security.AlterUserScramCredentialsScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(client: KafkaStream, *changes: Any) -> dict[str, int]:
    deletions = [each for each in changes if isinstance(each, security.AlterUserScramCredentialsScramCredentialDeletion)]
    upsertions = [each for each in changes if each not in deletions]
    answer = await client.call(security.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions), 0)
    return {result.user: result.error_code for result in answer.results}


async def describe(client: KafkaStream, *names: str) -> dict[str, Any]:
    users = [security.DescribeUserScramCredentialsUserName(name=name) for name in names] or None
    answer = await client.call(security.DescribeUserScramCredentialsRequest(users=users), 0)
    assert answer.error_code == 0, answer
    return {
        result.user: result.error_code or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


async def log_in(server: KafkaServer, user: str, password: str, mechanism: ScramMechanism = SHA_256) -> int:
    """The error of the last token."""
    async with server.connected() as client:
        assert (await client.call(security.SaslHandshakeRequest(mechanism=mechanism.sasl_name), 1)).error_code == 0
        scram = ScramClient(mechanism.hash_name, user, password)
        challenge = await client.call(security.SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
        answer = await client.call(security.SaslAuthenticateRequest(auth_bytes=scram.final(challenge.auth_bytes)), 2)
        return answer.error_code


async def test_a_user_that_was_made_logs_in_until_it_is_taken_away(tmp_path: Path) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        assert await log_in(server, "carol", "p") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await alter(root, put("carol"), put("carol", "q", SHA_512), put("dave", iterations=8192)) == {
            "carol": 0,
            "dave": 0,
        }
        assert await log_in(server, "carol", "p") == 0
        assert await log_in(server, "carol", "q", SHA_512) == 0
        assert await log_in(server, "carol", "p", SHA_512) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await describe(root) == {"carol": [(1, 4096), (2, 4096)], "dave": [(1, 8192)]}
        assert await alter(root, put("carol", "new"), take("dave")) == {"carol": 0, "dave": 0}
        assert await log_in(server, "carol", "new") == 0
        assert await log_in(server, "carol", "p") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await describe(root, "carol", "dave") == {"carol": [(1, 4096), (2, 4096)], "dave": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put("carol", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put("carol", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put("carol", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put("carol", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put("carol", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (take("carol"), ErrorCode.RESOURCE_NOT_FOUND),
        (take("carol", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (take(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_a_wrong_change_is_refused_and_takes_its_user_along(tmp_path: Path, change: Any, code: ErrorCode) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        found = await alter(root, change, put("carol", mechanism=SHA_512), put("dave"))
        assert found == {"carol": 0, "dave": 0, change.name: code}
        assert set(await describe(root)) == ({"carol", "dave"} - {change.name})


async def test_a_salted_password_of_any_length_is_stored_as_kafka_does(tmp_path: Path) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        for salted_password in (b"short", bytes(33), bytes(100)):
            assert await alter(root, put("carol", salted_password=salted_password)) == {"carol": 0}
            credential = server.broker.security.scram_users()["carol", SHA_256]
            assert credential == ScramCredential.from_salted_password(SHA_256, 4096, b"salt", salted_password)
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        assert await describe(root) == {"carol": [(1, 4096)]}


async def test_a_user_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    async with server_with_users(tmp_path) as server, logged_in(server, "root") as root:
        assert await alter(root, put("carol"), put("carol")) == {"carol": ErrorCode.DUPLICATE_RESOURCE}
        assert await alter(root, put("carol")) == {"carol": 0}
        assert await alter(root, take("carol"), put("carol")) == {"carol": ErrorCode.DUPLICATE_RESOURCE}
        assert await describe(root, "carol", "carol") == {"carol": ErrorCode.DUPLICATE_RESOURCE}
