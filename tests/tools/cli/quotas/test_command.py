from __future__ import annotations

from ..conftest import Cli


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
