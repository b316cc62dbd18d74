"""SCRAM users and ACLs without Java tools: what the commands add holds for logins and for rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import triolog
from click.testing import Result

from .conftest import call

PASSWORDS = {"root": "secret of root", "alice": "secret of alice"}


@pytest.fixture
def server() -> Iterator[str]:
    keys = {"native_security": "sasl_plaintext", "acl_enable": "true", "super_users": "User:root"}
    keys["connection_failed_authentication_delay_ms"] = "1"
    with triolog.blocking.open(
        users={"root": PASSWORDS["root"]}, topics=["orders", "others"], security=keys, native="127.0.0.1:0"
    ) as broker:
        broker.append("orders", [b"v"])
        yield "{}:{}".format(*broker.native)


def as_user(server: str, user: str, *arguments: str, stdin: str = "") -> Result:
    login = {"TRIOLOG_SERVER": server, "TRIOLOG_USER": user, "TRIOLOG_PASSWORD": PASSWORDS[user]}
    return call(*arguments, env=login, input=stdin)


def asked(server: str, *arguments: str, stdin: str = "") -> str:
    result = as_user(server, "root", *arguments, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_a_user_that_is_added_can_log_in_and_one_that_is_removed_cannot(server: str) -> None:
    assert "stores no users" in asked(server, "user", "ls")
    assert as_user(server, "alice", "topics", "list").exit_code == 3
    added = asked(server, "users", "add", "alice", "--new-password-file", "-", stdin=f"{PASSWORDS['alice']}\n")
    assert added == "alice can log in with SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert as_user(server, "alice", "topics", "list").exit_code == 0
    assert json.loads(asked(server, "users", "list", "--json")) == [
        {"user": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    ]
    asked(server, "users", "remove", "alice", "--mechanism", "scram-sha-256", "-y")
    assert as_user(server, "alice", "topics", "list").exit_code == 0
    assert asked(server, "users", "rm", "alice", "-y") == "removed alice\n"
    assert as_user(server, "alice", "topics", "list").exit_code == 3
    assert "stores no user alice" in as_user(server, "root", "users", "remove", "alice", "-y").stderr


def test_a_rule_that_is_added_allows_and_one_that_is_removed_does_not(server: str) -> None:
    asked(server, "users", "add", "alice", "--new-password-file", "-", stdin=PASSWORDS["alice"])

    def reads(topic: str) -> bool:
        return as_user(server, "alice", "consume", topic).exit_code == 0

    assert not reads("orders")
    shown = asked(server, "acls", "add", "alice", "--consumer", "--topic", "orders", "--group", "g").splitlines()
    rows = [line.split() for line in shown[3:] if line]
    assert rows == [
        ["topic", "orders", "literal", "User:alice", "*", "read", "allow"],
        ["topic", "orders", "literal", "User:alice", "*", "describe", "allow"],
        ["group", "g", "literal", "User:alice", "*", "read", "allow"],
    ]
    assert (reads("orders"), reads("others")) == (True, False)
    asked(server, "acls", "add", "alice", "--deny", "--operation", "read", "-t", "ord", "--prefix")
    assert not reads("orders")
    asked(server, "acls", "remove", "--deny", "-y")
    assert reads("orders")
    listed: list[dict[str, Any]] = json.loads(asked(server, "acls", "list", "alice", "--topic", "orders", "--json"))
    assert [each["operation"] for each in listed] == ["READ", "DESCRIBE"]
    assert asked(server, "acls", "rm", "alice", "-y") == "removed 3 rules\n"
    assert not reads("orders")
    assert asked(server, "acls", "list") == "no rules\n"


def test_kafkas_words_for_a_rule_work(server: str) -> None:
    asked(server, "acls", "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "*")
    asked(server, "kafka-acls.sh", "--add", "--principal", "bob", "--operation", "Write", "--cluster-scope")
    assert len(asked(server, "acls", "--list").splitlines()) == 6


def test_what_cannot_be_done_is_one_line(server: str) -> None:
    for arguments, words in (
        (("acls", "add", "alice"), "Use --topic NAME"),
        (("acls", "add", "alice", "--topic", "t", "--operation", "raed"), "Did you mean read?"),
        (("acls", "add", "--deny-principal", "alice"), "Did you mean PRINCIPAL --deny?"),
        (("acls", "remove", "nobody", "-y"), "no such rules"),
        (("users", "add", "a", "--password", "x"), "Did you mean --new-password-file FILE"),
        (("users", "add", "a", "--new-password-file", "-"), "the password of a is empty"),
        (("users", "remove", "a", "-y"), "stores no user a"),
    ):
        result = as_user(server, "root", *arguments)
        assert (result.exit_code in (1, 2), words in result.stderr, len(result.stderr.splitlines())) == (True, True, 1)


def test_without_acls_the_server_refuses_them() -> None:
    with triolog.blocking.open(native="127.0.0.1:0") as broker:
        result = call("acls", "list", "-s", str(broker.native))
    assert (result.exit_code, "SECURITY_DISABLED: ACLs are not enforced: acl_enable is false" in result.stderr) == (1, True)
