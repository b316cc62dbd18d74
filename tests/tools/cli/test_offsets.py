from __future__ import annotations

from triolog.server.embedded import BlockingBroker

from .conftest import Cli

MIDNIGHT_MS = 1_372_910_400_000


def fill(broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    broker.create_topic("u")
    for minute in range(3):
        broker.append("t", [(MIDNIGHT_MS + minute * 60_000, None, b"v", ())], partition=1)


def test_a_time_has_an_offset_in_each_partition(cli: Cli, broker: BlockingBroker) -> None:
    fill(broker)
    zone = ("--timezone", "America/New_York")
    found = cli.json("offsets", "t", "u", "--at", "2013-07-04T00:00:30", *zone)
    nothing = {"offset": None, "timestamp": None, "time": None}
    there = {"offset": 1, "timestamp": MIDNIGHT_MS + 60_000, "time": "2013-07-04T00:01:00.000-04:00"}
    assert found == [
        {"topic": "t", "partition": 0, **nothing},
        {"topic": "t", "partition": 1, **there},
        {"topic": "u", "partition": 0, **nothing},
    ]
    lines = cli.ok("offsets", "t", "--at", str(MIDNIGHT_MS), *zone).splitlines()
    assert lines[0] == "first records at or after 2013-07-04T00:00:00.000-04:00"
    rows = [line.split() for line in lines]
    assert ["t", "0", "none", "-", "-"] in rows
    assert ["t", "1", "0", "2013-07-04T00:00:00.000-04:00", str(MIDNIGHT_MS)] in rows


def test_special_times_have_names_and_what_is_no_time_or_topic_is_refused(cli: Cli, broker: BlockingBroker) -> None:
    fill(broker)

    def offset(at: str) -> int:
        return int(cli.json("offsets", "t", "--at", at)[1]["offset"])

    assert [offset(at) for at in ("earliest", "latest", "LATEST", "max")] == [0, 3, 3, 2]
    assert cli.json("offsets", "t")[1]["offset"] == 3
    assert cli.ok("offsets", "t", "--at", "max").startswith("max\n")
    assert "'noon' is not a position. Write start" in cli.refused("offsets", "t", "--at", "noon", code=2)
    assert "there is no time zone 'Mars'" in cli.refused("offsets", "t", "--timezone", "Mars", code=2)
    assert "there is no topic 'nope'" in cli.refused("offsets", "t", "nope")
