"""Files of users and certificates are read again when they change, once they are whole, and nobody who is there notices."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.protocol.native import messages
from triolog.server.broker import Broker
from triolog.server.config.broker_config import Address, BrokerConfig
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.service.service import Change, WatchedFiles, security_part, tls_part

from tests.support import brokers, kafka_stream, native_stream
from tests.support.certificates import HOST, Certificates, make_certificates

LOOK_S = 0.005


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator[tuple[Broker, Path]]:
    users = path / "users.toml"
    users.write_text('[alice]\npassword = "old"\n')
    keys = {"sasl_users_file": str(users), "audit_file": str(path / "audit")}
    async with brokers.running_broker(path / "data", **keys) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(WatchedFiles(broker, [partial(security_part, broker)], LOOK_S).run)
        yield broker, users
        nursery.cancel_scope.cancel()


async def test_a_file_that_is_written_anew_or_replaced_is_read(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, users):
        users.write_text('[alice]\npassword = "newer"\n')
        await brokers.until(lambda: broker.security.is_password("alice", "newer"))
        assert not broker.security.is_password("alice", "old")
        other = tmp_path / "other"
        other.write_text('[bob]\npassword = "b"\n')
        other.replace(users)
        await brokers.until(lambda: broker.security.is_password("bob", "b"))
    noted = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [each["changed"] for each in noted] == [["passwords of users: alice"], ["users added: bob", "users removed: alice"]]


async def test_what_cannot_be_read_is_said_once_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def errors() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]

    async with watched(tmp_path) as (broker, users):
        users.write_text("[alice\n")
        await brokers.until(lambda: bool(errors()))
        users.unlink()
        await brokers.until(lambda: len(errors()) == 2)
        assert broker.security.is_password("alice", "old")
        users.write_text('[alice]\npassword = "newest"\n')
        await brokers.until(lambda: broker.security.is_password("alice", "newest"))
    assert ["is not TOML" in each for each in errors()] == [True, False]


async def test_a_certificate_that_changes_is_shown_to_new_connections_and_old_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On both doors; a certificate of which only a part is there is not taken."""
    before, after = (make_certificates(tmp_path / name) for name in ("before", "after"))
    file = tmp_path / "server.pem"
    shutil.copy(before.server, file)
    keys: dict[str, Any] = dict.fromkeys(("native_security", "kafka_security"), ListenerSecurity.SSL)
    keys |= {"ssl_certificate_file": str(file), "audit_file": str(tmp_path / "audit")}
    async with brokers.running_broker(tmp_path / "data", **keys) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        doors = await listeners.start(nursery, Addresses(Address(HOST, 0), Address(HOST, 0)))
        nursery.start_soon(WatchedFiles(broker, [partial(tls_part, broker, listeners)], LOOK_S).run)
        async with shaken(doors.native, before) as native, shaken(doors.kafka, before) as kafka:
            old = native_stream.NativeStream(native), kafka_stream.KafkaStream(kafka)
            await old[0].call(messages.HelloRequest("old"))
            file.write_bytes(Path(after.server).read_bytes()[:100])
            await brokers.until(lambda: "ssl_certificate_file" in caplog.text)
            async with shaken(doors.kafka, before) as another:
                assert another.getpeercert() == kafka.getpeercert()
            shutil.copy(after.server, file)
            await brokers.until(lambda: b"the content of" in (tmp_path / "audit").read_bytes())
            for address in (doors.native, doors.kafka):
                async with shaken(address, after) as new:
                    assert new.getpeercert() not in (native.getpeercert(), kafka.getpeercert())
                with pytest.raises(trio.BrokenResourceError):
                    async with shaken(address, before):
                        """It trusts another authority."""
            assert (await old[0].call(messages.MetadataRequest(()))).topics == ()
            assert (await old[1].call(MetadataRequest(topics=[]), 9)).topics == []
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def shaken(address: Address | None, certificates: Certificates) -> AsyncIterator[Any]:
    """A connection whose handshake is done, by a client that trusts these."""
    assert address is not None
    context = certificates.client_context()
    stream = trio.SSLStream(await trio.open_tcp_stream(*address), context, server_hostname=HOST, https_compatible=True)
    try:
        await stream.do_handshake()
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def test_a_file_that_only_looks_changed_is_no_change(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, users):
        os.utime(users, ns=(1, 1))
        users.with_name("done").touch()
        looks = 0

        def has_looked() -> bool:
            nonlocal looks
            looks += 1
            return looks > 50

        await brokers.until(has_looked)
        assert broker.security.is_password("alice", "old")
    assert (tmp_path / "audit").read_text() == ""


async def test_what_could_not_be_read_for_want_of_descriptors_is_read_when_there_are_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lacking, tried = True, 0

    async def part(config: BrokerConfig) -> Change:
        nonlocal tried
        tried += 1
        await trio.lowlevel.checkpoint()
        if lacking:
            raise InvalidConfigError("a file of TLS cannot be read") from OSError(errno.EMFILE, "Too many open files")
        return Change(("read",))

    users = tmp_path / "users.toml"
    users.write_text('[alice]\npassword = "a"\n')
    keys = {"sasl_users_file": str(users), "audit_file": str(tmp_path / "audit")}
    async with brokers.running_broker(tmp_path / "data", **keys) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(WatchedFiles(broker, [part], LOOK_S).run)
        await brokers.until(lambda: tried > 3)
        lacking = False
        await brokers.until(lambda: "the file has changed: read" in caplog.text or b"read" in (tmp_path / "audit").read_bytes())
        nursery.cancel_scope.cancel()
    assert "not used" not in caplog.text
