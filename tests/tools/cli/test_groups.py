"""`triolog groups`, and `consume --group`, against a real broker."""

from __future__ import annotations

import pytest
from triolog.server.embedded import BlockingBroker

from .conftest import Cli


@pytest.fixture
def ten(broker: BlockingBroker) -> None:
    """Topic t with ten records."""
    broker.create_topic("t")
    broker.append("t", [b"%d" % number for number in range(10)])


def values(cli: Cli, *arguments: str) -> list[str]:
    return [line["value"] for line in cli.lines("consume", "t", "--format", "json", *arguments)]


def test_consuming_with_a_group_goes_on_where_it_was(cli: Cli, ten: None) -> None:
    assert values(cli, "--group", "g", "--max-records", "4") == ["0", "1", "2", "3"]
    assert values(cli, "--group", "g", "--max-records", "4", "--offset", "earliest") == ["4", "5", "6", "7"]
    assert values(cli, "--group", "g") == ["8", "9"]
    assert values(cli, "--group", "g") == []
    assert values(cli, "--group", "h", "--offset", "7") == ["7", "8", "9"]


def test_show_tells_the_lag(cli: Cli, ten: None) -> None:
    values(cli, "--group", "g", "--max-records", "4")
    assert cli.json("groups", "show", "g") == [
        {"topic": "t", "partition": 0, "offset": 4, "high_watermark": 10, "lag": 6, "metadata": None}
    ]
    rows = [line.split() for line in cli.ok("groups", "show", "g").splitlines()]
    assert ["t", "0", "4", "10", "6"] in rows


def test_groups_are_listed(cli: Cli, ten: None) -> None:
    assert cli.ok("groups", "list") == f"{cli.address} has no groups; `triolog consume TOPIC --group NAME` makes one\n"
    values(cli, "--group", "b")
    values(cli, "--group", "a")
    assert cli.json("groups", "list") == ["a", "b"]
    assert [line.strip() for line in cli.ok("groups", "list").splitlines() if line.strip()][-2:] == ["a", "b"]


def test_reset_moves_a_group_and_makes_one(cli: Cli, ten: None) -> None:
    answer = cli.json("groups", "reset", "g", "t", "--to", "6")
    assert [(entry["offset"], entry["lag"]) for entry in answer] == [(6, 4)]
    assert values(cli, "--group", "g") == ["6", "7", "8", "9"]
    assert "high watermark" in cli.ok("groups", "reset", "g", "t", "--to", "earliest", "--partition", "0")
    assert len(values(cli, "--group", "g")) == 10
    assert cli.json("groups", "reset", "g", "t", "--to-time", "1970-01-02T00:00Z")[0]["offset"] == 0


def test_delete_forgets_a_group(cli: Cli, ten: None) -> None:
    values(cli, "--group", "g")
    assert cli.call("groups", "delete", "g", stdin="n\n").exit_code == 1
    assert cli.json("groups", "delete", "g", "--yes") == {"group": "g", "deleted": True, "offsets": 1}
    assert cli.json("groups", "list") == []
    assert "GROUP_ID_NOT_FOUND" in cli.refused("groups", "delete", "g", "--yes")


def test_what_is_wrong_is_said(cli: Cli, ten: None) -> None:
    assert "there is no group 'g'; `triolog groups list` names them" in cli.refused("groups", "show", "g")
    one_of = "--to N or --to-time TIME says where to; give one of them"
    assert one_of in cli.refused("groups", "reset", "g", "t", code=2)
    assert one_of in cli.refused("groups", "reset", "g", "t", "--to", "1", "--to-time", "now", code=2)
    assert "t has no partition 7" in cli.refused("groups", "reset", "g", "t", "--to", "1", "--partition", "7")


def test_a_transaction_is_seen_whole_or_not_at_all(cli: Cli, ten: None) -> None:
    assert "produced 2 records" in cli.ok("produce", "t", "--transactional-id", "x", stdin="a\nb\n")
    committed = ("--isolation", "read_committed", "--offset", "10")
    assert values(cli, *committed) == ["a", "b"]
    bad = '{"value": "c"}\nnot json\n'
    refused = cli.refused("produce", "t", "--transactional-id", "x", "--format", "json", stdin=bad)
    assert "line 2" in refused
    assert refused.endswith("leaves such rows out (nothing was committed)")
    assert values(cli, *committed) == ["a", "b"]
    assert values(cli, "--offset", "10") == ["a", "b", "c"]


def test_idempotence_needs_all_acks(cli: Cli, ten: None) -> None:
    assert "need --acks all" in cli.refused("produce", "t", "--acks", "1", "--idempotent", stdin="", code=2)
    assert "need --acks all" in cli.refused("produce", "t", "--acks", "0", "--transactional-id", "x", stdin="", code=2)
    refused = cli.refused("produce", "t", "--no-idempotent", "--transactional-id", "x", stdin="", code=2)
    assert "needs an idempotent producer" in refused
    assert "produced 1 record" in cli.ok("produce", "t", "--acks", "1", stdin="a\n")
    assert "produced 1 record" in cli.ok("produce", "t", "--no-idempotent", stdin="a\n")


OLD = '{"value": "a", "timestamp": "2013-07-04T00:00Z"}\n'


def test_records_older_than_the_retention_are_warned_of_once_with_the_way_out(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("week", 1, {"retention.ms": "604800000"})
    result = cli.call("produce", "week", "--format", "json", "--timezone", "UTC", stdin=OLD * 3)
    assert result.exit_code == 0
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("Warning: standard input, line 1: records of 2013-07-04T00:00:00.000")
    assert "older than topic week keeps any (retention.ms=604800000, 7 days)" in warning
    assert "`triolog topics alter week --set retention.ms=-1`" in warning
    assert "message.timestamp.type=LogAppendTime" in warning


@pytest.mark.parametrize(
    "config", [{"retention.ms": "-1"}, {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}]
)
def test_records_that_stay_are_not_warned_of(cli: Cli, broker: BlockingBroker, config: dict[str, str]) -> None:
    broker.create_topic("kept", 1, {"retention.ms": "604800000", **config})
    keyed = OLD.replace("{", '{"key": "k", ')
    assert "produced 1 record" in cli.ok("produce", "kept", "--format", "json", stdin=keyed)
