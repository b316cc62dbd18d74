"""Users, ACLs and configurations of groups survive any end, in every directory; SCRAM challenges do not show whether a user
exists; the audit log."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.errors import InvalidConfigError, RequestError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import MIN_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism
from triolog.protocol.native import messages as m
from triolog.server.access.acls import Acl, AclFilter
from triolog.server.broker import Broker
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.server.logs.security import MAX_NAMES, MAX_TEXT_CHARS, MAX_WAITING_BYTES, AuditLog
from triolog.server.storage.directory.state_files import GROUPS, SECURITY_FILE, read_security
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.login import LoginConfig

from tests.support.brokers import running_broker, until
from tests.support.gate_fs import GateFileSystem

SHA_256 = ScramMechanism.SCRAM_SHA_256
READ = Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = READ._replace(operation=AclOperation.WRITE)
ALL = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermission.ANY)


def credential(password: str) -> ScramCredential:
    return ScramCredential.from_password(SHA_256, 4096, b"salt", password)


async def test_users_and_acls_are_there_after_a_restart(tmp_path: Path, fs: GateFileSystem) -> None:
    """Except those that could not be stored."""
    async with running_broker(tmp_path, fs=fs, acl_enable=True) as broker:
        await broker.security.alter_scram_users({("alice", SHA_256): credential("one"), ("bob", SHA_256): credential("b")}, ())
        await broker.security.alter_scram_users({("alice", SHA_256): credential("two")}, [("bob", SHA_256)])
        await broker.security.create_acls([READ, WRITE])
        assert await broker.security.delete_acls([ALL, AclFilter(*WRITE)]) == [[READ, WRITE], [WRITE]]
        fs.fail("write", f"{SECURITY_FILE}.tmp", number=errno.ENOSPC)
        with pytest.raises(RequestError, match="Free space"):
            await broker.security.create_acls([WRITE])
        assert broker.security.acls(ALL) == []
        await broker.security.create_acls([READ, READ])
    async with running_broker(tmp_path, acl_enable=True) as broker:
        assert broker.security.scram_users() == {("alice", SHA_256): credential("two")}
        assert broker.security.acls(ALL) == [READ]
        assert broker.security.allows("User:alice", "::1", AclOperation.READ, ResourceType.TOPIC, "a")
        assert not broker.security.allows("User:alice", "::1", AclOperation.WRITE, ResourceType.TOPIC, "a")
        assert broker.security.statistics.denied == 1


async def test_every_directory_has_them_and_the_newest_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two) as broker:
        await broker.security.create_acls([READ])
    older = (one / SECURITY_FILE).read_bytes()
    assert older == (two / SECURITY_FILE).read_bytes()
    async with running_broker(one, two) as broker:
        await broker.security.create_acls([WRITE])
    (one / SECURITY_FILE).write_bytes(older)
    three = tmp_path / "three"
    async with running_broker(one, two, three) as broker:
        assert broker.security.acls(ALL) == [READ, WRITE]
    for directory in (one, two, three):
        assert read_security(OsFileSystem(), str(directory)).acls == {READ, WRITE}


async def test_users_of_the_configuration_log_in_and_are_not_stored(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f'[bob]\n"scram-sha-256" = "{credential("b").as_text()}"\n[carol]\npassword = "c"\n')
    data = tmp_path / "data"
    async with running_broker(data, sasl_users={"alice": "a"}, sasl_users_file=str(users)) as broker:
        security = broker.security
        assert security.is_password("alice", "a")
        assert security.is_password("carol", "c")
        assert not security.is_password("alice", "c")
        assert not security.is_password("bob", "b")
        assert not security.is_password("nobody", "")
        assert await security.scram_credential("bob", SHA_256) == credential("b")
        made = await security.scram_credential("alice", SHA_256)
        assert made == ScramCredential.from_password(SHA_256, made.iterations, made.salt, "a")
        assert made is await security.scram_credential("alice", SHA_256)
        nobody = await security.scram_credential("nobody", SHA_256)
        assert nobody == await security.scram_credential("nobody", SHA_256)
        assert security.scram_users() == {}
        await security.alter_scram_users({("alice", SHA_256): credential("new")}, ())
        assert await security.scram_credential("alice", SHA_256) == credential("new")
    assert b"carol" not in (data / SECURITY_FILE).read_bytes()


MECHANISM = ScramMechanism.SCRAM_SHA_256
STRANGERS = [f"nobody-{number}" for number in range(40)]
USERS = {"alice": "alice's password", "bob": "bob's password"}
STORED = {"carol": (8192, 32), "dave": (MIN_ITERATIONS, 12)}


async def challenges(broker: Broker, users: Iterable[str]) -> dict[str, tuple[int, bytes]]:
    """What the first answer to each shows, and that the credential is the one it shows."""
    found = {user: broker.security.scram_challenge(user, MECHANISM) for user in users}
    known = {user: await broker.security.scram_credential(user, MECHANISM) for user in found}
    assert found == {user: (each.iterations, each.salt) for user, each in known.items()}
    return found


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


async def test_wrong_passwords_cost_strangers_the_same_right_ones_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords of HTTP, whose users have a stored credential."""
    derived: list[str] = []
    real = ScramCredential.from_password

    def counted(mechanism: ScramMechanism, iterations: int, salt: bytes, password: str) -> ScramCredential:
        derived.append(password)
        return real(mechanism, iterations, salt, password)

    async with running_broker(tmp_path) as broker:
        security = broker.security
        await security.alter_scram_users({("alice", SHA_256): credential("one")}, ())
        monkeypatch.setattr(ScramCredential, "from_password", counted)
        assert not await security.accepts_password("alice", "two")
        of_a_user = len(derived)
        assert not await security.accepts_password("nobody", "two")
        assert len(derived) == 2 * of_a_user > 0
        assert await security.accepts_password("alice", "one")
        derived.clear()
        assert await security.accepts_password("alice", "one")
        assert derived == []
        await security.alter_scram_users({("alice", SHA_256): credential("three")}, ())
        assert not await security.accepts_password("alice", "one")


