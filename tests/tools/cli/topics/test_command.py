"""`triolog topics` against a real broker."""

from __future__ import annotations

from triolog.server.config import TOPIC_KEYS
from triolog.server.embedded import BlockingBroker

from ..conftest import Cli


def test_create_makes_the_topic(cli: Cli, broker: BlockingBroker) -> None:
    said = cli.ok(
        "topics", "create", "t", "--partitions", "3", "--config", "retention.ms=-1", "--config", "segment.bytes=99999"
    )
    assert said == "created t with 3 partitions\n"
    description = broker.describe_topic("t")
    assert len(description.partitions) == 3
    assert description.configs == {"retention.ms": "-1", "segment.bytes": "99999"}


def test_create_answers_json(cli: Cli) -> None:
    answer = cli.json("topics", "create", "t", "--config", "durability=os")
    assert len(answer.pop("topic_id")) == 22
    assert answer == {"name": "t", "partitions": 1, "config": {"durability": "os"}}


def test_create_refuses_what_the_server_refuses(cli: Cli) -> None:
    cli.ok("topics", "create", "t")
    assert "TOPIC_ALREADY_EXISTS" in cli.refused("topics", "create", "t")
    assert "unknown topic configuration key 'no.such'" in cli.refused("topics", "create", "u", "--config", "no.such=1")
    assert "INVALID_TOPIC_EXCEPTION" in cli.refused("topics", "create", "a/b")
    assert cli.json("topics", "list") == [
        {"name": "t", "topic_id": cli.json("topics", "describe", "t")["topic_id"], "partitions": 1, "records": 0}
        | {"bytes": 0, "config": {}}
    ]


def test_create_refuses_a_config_that_is_none(cli: Cli) -> None:
    assert "'segment.bytes' is not KEY=VALUE" in cli.refused("topics", "create", "t", "--config", "segment.bytes", code=2)
    twice = ("--config", "a=1", "--config", "a=2")
    assert "a is given twice" in cli.refused("topics", "create", "t", *twice, code=2)
    cli.refused("topics", "create", "t", "--partitions", "0", code=2)


def test_list_without_topics_says_how_to_make_one(cli: Cli) -> None:
    assert cli.ok("topics", "list") == f"{cli.address} has no topics; `triolog topics create NAME` makes one\n"
    assert cli.json("topics", "list") == []


def test_list_is_a_table(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("beta", 2, {"segment.bytes": "99999"})
    broker.create_topic("alpha")
    broker.append("beta", [b"x" * 1000], partition=1)
    rows = [line.split() for line in cli.ok("topics", "list").splitlines() if line.strip()]
    assert rows[0] == ["topic", "partitions", "records", "size", "overridden"]
    assert rows[2] == ["alpha", "1", "0", "0", "B"]
    assert rows[3][:3] == ["beta", "2", "1"]
    assert rows[3][-1] == "segment.bytes=99999"


def test_describe_shows_partitions_and_every_key(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2, {"segment.bytes": "99999"})
    broker.append("t", [b"v"] * 5, partition=1)
    answer = cli.json("topics", "describe", "t")
    assert [part["records"] for part in answer["partitions"]] == [0, 5]
    assert answer["partitions"][1] | {"bytes": 0} == {
        "partition": 1,
        "error": None,
        "log_start_offset": 0,
        "high_watermark": 5,
        "records": 5,
        "bytes": 0,
        "segments": 1,
        "waiting": None,
    }
    assert answer["config"].keys() == TOPIC_KEYS.keys()
    assert answer["config"]["segment.bytes"] == {"value": "99999", "source": "topic"}
    text = cli.ok("topics", "describe", "t")
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "0", "5", "5", str(answer["partitions"][1]["bytes"]), "1"] in rows
    assert ["segment.bytes", "99999", "topic"] in rows


def test_describe_of_no_topic_fails(cli: Cli) -> None:
    assert "there is no topic 't'" in cli.refused("topics", "describe", "t")


def test_delete_asks_first(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    broker.append("t", [b"v"])
    result = cli.call("topics", "delete", "t", stdin="n\n")
    assert result.exit_code == 1
    assert "Delete t with 1 partition and 1 record?" in result.stderr
    assert broker.topics() == ["t"]
    result = cli.call("topics", "delete", "t", stdin="y\n")
    assert (result.exit_code, result.stdout) == (0, "deleted t\n")
    assert broker.topics() == []


def test_delete_without_an_answer_deletes_nothing(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    result = cli.call("topics", "delete", "t", stdin="")
    assert result.exit_code == 1
    assert "t was not deleted; --yes deletes without asking" in result.stderr
    assert broker.topics() == ["t"]


def test_delete_with_yes_does_not_ask(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    assert cli.json("topics", "delete", "t", "--yes") == {"name": "t", "deleted": True, "partitions": 2, "records": 0}
    assert broker.topics() == []
    assert "there is no topic 't'" in cli.refused("topics", "delete", "t", "--yes")
