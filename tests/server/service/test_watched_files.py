"""Files of users are read again when they change, once they are whole, and nobody who has logged in notices."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from triolog.server.broker import Broker
from triolog.server.service.reloading import security_part
from triolog.server.service.watched_files import WatchedFiles

from tests.support.brokers import running_broker, until

LOOK_S = 0.005


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator[tuple[Broker, Path]]:
    users = path / "users.toml"
    users.write_text('[alice]\npassword = "old"\n')
    keys = {"sasl_users_file": str(users), "audit_file": str(path / "audit")}
    async with running_broker(path / "data", **keys) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(WatchedFiles(broker, [partial(security_part, broker)], LOOK_S).run)
        yield broker, users
        nursery.cancel_scope.cancel()


async def test_a_file_that_is_written_anew_or_replaced_is_read(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, users):
        users.write_text('[alice]\npassword = "newer"\n')
        await until(lambda: broker.security.is_password("alice", "newer"))
        assert not broker.security.is_password("alice", "old")
        other = tmp_path / "other"
        other.write_text('[bob]\npassword = "b"\n')
        other.replace(users)
        await until(lambda: broker.security.is_password("bob", "b"))
    noted = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [each["changed"] for each in noted] == [["passwords of users: alice"], ["users added: bob", "users removed: alice"]]


async def test_what_cannot_be_read_is_said_once_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def errors() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]

    async with watched(tmp_path) as (broker, users):
        users.write_text("[alice\n")
        await until(lambda: bool(errors()))
        users.unlink()
        await until(lambda: len(errors()) == 2)
        assert broker.security.is_password("alice", "old")
        users.write_text('[alice]\npassword = "newest"\n')
        await until(lambda: broker.security.is_password("alice", "newest"))
    assert ["is not TOML" in each for each in errors()] == [True, False]


async def test_a_file_that_only_looks_changed_is_no_change(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, users):
        os.utime(users, ns=(1, 1))
        users.with_name("done").touch()
        looks = 0

        def has_looked() -> bool:
            nonlocal looks
            looks += 1
            return looks > 50

        await until(has_looked)
        assert broker.security.is_password("alice", "old")
    assert (tmp_path / "audit").read_text() == ""
