from __future__ import annotations

from pathlib import Path

import pytest
import triolog
from triolog.protocol.types import TopicPartition
from triolog.server.config import TOPIC_KEYS
from triolog.server.embedded import BlockingBroker

from tests.support.damaged_batches import damage_batch
from tests.tools.cli.conftest import Cli
from tests.tools.client.doors import Door


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


SMALL = {"segment.bytes": "2000"}


@pytest.fixture
def topic(broker: BlockingBroker) -> str:
    """Two partitions, the second one with more than one segment."""
    broker.create_topic("t", 2, SMALL)
    for _ in range(10):
        broker.append("t", [(1_000, None, b"v" * 420, ())], partition=1)
    return "t"


def test_every_segment_is_a_row_and_what_is_not_there_is_said(cli: Cli, topic: str) -> None:
    empty, log = cli.json("topics", "segments", topic)
    assert [each["base_offset"] for each in empty["segments"]] == [0]
    assert empty["segments"][0]["max_timestamp"] is empty["cleaned_up_to"] is None
    assert (log["log_end_offset"], log["segment_count"], log["left_out"]) == (10, len(log["segments"]), 0)
    assert log["segments"][0]["max_timestamp"] == 1_000
    rows = [line.split() for line in cli.ok("topics", "segments", topic, "--timezone", "UTC").splitlines()]
    bases = [row[1] for row in rows if row[:1] == ["1"] and "1970-01-01" in " ".join(row)]
    assert bases == [str(each["base_offset"]) for each in log["segments"]]
    assert sum("active" in row for row in rows) == 2
    one = (topic, "--partition", "1", "--limit", "1")
    [part] = cli.json("topics", "segments", *one)
    assert (len(part["segments"]), part["left_out"]) == (1, part["segment_count"] - 1)
    assert f"t-1: {part['left_out']} more segments; --max shows more" in cli.ok("topics", "segments", *one)
    cli.refused("topics", "segments", topic, "--limit", "10001", code=2)
    assert "there is no topic 'nowhere'" in cli.refused("topics", "segments", "nowhere")
    result = cli.call("topics", "segments", topic, "--partition", "2")
    assert result.exit_code == 1
    assert "t-2: UNKNOWN_TOPIC_OR_PARTITION: topic 't' has partitions 0 to 1, not 2" in result.stdout
    assert cli.json("topics", "segments", topic, "--partition", "2")[0]["error"].endswith("has partitions 0 to 1, not 2")


def test_what_damage_took_is_said(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path, config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t")
        for _ in range(3):
            running.append("t", [b"v"] * 3)
    damage_batch(tmp_path, "t-0", 1)
    with triolog.blocking.open(tmp_path, native="127.0.0.1:0") as running:
        cli = Cli(running)
        assert "t-0: offsets 3 to 5 were lost to corruption; see `triolog gaps`" in cli.ok("topics", "segments", "t")
        cli.ok("gaps", "accept", "t", "0", "3")
        assert "t-0: offsets 3 to 5 were lost to corruption; readers skip them" in cli.ok("topics", "segments", "t")
        [gap] = cli.json("topics", "segments", "t")[0]["gaps"]
        assert (gap["start_offset"], gap["end_offset"], gap["accepted_ms"] > 0) == (3, 6, True)


async def test_clients_ask_for_a_topic_or_a_partition_from_an_offset(broker: BlockingBroker, topic: str, door: Door) -> None:
    second = TopicPartition(topic, 1)
    async with door.client(broker.native) as client:
        admin = door.admin(client)
        whole = await admin.describe_segments(topic)
        assert [each.topic_partition for each in whole] == [TopicPartition(topic, 0), second]
        start = {second: whole[1].segments[1].base_offset}
        [rest] = await admin.describe_segments(second, from_offsets=start, max_segments=1)
        assert rest.segments == whole[1].segments[1:2]


def test_alter_sets_and_unsets_all_keys_or_none(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 1, {"segment.bytes": "99999"})
    changes = ("--set", "retention.ms=1000", "--set", "max.message.bytes=500", "--unset", "segment.bytes")
    assert cli.ok("topics", "alter", "t", *changes).startswith("t overrides ")
    assert broker.describe_topic("t").config == {"retention.ms": "1000", "max.message.bytes": "500"}
    answer = cli.json("topics", "alter", "t", "--unset", "retention.ms", "--unset", "max.message.bytes")
    assert answer == {"name": "t", "config": {}}
    assert "no.such" in cli.refused("topics", "alter", "t", "--set", "retention.ms=1000", "--set", "no.such=1")
    assert "nothing to change" in cli.refused("topics", "alter", "t", code=2)
    assert "a is both set and unset" in cli.refused("topics", "alter", "t", "--set", "a=1", "--unset", "a", code=2)
    assert "'a' is not KEY=VALUE" in cli.refused("topics", "alter", "t", "--set", "a", code=2)
    assert broker.describe_topic("t").config == {}


def test_add_partitions_only_adds(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    assert cli.ok("topics", "add-partitions", "t", "5") == "t has 5 partitions\n"
    assert len(broker.describe_topic("t").partitions) == 5
    assert "INVALID_PARTITIONS" in cli.refused("topics", "add-partitions", "t", "4")


def test_trim_deletes_the_oldest_records(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    for partition, count in ((0, 5), (1, 2)):
        broker.append("t", [(1_700_000_000_000 + hour, None, b"v", ()) for hour in range(count)], partition=partition)
    result = cli.call("topics", "trim", "t", "--before", "2", stdin="n\n")
    assert result.exit_code == 1
    assert "Delete the oldest 4 records of t?" in result.stderr
    assert [part.log_start_offset for part in broker.describe_topic("t").partitions] == [0, 0]
    by_time = cli.json("topics", "trim", "t", "--before-time", str(1_700_000_000_001), "--yes")
    assert [part["log_start_offset"] for part in by_time] == [1, 1]
    answer = cli.json("topics", "trim", "t", "--before", "3", "--partition", "0", "--yes")
    assert answer == [{"topic": "t", "partition": 0, "log_start_offset": 3}]
    rows = [line.split() for line in cli.ok("topics", "trim", "t", "--before", "latest", "--yes").splitlines()]
    assert ["t", "0", "3", "5"] in rows
    assert ["t", "1", "1", "2"] in rows


def test_trim_refuses_what_is_not_there(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    assert "t has no partition 4" in cli.refused("topics", "trim", "t", "--before", "0", "--partition", "4", "--yes")
    assert "OFFSET_OUT_OF_RANGE" in cli.refused("topics", "trim", "t", "--before", "9", "--yes")
    assert "Missing option '-o' / '--offset'" in cli.refused("topics", "trim", "t", "--yes", code=2)
    both = cli.refused("topics", "trim", "t", "--yes", "--before", "1", "--before-time", "now", code=2)
    assert "--offset and --before-time exclude each other" in both
