"""`triolog offsets`: lookups by time."""

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
    found = cli.json("offsets", "t", "u", "--at", "2013-07-04T00:00:30", "--timezone", "America/New_York")
    nothing = {"offset": None, "timestamp": None, "time": None}
    assert found == [
        {"topic": "t", "partition": 0, **nothing},
        {
            "topic": "t",
            "partition": 1,
            "offset": 1,
            "timestamp": MIDNIGHT_MS + 60_000,
            "time": "2013-07-04T00:01:00.000-04:00",
        },
        {"topic": "u", "partition": 0, **nothing},
    ]


def test_the_table_has_the_time_for_people_and_in_ms(cli: Cli, broker: BlockingBroker) -> None:
    fill(broker)
    lines = cli.ok("offsets", "t", "--at", str(MIDNIGHT_MS), "--timezone", "America/New_York").splitlines()
    assert lines[0] == "first records at or after 2013-07-04T00:00:00.000-04:00"
    rows = [line.split() for line in lines]
    assert ["t", "0", "none", "-", "-"] in rows
    assert ["t", "1", "0", "2013-07-04T00:00:00.000-04:00", str(MIDNIGHT_MS)] in rows


def test_special_times_have_names(cli: Cli, broker: BlockingBroker) -> None:
    fill(broker)

    def offset(at: str) -> int:
        return int(cli.json("offsets", "t", "--at", at)[1]["offset"])

    assert [offset(at) for at in ("earliest", "latest", "LATEST", "max")] == [0, 3, 3, 2]
    assert cli.json("offsets", "t")[1]["offset"] == 3
    assert cli.ok("offsets", "t", "--at", "max").startswith("max\n")


def test_what_is_no_time_is_a_usage_error(cli: Cli) -> None:
    assert "'noon' is no time; write 10m" in cli.refused("offsets", "t", "--at", "noon", code=2)
    assert "there is no time zone 'Mars'" in cli.refused("offsets", "t", "--timezone", "Mars", code=2)


def test_no_such_topic_fails(cli: Cli, broker: BlockingBroker) -> None:
    fill(broker)
    assert "there is no topic 'nope'" in cli.refused("offsets", "t", "nope")
