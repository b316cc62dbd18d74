from __future__ import annotations

from triolog.server.config import TOPIC_KEYS
from triolog.server.embedded import BlockingBroker

from ..conftest import Cli


def test_create_makes_the_topic_and_list_is_a_table(cli: Cli, broker: BlockingBroker) -> None:
    assert cli.ok("topics", "list") == f"{cli.address} has no topics. `triolog topics create NAME` creates one\n"
    assert cli.json("topics", "list") == []
    configs = ("--config", "retention.ms=-1", "--config", "segment.bytes=99999")
    assert cli.ok("topics", "create", "beta", "--partitions", "2", *configs) == "created beta with 2 partitions\n"
    description = broker.describe_topic("beta")
    assert len(description.partitions) == 2
    assert description.config == {"retention.ms": "-1", "segment.bytes": "99999"}
    answer = cli.json("topics", "create", "alpha", "--config", "durability=os")
    assert answer == {"name": "alpha", "topic_id": answer["topic_id"], "partitions": 1, "config": {"durability": "os"}}
    broker.append("beta", [b"x" * 1000], partition=1)
    rows = [line.split() for line in cli.ok("topics", "list").splitlines() if line.strip()]
    assert rows[0] == ["topic", "partitions", "records", "size", "overridden"]
    assert rows[2] == ["alpha", "1", "0", "0", "B", "durability=os"]
    assert rows[3][:3] == ["beta", "2", "1"]
    assert cli.json("topics", "list")[0] == answer | {"records": 0, "bytes": 0}


def test_create_refuses_what_the_server_refuses_and_what_is_no_config(cli: Cli) -> None:
    cli.ok("topics", "create", "t")
    assert "TOPIC_ALREADY_EXISTS" in cli.refused("topics", "create", "t")
    for create in (("create", "u"), ("alter", "t")):
        assert cli.refused("topics", *create, "-c", "retention.m=1").endswith("Did you mean retention.ms?")
    assert "unknown topic configuration key 'no.such'" in cli.refused("topics", "create", "u", "--config", "no.such=1")
    assert "INVALID_TOPIC_EXCEPTION" in cli.refused("topics", "create", "a/b")
    assert "'segment.bytes' is not KEY=VALUE" in cli.refused("topics", "create", "u", "--config", "segment.bytes", code=2)
    twice = ("--config", "a=1", "--config", "a=2")
    assert "a is given twice" in cli.refused("topics", "create", "u", *twice, code=2)
    cli.refused("topics", "create", "u", "--partitions", "0", code=2)
    assert [each["name"] for each in cli.json("topics", "list")] == ["t"]


def test_describe_shows_partitions_and_every_key(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2, {"segment.bytes": "99999"})
    broker.append("t", [b"v"] * 5, partition=1)
    answer = cli.json("topics", "describe", "t")
    assert [part["records"] for part in answer["partitions"]] == [0, 5]
    expected = {"partition": 1, "error": None, "log_start_offset": 0, "high_watermark": 5, "records": 5, "bytes": 0}
    assert answer["partitions"][1] | {"bytes": 0} == {**expected, "segments": 1, "waiting": None}
    assert answer["config"].keys() == TOPIC_KEYS.keys()
    assert answer["config"]["segment.bytes"] == {"value": "99999", "source": "topic"}
    text = cli.ok("topics", "describe", "t")
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "0", "5", "5", str(answer["partitions"][1]["bytes"]), "1"] in rows
    assert ["segment.bytes", "99999", "topic"] in rows


def test_delete_asks_first(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    broker.append("t", [b"v"])
    result = cli.call("topics", "delete", "t", stdin="n\n")
    assert result.exit_code == 1
    assert "Delete t with 1 partition and 1 record?" in result.stderr
    result = cli.call("topics", "delete", "t", stdin="")
    assert result.exit_code == 1
    assert "t was not deleted; --yes deletes without confirmation" in result.stderr
    assert broker.topics() == ["t"]
    result = cli.call("topics", "delete", "t", stdin="y\n")
    assert (result.exit_code, result.stdout) == (0, "deleted t\n")
    broker.create_topic("t", 2)
    assert cli.json("topics", "delete", "t", "--yes") == {"name": "t", "deleted": True, "partitions": 2, "records": 0}
    assert broker.topics() == []
    assert "there is no topic 't'" in cli.refused("topics", "delete", "t", "--yes")
    assert "there is no topic 't'" in cli.refused("topics", "describe", "t")
