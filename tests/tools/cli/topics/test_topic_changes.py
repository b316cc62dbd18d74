from __future__ import annotations

from triolog.server.embedded import BlockingBroker

from ..conftest import Cli


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
