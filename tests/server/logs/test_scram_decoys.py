"""A SCRAM challenge does not tell whether a user exists: not by what it looks like, nor by what changes it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from triolog.protocol.kafka.scram import MIN_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism
from triolog.server.broker import Broker

from tests.support.brokers import running_broker

MECHANISM = ScramMechanism.SCRAM_SHA_256
STRANGERS = [f"nobody-{number}" for number in range(40)]
USERS = {"alice": "alice's password", "bob": "bob's password"}
STORED = {"carol": (8192, 32), "dave": (MIN_ITERATIONS, 12)}


async def challenges(broker: Broker, users: Iterable[str]) -> dict[str, tuple[int, bytes]]:
    """What the first answer to each shows."""
    found = {user: await broker.security.scram_credential(user, MECHANISM) for user in users}
    return {user: (each.iterations, each.salt) for user, each in found.items()}


def shapes(found: dict[str, tuple[int, bytes]]) -> set[tuple[int, int]]:
    return {(iterations, len(salt)) for iterations, salt in found.values()}


async def store(broker: Broker) -> None:
    credentials = {
        (name, MECHANISM): ScramCredential.from_password(MECHANISM, iterations, bytes(size), "password")
        for name, (iterations, size) in STORED.items()
    }
    await broker.security.alter_scram_users(credentials, ())


async def reload(broker: Broker) -> None:
    _, apply = await broker.security.read_again(broker.config)
    apply()


@pytest.mark.parametrize("stores", [False, True])
async def test_strangers_look_like_users(tmp_path: Path, *, stores: bool) -> None:
    async with running_broker(tmp_path, sasl_users=USERS) as broker:
        if stores:
            await store(broker)
        expected = {(MIN_ITERATIONS, SALT_BYTES), *(STORED.values() if stores else ())}
        users = [*USERS, *(STORED if stores else ())]
        assert shapes(await challenges(broker, users)) == shapes(await challenges(broker, STRANGERS)) == expected


async def test_neither_a_reload_nor_a_restart_changes_a_challenge(tmp_path: Path) -> None:
    everybody = [*USERS, *STORED, *STRANGERS]
    async with running_broker(tmp_path, sasl_users=USERS) as broker:
        await store(broker)
        before = await challenges(broker, everybody)
        await reload(broker)
        assert await challenges(broker, everybody) == before
    async with running_broker(tmp_path, sasl_users=USERS) as broker:
        assert await challenges(broker, everybody) == before


async def test_a_user_who_comes_or_goes_has_the_challenge_of_before(tmp_path: Path) -> None:
    async with running_broker(tmp_path, sasl_users={"alice": "x"}) as broker:
        await store(broker)
        before = await challenges(broker, ["alice", "bob", *STRANGERS])
    async with running_broker(tmp_path, sasl_users=USERS) as broker:
        after = await challenges(broker, ["alice", "bob", *STRANGERS])
    assert after.pop("bob")[1][:12] == before.pop("bob")[1][:12], "whatever their sizes"
    assert after == before
