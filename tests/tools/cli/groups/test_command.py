from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import triolog
from confluent_kafka import AcknowledgeType, Consumer, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

from ..conftest import Cli


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


def test_groups_are_listed_described_with_their_lag_and_forgotten(cli: Cli, ten: None) -> None:
    assert cli.ok("groups", "list") == f"{cli.address} has no groups. `triolog consume TOPIC --group NAME` creates one\n"
    values(cli, "--group", "g", "--max-records", "4")
    values(cli, "--group", "a")
    nobody = {"member_id": None, "client_id": None, "client_host": None}
    offset = {"topic": "t", "partition": 0, "offset": 4, "high_watermark": 10, "lag": 6, "metadata": None, **nobody}
    empty = {"state": "Empty", "type": "classic", "protocol": None, "member_count": 0}
    assert cli.json("groups", "list") == [{"group": "a", **empty}, {"group": "g", **empty}]
    rows = [line.split() for line in cli.ok("groups", "list").splitlines() if line.strip()]
    assert rows[-2:] == [["a", "Empty", "classic", "0"], ["g", "Empty", "classic", "0"]]
    assert cli.json("groups", "describe", "g") == {"group": "g", **empty, "offsets": [offset]}
    lines = cli.ok("groups", "describe", "g").splitlines()
    assert lines[0] == "group g: Empty, classic, 0 members"
    assert ["t", "0", "4", "10", "6"] in [line.split() for line in lines]
    assert cli.call("groups", "delete", "g", stdin="n\n").exit_code == 1
    assert cli.json("groups", "delete", "g", "--yes") == {"group": "g", "deleted": True, "offsets": 1}
    assert [each["group"] for each in cli.json("groups", "list")] == ["a"]
    assert "GROUP_ID_NOT_FOUND" in cli.refused("groups", "delete", "g", "--yes")


def reset(cli: Cli, *arguments: str) -> list[tuple[int | None, int, int]]:
    """Where each partition is, where it goes to, and the lag that it has then."""
    told = cli.json("groups", "reset", "g", *arguments)
    assert told["executed"] is ("--execute" in arguments)
    return [(entry["current"], entry["offset"], entry["lag"]) for entry in told["offsets"]]


def test_reset_shows_what_it_would_do_and_does_it_when_told(cli: Cli, ten: None) -> None:
    assert reset(cli, "t", "--to", "6") == [(None, 6, 4)]
    assert cli.json("groups", "list") == []
    shown = cli.ok("groups", "reset", "g", "t", "--to", "6")
    assert ["t", "0", "-", "6", "10", "4"] in [line.split() for line in shown.splitlines()]
    assert shown.endswith("nothing was changed. --execute resets the offsets\n")
    assert reset(cli, "t", "--to", "6", "--execute") == [(None, 6, 4)]
    assert values(cli, "--group", "g") == ["6", "7", "8", "9"]
    assert reset(cli, "t", "--to", "earliest", "--partition", "0", "--execute") == [(10, 0, 10)]
    assert len(values(cli, "--group", "g")) == 10


def test_reset_goes_to_a_time_shifts_and_stays_within_the_log(cli: Cli, broker: BlockingBroker, ten: None) -> None:
    assert reset(cli, "t", "--to-time", "1970-01-02T00:00Z", "--execute") == [(None, 0, 10)]
    assert reset(cli, "t", "--shift", "7", "--execute") == [(0, 7, 3)]
    assert reset(cli, "t", "--shift", "-2") == [(7, 5, 5)]
    assert reset(cli, "t", "--shift", "100") == [(7, 10, 0)]
    broker.delete_records("t", 4)
    assert reset(cli, "t", "--shift", "-100") == [(7, 4, 6)]
    assert reset(cli, "t", "--to", "1000000") == [(7, 10, 0)]
    assert reset(cli, "t", "--to", "latest") == [(7, 10, 0)]
    broker.create_topic("u", 2)
    reset(cli, "u", "--to", "latest", "--partition", "1", "--execute")
    assert reset(cli, "--all-topics", "--to", "earliest") == [(7, 4, 6), (0, 0, 0)]


