from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triolog
from click.testing import Result
from triolog.server.config.version import VERSION
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli import status

from tests.support.wire_client import WireClient
from tests.tools.cli.conftest import Cli, call


def test_a_server_that_works_fits_one_screen_and_exits_with_0(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    lines = cli.ok("status").splitlines()
    assert len(lines) < 20
    assert lines[0].endswith(f"{cli.address}, version {VERSION}, works")
    assert [line.split()[0] for line in lines] == ["server", "logs", "connections", "lag", "loss", "disk"]
    shown = cli.json("status")
    assert (shown["is_healthy"], shown["problems"], shown["version"]) == (True, [], VERSION)
    assert (shown["topic_count"], shown["partitions"]) == (1, 2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"partitions_offline": 1}, "1 partition offline"),
        ({"failed_syncs": 2}, "2 syncs failed"),
        ({"directories": [{"path": "/d", "error": "gone", "is_refusing": False}]}, "/d is out of service: gone"),
        ({"directories": [{"path": "/d", "error": None, "is_refusing": True}]}, "/d is full"),
    ],
)
def test_a_problem_is_named(changes: dict[str, Any], problem: str) -> None:
    healthy: dict[str, Any] = {"directories": [], "partitions_offline": 0, "failed_syncs": 0}
    [line] = status._problems({**healthy, **changes})
    assert problem in line