async def test_a_rare_shape_of_a_user_is_rare_among_strangers(tmp_path: Path) -> None:
    """Whether the file of users or a client has the most of them."""
    users = {f"user-{number}": "x" for number in range(60)}
    async with running_broker(tmp_path, sasl_users=users) as broker:
        await broker.security.alter_scram_users({("user-0", MECHANISM): credential("x")}, ())
        found = await challenges(broker, [f"nobody-{number}" for number in range(1000)])
    rare = sum(len(salt) == len(b"salt") for _, salt in found.values())
    assert 0 < rare < 150, "of 1,000; about 60"


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
    """And so have strangers, unless the number of users with a shape passes a power of two."""
    async with running_broker(tmp_path, sasl_users={"alice": "x", "zoe": "x"}) as broker:
        await store(broker)
        before = await challenges(broker, ["alice", "bob", *STRANGERS])
    async with running_broker(tmp_path, sasl_users={**USERS, "zoe": "x"}) as broker:
        after = await challenges(broker, ["alice", "bob", *STRANGERS])
    assert after.pop("bob")[1][:12] == before.pop("bob")[1][:12], "whatever their sizes"
    assert after == before


LIMIT, LOCKS = "share.delivery.count.limit", "share.partition.max.record.locks"


async def test_configurations_are_there_after_a_restart_in_every_directory(tmp_path: Path) -> None:
    """Also what only a lenient server accepts."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two, lenient=True, group_share_delivery_count_limit=10) as broker:
        configs = broker.group_configs
        await configs.change("a", lambda _: {LIMIT: " 100 "})
        await configs.change("b", lambda _: {LIMIT: "4"})
        await configs.change("b", lambda _: {})
        await configs.change("c", lambda _: {LIMIT: "4"}, validate_only=True)
        assert configs.overrides() == {"a": {LIMIT: "100"}}
        assert (configs.of_group("a")[LIMIT], configs.of_group("b")[LIMIT]) == (100, 10)
    assert (one / GROUPS.name).read_bytes() == (two / GROUPS.name).read_bytes()
    (one / GROUPS.name).unlink()
    async with running_broker(one, two) as broker:
        assert broker.group_configs.of_group("a")[LIMIT] == 100


async def test_the_servers_keys_are_what_groups_follow(tmp_path: Path) -> None:
    settings = {
        "group_share_record_lock_duration_ms": 1_000,
        "group_share_delivery_count_limit": 9,
        "group_share_partition_max_record_locks": 100,
    }
    async with running_broker(tmp_path, **settings) as broker:
        await broker.group_configs.change("own", lambda _: {LOCKS: "300"})
        keys = ("share.record.lock.duration.ms", LIMIT, LOCKS)
        assert [[broker.group_configs.of_group(group)[key] for key in keys] for group in ("any", "own")] == [
            [1_000, 9, 100],
            [1_000, 9, 300],
        ]


async def test_changes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        configs = broker.group_configs
        async with trio.open_nursery() as nursery:
            for key, value in ((LIMIT, "3"), (LOCKS, "200")):
                nursery.start_soon(configs.change, "a", lambda before, key=key, value=value: {**before, key: value})
        assert (configs.of_group("a")[LIMIT], configs.of_group("a")[LOCKS]) == (3, 200)


async def test_a_wrong_change_does_not_count(tmp_path: Path, fs: GateFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checkpoints.LIMITS, "groups.json", 300)
    async with running_broker(tmp_path, fs=fs) as broker:
        configs = broker.group_configs
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION"):
            await configs.change("b" * 300, lambda _: {LIMIT: "3"})
        with pytest.raises(InvalidConfigError):
            await configs.change("a", lambda _: {LIMIT: "11"})
        fs.fail("write", f"{GROUPS.name}.tmp", number=errno.ENOSPC)
        with pytest.raises(RequestError, match="Free space"):
            await configs.change("a", lambda _: {LIMIT: "3"})
        assert (configs.overrides(), configs.of_group("a")[LIMIT]) == ({}, 5)
        await configs.change("a", lambda _: {LIMIT: "4"})
    async with running_broker(tmp_path) as broker:
        assert broker.group_configs.of_group("a")[LIMIT] == 4


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


async def test_events_of_the_moment_at_which_the_broker_stops_are_written(tmp_path: Path) -> None:
    """The task has been told of them, and is cancelled before it writes them."""
    async with audited(tmp_path) as (broker, _):
        audit = AuditLog(str(tmp_path / "other.jsonl"), broker.disk, broker.now_ms)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(audit.run)
            await trio.testing.wait_all_tasks_blocked()
            audit.note("last")
            nursery.cancel_scope.cancel()
    assert [each["event"] for each in events(tmp_path / "other.jsonl")] == ["last"]


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
