from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Iterable
from datetime import UTC
from typing import Any, Final

import pytest
import trio
import triolog
from google.protobuf import struct_pb2
from trio.testing import MockClock
from triolog.protocol.errors import InvalidRequestError
from triolog.protocol.native.messages import CommitOffsetsRequest, PlainRecord
from triolog.protocol.types import Record, TopicPartition
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.tools.cli.consume import COMMIT_INTERVAL_S, LAST_COMMIT_S, Printer, Selection, _print_all
from triolog.tools.cli.terminal.record_formats import formatter
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.procedures.topics import EARLIEST

from tests.support.native_server import NativeServer
from tests.support.registry_client import RegistryClient, record
from tests.tools.cli.conftest import Cli

START_MS = 1_372_910_400_000


def fill(broker: BlockingBroker, timestamps: list[int], partitions: int = 1) -> None:
    """Records whose values are their timestamps, one a batch, dealt out to the partitions in turn."""
    broker.create_topic("t", partitions)
    for number, timestamp in enumerate(timestamps):
        broker.append("t", [(timestamp, None, b"%d" % timestamp, ())], partition=number % partitions)


def values(cli: Cli, *arguments: str) -> list[int]:
    return sorted(int(line) for line in cli.ok("consume", "t", "--format", "raw", *arguments).splitlines())