def test_a_server_with_a_problem_exits_with_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_problems", lambda now: ["disk \x1b[31m on fire"])
    result = cli.call("status")
    assert (result.exit_code, result.stdout.splitlines()[-1].split(maxsplit=1)) == (1, ["problem", r"disk \x1b[31m on fire"])
    assert "has problems" in result.stdout


FILE = """node_id = 7
max_connections = 50
[topic_defaults]
"retention.ms" = -1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text(FILE)
    return path


def shown(*arguments: object, **variables: str) -> dict[str, Any]:
    result = call("config", "show", "--json", *arguments, env=variables)
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_each_key_has_its_value_and_its_source(file: Path) -> None:
    keys = shown("-c", file, TRIOLOG_MAX_CONNECTIONS="60", TRIOLOG_DURABILITY="os")
    assert keys["node_id"] == {"value": "7", "source": str(file)}
    assert keys["max_connections"] == {"value": "60", "source": "TRIOLOG_MAX_CONNECTIONS"}
    assert keys["durability"] == {"value": "os", "source": "TRIOLOG_DURABILITY"}
    assert keys["topic_defaults retention.ms"] == {"value": "-1", "source": str(file)}
    assert keys["data_dirs"] == {"value": "triolog-data", "source": "default"}
    assert keys["metrics"] == {"value": "not set", "source": "default"}
    assert keys["topic_defaults segment.bytes"]["source"] == "default"


def test_keys_can_be_chosen(file: Path) -> None:
    assert shown("node_id", "-c", file).keys() == {"node_id"}
    assert shown("--changed", "-c", file).keys() == {"node_id", "max_connections", "topic_defaults retention.ms"}
    lines = [line.split() for line in call("config", "show", "--changed", "-c", file).stdout.splitlines()]
    assert ["node_id", "7", str(file)] in lines


def test_a_wrong_file_or_key_is_refused(file: Path) -> None:
    assert "Did you mean max_connections?" in call("config", "show", "max_conections").stderr
    file.write_text("max_conections = 5")
    result = call("config", "show", "-c", file)
    assert (result.exit_code, f"{file}: unknown key 'max_conections'" in result.stderr) == (2, True)


def test_every_connection_is_a_row_and_the_commands_own_is_one(cli: Cli, broker: BlockingBroker) -> None:
    with WireClient.connect(broker.native):
        told = cli.json("connections")
        assert told["connections"][0]["client_id"] == "wire-client"
        first = told["connections"][0]
        assert (first["protocol"], first["software_name"], first["requests"]) == ("native", None, 1)
        assert first["received_bytes"] > 0
        rows = [line.split() for line in cli.ok("connections").splitlines()]
        [row] = [row for row in rows if "wire-client" in row]
        assert row[1:5] == ["native", "wire-client", "-", "User:ANONYMOUS"]
        assert any("triolog-python" in row for row in rows)
        assert "more connection" in cli.ok("connections", "--limit", "0")
        cli.refused("connections", "--limit", "10001", code=2)


def quotas(cli: Cli) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    return [(each["entity"], each["quotas"]) for each in cli.json("quotas", "list")]


def test_quotas_of_every_kind_are_set_listed_and_removed(cli: Cli) -> None:
    assert "has no quotas" in cli.ok("quotas", "list")
    said = cli.ok("quotas", "set", "--client-id", "sensor", "producer_byte_rate=100000", "request_percentage=2.5")
    assert said == "client-id sensor has producer_byte_rate=100,000 request_percentage=2.5\n"
    cli.ok("quotas", "set", "--user", "a", "--default-client-id", "consumer_byte_rate=1")
    cli.ok("quotas", "set", "--default-user", "controller_mutation_rate=0.5")
    told = cli.json("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    assert told == {"entity": {"ip": "10.0.0.1"}, "quotas": {"connection_creation_rate": 5.0}}
    cli.ok("quotas", "set", "--default-ip", "connection_creation_rate=9")
    expected: list[tuple[dict[str, str | None], dict[str, float]]] = [
        ({"client-id": None, "user": "a"}, {"consumer_byte_rate": 1.0}),
        ({"client-id": "sensor"}, {"producer_byte_rate": 100000.0, "request_percentage": 2.5}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
        ({"ip": None}, {"connection_creation_rate": 9.0}),
        ({"user": None}, {"controller_mutation_rate": 0.5}),
    ]
    assert sorted(quotas(cli), key=str) == sorted(expected, key=str)
    rows = [line.split() for line in cli.ok("quotas", "list").splitlines()]
    assert ["a", "<default>", "-", "consumer_byte_rate", "1"] in rows
    assert ["-", "sensor", "-", "request_percentage", "2.5"] in rows
    told = cli.json("quotas", "remove", "--client-id", "sensor", "request_percentage")
    assert told == {"entity": {"client-id": "sensor"}, "removed": ["request_percentage"]}
    assert ({"client-id": "sensor"}, {"producer_byte_rate": 100000.0}) in quotas(cli)
    assert cli.ok("quotas", "remove", "--client-id", "sensor") == "client-id sensor has no producer_byte_rate any more\n"
    assert len(quotas(cli)) == 4
    cli.ok("topics", "create", "t")
    cli.ok("produce", "t", stdin="a\n")
    assert cli.broker.log("t").values() == [b"a"]


def test_what_cannot_be_is_refused(cli: Cli) -> None:
    refused = {
        ("--user", "a", "connection_creation_rate=1"): "Invalid configuration key connection_creation_rate",
        ("--user", "a", "producer_byte_rate=0"): "must be greater than 0",
        ("--user", "a", "producer_byte_rate=nan"): "is not a number",
        ("--user", "a", "--ip", "10.0.0.1", "connection_creation_rate=1"): "Invalid quota entity combination",
        ("--ip", "nowhere", "connection_creation_rate=1"): "is not an IP address",
        ("--user", "", "producer_byte_rate=1"): "Empty user not supported",
    }
    for arguments, why in refused.items():
        assert why in cli.refused("quotas", "set", *arguments)
    wrong = {
        ("producer_byte_rate=1",): "Give --user",
        ("--user", "a", "--default-user", "producer_byte_rate=1"): "--user and --default-user exclude each other",
        ("--user", "a", "producer_byte_rate=x"): "'x' is not a number",
        ("--user", "a", "producer_byte_rate"): "is not KEY=VALUE",
    }
    for arguments, why in wrong.items():
        assert why in cli.refused("quotas", "set", *arguments, code=2)
    assert "has no quota" in cli.refused("quotas", "remove", "--user", "a")
    cli.ok("quotas", "set", "--user", "a", "producer_byte_rate=1")
    assert "has no quota request_percentage" in cli.refused("quotas", "remove", "--user", "a", "request_percentage")


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


@pytest.mark.parametrize(
    ("clock", "text"),
    [
        (None, None),
        ({"is_plausible": True, "is_trusted": True}, None),
        ({"is_plausible": True, "is_trusted": False}, "it has jumped"),
        ({"is_plausible": False, "is_trusted": False}, "the wall clock is wrong"),
    ],
)
def test_a_clock_that_is_not_trusted_is_shown(clock: dict[str, Any] | None, text: str | None) -> None:
    shown = status._clock({"clock": clock})
    assert shown == text or (shown is not None and text is not None and shown.startswith(text))
