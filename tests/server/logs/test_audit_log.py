"""The audit log: whole lines in order, nothing that holds anybody up, and nothing secret."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.kafka.authorization import AclOperation, ResourceType
from triolog.protocol.native import messages as m
from triolog.server.broker import Broker
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.server.logs.security import MAX_NAMES, MAX_TEXT_CHARS, MAX_WAITING_BYTES, AuditLog
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.login import LoginConfig

from tests.support.brokers import running_broker, until

LOCALHOST = Address("127.0.0.1", 0)
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@asynccontextmanager
async def audited(path: Path, **keys: Any) -> AsyncIterator[tuple[Broker, Path]]:
    file = path / "audit.jsonl"
    async with running_broker(path / "data", audit_file=str(file), **keys) as broker:
        yield broker, file


async def test_events_are_lines_in_their_order_written_when_the_broker_stops_at_the_latest(tmp_path: Path) -> None:
    async with audited(tmp_path) as (broker, file):
        assert file.stat().st_mode & 0o777 == 0o600
        audit = broker.security.audit
        assert audit is not None
        for number in range(100):
            audit.note("test", number=number)
    found = events(file)
    assert [each["number"] for each in found] == list(range(100))
    assert found[0]["time"].endswith("Z")


async def test_a_file_that_was_moved_away_is_made_again_or_its_events_are_counted_as_lost(tmp_path: Path) -> None:
    async with audited(tmp_path) as (broker, file):
        audit = broker.security.audit
        assert audit is not None
        audit.note("first")
        await until(lambda: bool(file.read_bytes()))
        file.rename(tmp_path / "old")
        audit.note("second")
        await until(file.exists)
        await until(lambda: bool(file.read_bytes()))
        assert [each["event"] for each in events(file)] == ["second"]
        file.unlink()
        file.mkdir()
        audit.note("lost")
        await until(lambda: audit.lost == 1)
    with pytest.raises(OSError, match=file.name):
        async with running_broker(tmp_path / "other", audit_file=str(file)):
            raise AssertionError("it has started")


async def test_what_is_too_much_is_counted_and_what_is_long_is_cut(tmp_path: Path) -> None:
    async with audited(tmp_path) as (broker, file):
        audit = AuditLog(str(file), broker.disk, broker.now_ms)
        while not audit.lost:
            audit.note("test", text="x" * 900, names=["y" * 900] * 50)
        assert MAX_WAITING_BYTES - 50_000 < sum(map(len, audit._lines)) <= MAX_WAITING_BYTES
        audit.note("test", text="x" * 900, names=["y" * 900] * 50)
        assert audit.lost == 2
        other = broker.security.audit
        assert other is not None
        other.note("long", text="x" * 5000, names=["y" * 5000] * 500, line="a\nb")
    [found] = events(file)
    assert len(found["text"]) == MAX_TEXT_CHARS + 3
    assert (len(found["names"]), found["names"][-1]) == (MAX_NAMES + 1, f"and {500 - MAX_NAMES} more")


async def test_logins_denials_and_changes_of_a_native_client(tmp_path: Path) -> None:
    keys = {
        "native_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": {"alice": "very secret", "root": "more secret"},
        "super_users": ("User:root",),
        "acl_enable": True,
        "connection_failed_authentication_delay_ms": 1,
    }
    async with audited(tmp_path, **keys) as (broker, file), trio.open_nursery() as nursery:
        address = await nursery.start(native_listener(broker, LOCALHOST, Admission.of(broker.config)).run)
        with pytest.raises(Exception, match="invalid credentials"):
            async with connect(*address, config=_as("alice", "wrong secret")):
                raise AssertionError("logged in")
        async with connect(*address, config=_as("root", "more secret")) as root:
            await root.call(m.DeleteTopicsRequest(("missing",)))
        async with connect(*address, config=_as("alice", "very secret")) as alice:
            await alice.call(m.CreateTopicsRequest((m.NewTopic("u", 1),)))
        nursery.cancel_scope.cancel()
    told = [{key: value for key, value in each.items() if key != "time"} for each in events(file)]
    native = {"host": "127.0.0.1", "protocol": "native"}
    mechanism = {"mechanism": "SCRAM-SHA-512"}
    denied = {"operation": "CREATE", "resource": "TOPIC", "name": "u"}
    root_is = {"principal": "User:root", "client_id": "triolog", **native}
    assert [{key: value for key, value in each.items() if key != "why"} for each in told] == [
        {"event": "login failed", "user": "alice", **native, **mechanism},
        {"event": "login", "principal": "User:root", **native, **mechanism},
        {"event": "change", **root_is, "api": "delete_topics", "names": ["missing"], "errors": [UNKNOWN]},
        {"event": "login", "principal": "User:alice", **native, **mechanism},
        {"event": "denied", "principal": "User:alice", "host": "127.0.0.1"} | denied,
    ]
    assert "secret" not in file.read_text()


def _as(user: str, password: str) -> ClientConfig:
    return ClientConfig(login=LoginConfig(user=user, password=password))


async def test_a_denial_is_told_once_until_acls_change(tmp_path: Path) -> None:
    async with audited(tmp_path, acl_enable=True) as (broker, file):
        for _ in range(3):
            assert not broker.security.allows("User:x", "h", AclOperation.READ, ResourceType.TOPIC, "t")
            assert not broker.security.allows("User:x", "h", AclOperation.READ, ResourceType.TOPIC, "u", quietly=True)
    assert [(each["event"], each["name"]) for each in events(file)] == [("denied", "t")]
