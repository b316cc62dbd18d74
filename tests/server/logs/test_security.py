"""Users and ACLs: what was answered is there after any end, in every directory, and counts at once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.access.acls import Acl, AclFilter
from triolog.server.storage.directory.state_files import SECURITY_FILE, read_security
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.support.brokers import running_broker
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
        with pytest.raises(RequestError, match="free space"):
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