@pytest.fixture
def kafka_cli() -> Iterator[Cli]:
    """A broker that speaks Kafka's protocol too, with ten records in topic t of two partitions."""
    with triolog.blocking.open(kafka=Address("127.0.0.1", 0), native="127.0.0.1:0") as broker:
        broker.create_topic("t", 2)
        broker.append("t", [b"%d" % number for number in range(10)])
        yield Cli(broker)


@contextmanager
def member(cli: Cli) -> Iterator[None]:
    """An unmodified Kafka client that reads topic t as group g; it has its partitions."""
    settings = {"group.id": "g", "client.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": str(cli.broker.kafka), **settings})
    try:
        consumer.subscribe(["t"])
        deadline = time.monotonic() + 60
        while (message := consumer.poll(0.1)) is None or message.offset() < 4:
            assert time.monotonic() < deadline
        consumer.commit(message, asynchronous=False)
        yield
    finally:
        consumer.close()


def test_members_and_what_they_read_are_shown(kafka_cli: Cli) -> None:
    cli = kafka_cli
    with member(cli):
        told = cli.json("groups", "members", "g")
        assert (told["state"], told["type"], told["member_count"]) == ("Stable", "classic", 1)
        (entry,) = told["members"]
        assert (entry["client_id"], entry["group_instance_id"]) == ("reader", None)
        assert "127.0.0.1" in entry["client_host"]
        assert entry["assignment"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
        assert "t(0,1)" in cli.ok("groups", "members", "g")
        offsets = cli.json("groups", "describe", "g")["offsets"]
        found = [(each["partition"], each["offset"], each["lag"], each["client_id"]) for each in offsets]
        assert found == [(0, 5, 5, "reader"), (1, None, None, "reader")]
        assert entry["member_id"] in cli.ok("groups", "describe", "g")
        assert ["g", "Stable", "classic", "1"] in [line.split() for line in cli.ok("groups", "list").splitlines()]
        assert "group 'g' is Stable and has 1 members" in cli.refused("groups", "reset", "g", "t", "--to", "0")
        assert "NON_EMPTY_GROUP" in cli.refused("groups", "delete", "g", "--yes")
    told = cli.json("groups", "members", "g")
    assert (told["state"], told["members"]) == ("Empty", [])
    assert reset(cli, "t", "--to", "0", "--execute") == [(5, 0, 10), (None, 0, 0)]


def test_what_is_wrong_is_said(cli: Cli, ten: None) -> None:
    refusals = {
        "describe g": "there is no group 'g'. `triolog groups list` lists the groups",
        "members g": "there is no group 'g'. `triolog groups list` lists the groups",
        "reset g t --shift 1": "group 'g' has no offset for t-0",
        "reset g --all-topics --to 1": "group 'g' has no offsets",
        "reset g gone --to 1": "UNKNOWN_TOPIC_OR_PARTITION",
        "reset g t --to 1 --partition 7": "t has no partition 7",
    }
    for arguments, words in refusals.items():
        assert words in cli.refused("groups", *arguments.split())
    for where in ("", "--to 1 --shift 1"):
        said = cli.refused("groups", "reset", "g", "t", *where.split(), code=2)
        assert "Give either --offset POSITION or --shift N" in said
    for topics in ("", "t --all-topics"):
        assert "Give TOPIC" in cli.refused("groups", "reset", "g", *topics.split(), "--to", "1", code=2)


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


def test_only_records_older_than_the_retention_are_warned_of_and_once(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("week", 1, {"retention.ms": "604800000"})
    result = cli.call("produce", "week", "--format", "json", "--timezone", "UTC", stdin=OLD * 3)
    assert result.exit_code == 0
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("Warning: standard input, line 1: records of 2013-07-04T00:00:00.000")
    assert "older than topic week keeps any (retention.ms=604800000, 7 days)" in warning
    assert "`triolog topics alter week --config retention.ms=-1`" in warning
    assert "message.timestamp.type=LogAppendTime" in warning
    keyed = OLD.replace("{", '{"key": "k", ')
    for number, (key, value) in enumerate(
        (("retention.ms", "-1"), ("cleanup.policy", "compact"), ("message.timestamp.type", "LogAppendTime"))
    ):
        broker.create_topic(f"kept-{number}", 1, {"retention.ms": "604800000", key: value})
        assert "produced 1 record" in cli.ok("produce", f"kept-{number}", "--format", "json", stdin=keyed)


@contextmanager
def sharer(cli: Cli) -> Iterator[ShareConsumer]:
    """An unmodified share consumer of librdkafka, the member of group s; it has been given the records of topic t."""
    servers = {"bootstrap.servers": str(cli.broker.kafka)}
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "s", incremental_configs=[earliest])
    admin = AdminClient(servers)
    admin.incremental_alter_configs([group])[group].result(60)
    settings = {**servers, "group.id": "s", "client.id": "sharer", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(settings)
    try:
        consumer.subscribe(["t"])
        deadline, given = time.monotonic() + 60, list[Message]()
        while len(given) < 10:
            given += consumer.poll(0.1)
            assert time.monotonic() < deadline
        yield consumer
    finally:
        consumer.close()


def test_of_a_share_group_it_is_shown_what_is_in_flight_and_how_often_it_was_given(kafka_cli: Cli) -> None:
    cli = kafka_cli
    place = {"topic": "t", "partition": 0}
    with sharer(cli) as consumer:
        told = cli.json("groups", "describe", "s")
        (member,) = told["members"]
        assert (told["state"], told["type"], told["protocol"], told["member_count"]) == ("Stable", "share", "simple", 1)
        assert (member["client_id"], member["assignment"]) == ("sharer", [place, {**place, "partition": 1}])
        begun, idle = told["partitions"]
        offsets = {"start_offset": 0, "end_offset": 10, "lag": 10, "in_flight": 10, "deliveries": {"1": 10}}
        assert begun == {**place, **offsets, "members": [member["member_id"]]}
        assert (idle["partition"], idle["end_offset"], idle["in_flight"], idle["deliveries"]) == (1, 0, 0, {})
        lines = [line.split() for line in cli.ok("groups", "describe", "s").splitlines()]
        assert ["t", "0", "0", "10", "10", "10", "10", "x", "1", "1"] in lines
        assert any(line[0] == member["member_id"] and line[-1] == "t(0,1)" for line in lines if line)
        assert ["s", "Stable", "share", "1"] in [line.split() for line in cli.ok("groups", "list").splitlines()]
        for offset in (0, 1, 5):
            consumer.acknowledge_offset("t", 0, offset, AcknowledgeType.ACCEPT)
        assert set(consumer.commit_sync(60).values()) == {None}
        begun = cli.json("groups", "describe", "s")["partitions"][0]
        assert (begun["start_offset"], begun["lag"], begun["in_flight"]) == (2, 7, 7)
    told = cli.json("groups", "describe", "s")
    assert (told["state"], told["members"], told["partitions"][0]["in_flight"]) == ("Empty", [], 0)
    reset = ("groups", "reset", "s")
    shifted = cli.json(*reset, "t", "--partition", "0", "--shift", "3")["offsets"]
    assert [(each["current"], each["offset"], each["lag"]) for each in shifted] == [(2, 5, 5)]
    assert "group 's' has no offset for t-1" in cli.refused(*reset, "--all-topics", "--shift", "3")
    moved = cli.json(*reset, "--all-topics", "--to", "earliest", "--execute")["offsets"]
    assert [(each["partition"], each["offset"]) for each in moved] == [(0, 0), (1, 0)]
    with sharer(cli):  # is given all ten, those too that were accepted
        assert "has 1 members. Stop them" in cli.refused(*reset, "t", "--to", "0")
    assert cli.call("groups", "delete", "s", stdin="n\n").exit_code == 1
    assert cli.json("groups", "delete", "s", "--yes") == {"group": "s", "deleted": True, "offsets": 2}
    assert cli.json("groups", "list") == []
