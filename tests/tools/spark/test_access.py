from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.native.messages import MetadataRequest, MetadataResponse
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.login import LoginConfig, PasswordFile
from triolog.tools.client.tls import TlsConfig
from triolog.tools.spark.segments.segments_options import SegmentOptions
from triolog.tools.spark.sink.delivery import ServerLink
from triolog.tools.spark.sink.write_options import OptionError, ServerAccess, WriteOptions
from triolog.tools.spark.source.broker import Broker, close_connections
from triolog.tools.spark.source.options import ReadOptions

SERVER = {"triolog.servers": "localhost:9095"}
READ = {**SERVER, "subscribe": "topic"}


def access(options: dict[str, str]) -> list[ServerAccess]:
    """As each kind of use has it."""
    return [
        WriteOptions.from_options(SERVER | options).access,
        ReadOptions.from_options(READ | options).access,
        SegmentOptions.from_options(READ | {"snapshot": "server"} | options).read.access,
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ServerAccess()),
        ({"triolog.tlsCa": "ca.pem"}, ServerAccess(TlsConfig(ca_file="ca.pem"))),
        ({"triolog.tlsCert": "me.pem"}, ServerAccess(TlsConfig(certificate_file="me.pem"))),
        ({"triolog.user": "alice", "triolog.password": "p"}, ServerAccess(None, LoginConfig(user="alice", password="p"))),
        (
            {"triolog.user": "alice", "triolog.passwordFile": "file"},
            ServerAccess(None, LoginConfig(user="alice", password=PasswordFile("file"))),
        ),
    ],
)
def test_options_lead_to_a_server(options: dict[str, str], expected: ServerAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIOLOG_PASSWORD", raising=False)
    for found in access(options):
        assert found == expected
        assert pickle.loads(pickle.dumps(found)) == expected
        assert hash(found) == hash(expected)


def test_the_password_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOLOG_PASSWORD", "p")
    assert {found.login for found in access({"triolog.user": "alice"})} == {LoginConfig(user="alice", password="p")}


@pytest.mark.parametrize(
    "options",
    [
        {"triolog.user": "alice"},
        {"triolog.user": "", "triolog.password": "very secret"},
        {"triolog.password": "very secret"},
        {"triolog.user": "alice", "triolog.password": "very secret", "triolog.passwordFile": "f"},
    ],
)
def test_what_makes_no_sense_is_refused_without_the_password(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIOLOG_PASSWORD", raising=False)
    with pytest.raises(OptionError, match=r"triolog\.") as caught:
        WriteOptions.from_options(SERVER | options)
    assert "secret" not in str(caught.value)


def test_both_sources_and_the_sink_log_in(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    keys: dict[str, Any] = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with BlockingBroker(users={"alice": "secret"}, topics=["topic"], security=keys) as broker:
        who = {"triolog.user": "alice", "triolog.passwordFile": str(tmp_path / "password")}
        options = {"triolog.servers": "{}:{}".format(*broker.native), "subscribe": "topic", **who}
        read = ReadOptions.from_options(options)
        try:
            assert [partition.topic for partition in Broker(read).ranges(read.selection)] == ["topic"]
        finally:
            close_connections()
        with ServerLink(read.address, read.access) as link:
            answer = link.call(MetadataResponse, MetadataRequest(None), "asking")
            assert [topic.name for topic in answer.topics] == ["topic"]