def test_json_lines_have_all_of_a_record(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    broker.append("t", [(START_MS, b"k", b"v", (("h", b"x"),)), (START_MS + 1, None, b"\xff\x00", ())])
    common = {"topic": "t", "partition": 0}
    assert cli.lines("consume", "t") == [
        {**common, "offset": 0, "timestamp": START_MS, "key": "k", "value": "v", "headers": [["h", "x"]]},
        {**common, "offset": 1, "timestamp": START_MS + 1, "key": None, "value": {"base64": "/wA="}, "headers": []},
    ]
    assert cli.lines("consume", "t") == cli.lines("consume", "t", "--json")


def test_raw_is_the_bytes_of_values_and_the_table_escapes_control_characters(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    broker.append("t", [b"a", b"\xff\x1b[31m", (START_MS, b"k", None, ())])
    assert cli.call("consume", "t", "--format", "raw").stdout_bytes == b"a\n\xff\x1b[31m\n\n"
    broker.append("t", [(START_MS, b"k\n", "\x1b[31mréd\x9b".encode(), (("h\r", b"\xff"),))])
    head, row = cli.ok("consume", "t", "--offset", "3", "--format", "table", "--timezone", "UTC").splitlines()
    assert head.split() == ["part", "offset", "time", "key", "value"]
    expected = ["0", "3", "2013-07-04T04:00:00.000Z", r"k\n", r"\x1b[31mréd\x9b", r"{h\r:", "0xff}"]
    assert row.split() == expected


def test_a_range_of_times_is_a_range_of_offsets(cli: Cli, broker: BlockingBroker) -> None:
    times = [START_MS + number * 60_000 for number in range(10)]
    fill(broker, times, partitions=2)
    zone = ("--timezone", "America/New_York")
    assert values(cli, "-o", "2013-07-04T00:03", *zone) == times[3:]
    assert values(cli, "--to", "2013-07-04T00:03", *zone) == times[:3]
    assert values(cli, "--from", "2013-07-04T00:03", "--to", "2013-07-04T00:07", *zone) == times[3:7]
    assert values(cli, "--from", "2013-07-05", *zone) == []
    assert values(cli, "--to", "2013-07-05", *zone) == times
    now_ms = time.time_ns() // 1_000_000
    recent = [now_ms - 7_200_000, now_ms - 60_000, now_ms]
    for timestamp in recent:
        broker.append("t", [(timestamp, None, b"%d" % timestamp, ())])
    assert values(cli, "--from", "1h") == recent[1:], "a duration goes back from now"


def test_late_records_are_in_the_range_only_when_it_is_exact(cli: Cli, broker: BlockingBroker) -> None:
    a, b, c, d = (START_MS + number for number in range(4))
    fill(broker, [a, b, a, d, b, c, a])
    span = ("--from", str(b), "--to", str(d))
    assert values(cli, *span) == sorted([b, a])
    assert values(cli, *span, "--exact") == sorted([b, b, c])
    assert values(cli, "--to", str(b), "--exact") == [a, a, a]
    assert values(cli, "--from", str(b), "--exact") == sorted([b, d, b, c])
    assert values(cli, *span, "--exact", "--max-records", "2") == [b, b]


def test_an_offset_is_where_it_starts(cli: Cli, broker: BlockingBroker) -> None:
    times = [START_MS + number for number in range(5)]
    fill(broker, times)
    broker.append("t", [(START_MS + number, None, b"%d" % (START_MS + number), ()) for number in (5, 6, 7)])
    times += [START_MS + number for number in (5, 6, 7)]
    assert values(cli, "--offset", "3") == times[3:]
    assert values(cli, "--offset", "earliest", "--max-records", "6") == times[:6], "a batch is cut"
    assert values(cli, "--from-beginning", "-n", "2") == times[:2]
    assert values(cli, "--offset", "latest") == []
    assert "OFFSET_OUT_OF_RANGE" in cli.refused("consume", "t", "--offset", "9", "--follow")


def test_partitions_can_be_chosen(cli: Cli, broker: BlockingBroker) -> None:
    times = [START_MS + number for number in range(6)]
    fill(broker, times, partitions=3)
    assert values(cli, "--partition", "1") == times[1::3]
    assert values(cli, "--partition", "0", "--partition", "2") == sorted(times[0::3] + times[2::3])
    assert "has partitions 0 to 2, not 7" in cli.refused("consume", "t", "--partition", "7")


def test_a_wrong_command_line_is_a_usage_error_and_no_such_topic_fails_before_anything_is_printed(cli: Cli) -> None:
    for arguments, words in (
        ("--from noon", "'noon' is not a position"),
        ("--offset lates", "'lates' is not a position. Did you mean latest?"),
        ("--offset 1 --from 1h", "--offset and --from exclude each other"),
        ("--exact", "--exact selects by timestamp"),
        ("--exact --offset 10m --until 42", "--exact selects by timestamp"),
        ("--follow --to now", "--until ends the reading and --follow does not"),
        ("--max-records 0", "0 is not in the range"),
    ):
        assert words in cli.refused("consume", "t", *arguments.split(), code=2)
    result = cli.call("consume", "t", "--format", "table")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no topic 't'" in result.stderr


def test_a_reader_that_has_enough_is_no_failure(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    for _ in range(4):
        broker.append("t", [b"x" * 100_000] * 5)
    with cli.process("consume", "t", "--format", "raw") as process:
        assert process.stdout.read(10) == b"x" * 10
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


SOME: Final = Selection(partitions=(), start=EARLIEST, until=None, is_exact=False, max_records=None)


class InterruptedPrinter(Printer):
    """Ctrl-C comes while its last batch is printed."""

    def __init__(self, batches: int) -> None:
        super().__init__(formatter("raw", UTC), SOME)
        self._batches_left = batches

    def print(self, partition: TopicPartition, records: Iterable[Record]) -> bool:
        self._batches_left -= 1
        if not self._batches_left:
            raise KeyboardInterrupt
        return super().print(partition, records)


@pytest.fixture
def followed(nursery: trio.Nursery) -> NativeServer:
    """A server whose topic has three batches of two records. A test asks for the clock itself: else none jumps."""
    server = NativeServer(nursery, t=1)
    for _ in range(3):
        server.logs["t"][0].append((PlainRecord(START_MS, None, b"a"), PlainRecord(START_MS, None, b"b")))
    return server


async def follow(server: NativeServer, printer: Printer, seconds: float = math.inf) -> None:
    async with connect(open_stream=server.open_stream) as client, open_consumer(client, group="g") as consumer:
        await consumer.assign("t")
        with trio.move_on_after(seconds):
            await _print_all(consumer, printer, commits=True)


async def test_a_follower_commits_printed_records_while_none_come(followed: NativeServer, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, followed, Printer(formatter("raw", UTC), SOME))
        await trio.sleep(COMMIT_INTERVAL_S + 1)
        assert followed.groups == {"g": {TopicPartition("t", 0): (6, None)}}
        nursery.cancel_scope.cancel()


async def test_a_follower_that_is_stopped_commits_what_it_printed(followed: NativeServer, autojump_clock: MockClock) -> None:
    await follow(followed, Printer(formatter("raw", UTC), SOME), seconds=COMMIT_INTERVAL_S / 2)
    assert followed.groups == {"g": {TopicPartition("t", 0): (6, None)}}


@pytest.mark.parametrize(("batches", "groups"), [(3, {"g": {TopicPartition("t", 0): (4, None)}}), (1, {})])
async def test_what_was_not_printed_to_its_end_is_not_committed(
    followed: NativeServer, autojump_clock: MockClock, batches: int, groups: Any
) -> None:
    with pytest.raises(KeyboardInterrupt):
        await follow(followed, InterruptedPrinter(batches))
    assert followed.groups == groups


@pytest.mark.parametrize("fault", ["drop", trio.Event(), InvalidRequestError("no")])
async def test_a_last_commit_that_fails_does_not_block(followed: NativeServer, autojump_clock: MockClock, fault: Any) -> None:
    followed.faults.append(lambda one: fault if isinstance(one, CommitOffsetsRequest) else None)
    began = trio.current_time()
    with pytest.raises(KeyboardInterrupt):
        await follow(followed, InterruptedPrinter(2))
    assert trio.current_time() - began <= LAST_COMMIT_S + 0.1


def test_a_follower_prints_what_comes_and_ends_quietly_with_ctrl_c_and_a_commit(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    broker.append("t", [b"a", b"b"])
    with cli.process("consume", "t", "--follow", "--format", "raw", "--offset", "earliest", "--group", "g") as process:
        assert process.stdout.readline() + process.stdout.readline() == b"a\nb\n"
        broker.append("t", [b"c"])
        assert process.stdout.readline() == b"c\n"
        process.send_signal(signal.SIGINT)  # perhaps before it has noticed that this line was written
        assert (process.communicate(), process.returncode) == ((b"", b""), 130)
    (kept,) = cli.json("groups", "describe", "g")["offsets"]
    assert kept["offset"] in (2, 3)


MIDNIGHT_MS = 1_372_910_400_000


def fill_both(broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    broker.create_topic("u")
    for minute in range(3):
        broker.append("t", [(MIDNIGHT_MS + minute * 60_000, None, b"v", ())], partition=1)


def test_a_time_has_an_offset_in_each_partition(cli: Cli, broker: BlockingBroker) -> None:
    fill_both(broker)
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
    fill_both(broker)

    def offset(at: str) -> int:
        return int(cli.json("offsets", "t", "--at", at)[1]["offset"])

    assert [offset(at) for at in ("earliest", "latest", "LATEST", "max")] == [0, 3, 3, 2]
    assert cli.json("offsets", "t")[1]["offset"] == 3
    assert cli.ok("offsets", "t", "--at", "max").startswith("max\n")
    assert "'noon' is not a position. Write start" in cli.refused("offsets", "t", "--at", "noon", code=2)
    assert "there is no time zone 'Mars'" in cli.refused("offsets", "t", "--timezone", "Mars", code=2)
    assert "there is no topic 'nope'" in cli.refused("offsets", "t", "nope")


pytest.importorskip("avro", reason="the extra registry is not installed")

ORDER: Final = record(
    "shop.Order", "table: int", "drink: Drink", {"name": "raw", "type": ["null", "bytes", {"type": "map", "values": "bytes"}]}
)
DRINK: Final = record("shop.Drink", "name: string")
PROTO: Final = """syntax = "proto3";
import "google/protobuf/struct.proto";
import "drink.proto";
message Other {}
message Order { message Line { Drink drink = 1; google.protobuf.Value more = 2; } }
"""


def head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4)


@pytest.fixture
def registry(broker: BlockingBroker) -> RegistryClient:
    broker.create_topic("t")
    return RegistryClient(broker.schema_registry_url)


def consumed(cli: Cli, registry: RegistryClient, *arguments: str) -> list[tuple[Any, Any]]:
    lines = cli.lines("consume", "t", "--schema-registry", registry.url, *arguments)
    return [(each["key"], each["value"]) for each in lines]


def test_values_of_avro_come_as_json(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    registry.register("drink", DRINK)
    reference = {"name": "shop.Drink", "subject": "drink", "version": 1}
    order, text = registry.register("t-value", ORDER, references=[reference]), registry.register("t-key", '"string"')
    values = [b"\x0e\x02x\x00", b"\x0e\x02x\x02\x04\xff\xfe", b"\x0e\x02x\x04\x02\x02k\x02b\x00"]
    broker.append("t", [(None, head(text) + b"\x02k", head(order) + each, ()) for each in values])
    broker.append("t", [(None, b"plain", b"\1plain", ()), (None, None, None, ())])
    common = {"table": 7, "drink": {"name": "x"}}
    assert consumed(cli, registry) == [
        ("k", {**common, "raw": None}),
        ("k", {**common, "raw": {"base64": "//4="}}),
        ("k", {**common, "raw": {"k": "b"}}),
        ("plain", "\1plain"),
        (None, None),
    ]
    raw = cli.ok("consume", "t", "--schema-registry", registry.url, "--format", "raw", "--max", "1")
    assert json.loads(raw) == {**common, "raw": None}
    assert '"table":7' in cli.ok("consume", "t", "--schema-registry", registry.url, "--format", "table", "--max", "1")


def test_values_of_json_schema_and_protobuf_come_as_json(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    registry.register("drink", 'syntax = "proto3"; message Drink { string long_name = 1; }', schemaType="PROTOBUF")
    references = [{"name": "drink.proto", "subject": "drink", "version": 1}]
    proto = registry.register("line", PROTO, schemaType="PROTOBUF", references=references)
    plain = registry.register("json", '{"type":"object"}', schemaType="JSON")
    more = struct_pb2.Value(number_value=7).SerializeToString()
    message = b"\x0a\x03\x0a\x01x" + b"\x12" + bytes([len(more)]) + more
    broker.append("t", [(None, None, head(proto) + b"\x04\x02\x00" + message, ()), (None, None, head(proto) + b"\0", ())])
    broker.append("t", [(None, None, head(plain) + b'{"a": [1]}', ())])
    assert [value for _, value in consumed(cli, registry)] == [{"drink": {"long_name": "x"}, "more": 7.0}, {}, {"a": [1]}]


@pytest.mark.parametrize("value", [b"", b"\x0e", b"\x0e\x80", b"\x0e\x01", b"\x0e\x02x\x7f"])
def test_a_value_that_does_not_fit_its_schema_ends_with_the_reason(
    cli: Cli, broker: BlockingBroker, registry: RegistryClient, value: bytes
) -> None:
    registry.register("drink", DRINK)
    reference = {"name": "shop.Drink", "subject": "drink", "version": 1}
    broker.append("t", [(None, None, head(registry.register("t-value", ORDER, references=[reference])) + value, ())])
    assert "cannot be decoded by schema 2" in cli.refused("consume", "t", "--schema-registry", registry.url)


def test_unknown_schema_or_missing_registry_is_reported(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    broker.append("t", [(None, None, head(7) + b"x", ())])
    assert "Schema 7 not found" in cli.refused("consume", "t", "--schema-registry", registry.url)
    missing = cli.refused("consume", "t", "--schema-registry", "http://127.0.0.1:1", code=3)
    assert "no response from the schema registry at 127.0.0.1:1" in missing
    assert "expected a URL" in cli.refused("consume", "t", "--schema-registry", "127.0.0.1:8081", code=2)


def test_a_user_of_the_url_logs_in(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    """At a registry with users, which another broker has."""
    with triolog.blocking.open(MEMORY, kafka="127.0.0.1:0", users={"bob": "x:y/z"}) as other:
        url = other.schema_registry_url
        schema_id = RegistryClient(url, "bob", "x:y/z").register("s", '"int"')
        broker.append("t", [(None, None, head(schema_id) + b"\x0e", ())])
        assert "Unauthorized" in cli.refused("consume", "t", "--schema-registry", url)
        lines = cli.lines("consume", "t", "--schema-registry", url.replace("://", "://bob:x%3Ay%2Fz@"))
        assert [each["value"] for each in lines] == [7]
