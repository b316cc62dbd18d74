from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from triolog.protocol.errors import RequestError
from triolog.protocol.native.messages import EndTransactionRequest
from triolog.protocol.types import Record
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.main import main

from tests.support.native_server_thread import serving
from tests.tools.cli.conftest import Cli
from tests.tools.client.doors import faults_on

MIDNIGHT_MS = 1_372_910_400_000


def stored(broker: BlockingBroker, partition: int = 0) -> list[Record]:
    return broker.fetch("t", 0, partition=partition, max_bytes=50_000_000)


def test_lines_become_values_and_are_counted(cli: Cli, broker: BlockingBroker, tmp_path: Path) -> None:
    broker.create_topic("t")
    said = cli.ok("produce", "t", stdin=b"a\n\n\xff\nlast")
    assert said.startswith("produced 4 records to t in ")
    assert [record.value for record in stored(broker)] == [b"a", b"", b"\xff", b"last"]
    (tmp_path / "f").write_text("one\ntwo\n")
    summary = cli.json("produce", "t", str(tmp_path / "f"), "--partition", "0")
    assert min(summary.pop("elapsed_s"), summary.pop("records_per_s")) > 0
    assert summary.pop("mb_per_s") >= 0
    partitions = [{"partition": 0, "records": 2, "first_offset": 4, "last_offset": 5}]
    assert summary == {"topic": "t", "records": 2, "skipped": 0, "bytes": 6, "partitions": partitions}


def test_rows_and_objects_have_keys_and_timestamps(cli: Cli, broker: BlockingBroker, tmp_path: Path) -> None:
    broker.create_topic("t")
    (tmp_path / "f.csv").write_text('tail,time,note\nN1,2013-07-04T00:00,"a, ""b"""\nN2,2013-07-04T00:01,\n')
    options = ("--format", "csv", "--key", "tail", "--timestamp", "time", "--timezone", "America/New_York")
    cli.ok("produce", "t", str(tmp_path / "f.csv"), *options)
    first, second = stored(broker)
    assert (first.key, first.timestamp) == (b"N1", MIDNIGHT_MS)
    assert json.loads(first.value or b"") == {"tail": "N1", "time": "2013-07-04T00:00", "note": 'a, "b"'}
    assert (second.key, second.timestamp) == (b"N2", MIDNIGHT_MS + 60_000)
    line = f'{{"tail": "N1", "at": {MIDNIGHT_MS // 1000}}}'
    options = ("--format", "json", "--key", "tail", "--timestamp", "at", "--timestamp-unit", "s")
    cli.ok("produce", "t", *options, stdin=line + "\n")
    assert stored(broker)[2] == Record(2, MIDNIGHT_MS, b"N1", line.encode()), "whole objects are values"


def test_what_was_consumed_as_json_is_produced_again_as_it_was(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    headers = (("h", b"\xfe"), ("n", None))
    broker.append("t", [(MIDNIGHT_MS, b"k", b"\xff", headers), (MIDNIGHT_MS + 1, None, None, ())], partition=1)
    copied = cli.ok("consume", "t", "--format", "json")
    assert cli.json("produce", "t", "--format", "json", stdin=copied)["records"] == 2
    records = stored(broker, 1)
    assert [record._replace(offset=0) for record in records[:2]] == [record._replace(offset=0) for record in records[2:]]
    assert records[0].headers == headers


def test_a_bad_row_stops_with_file_and_line_or_is_skipped_and_counted(cli: Cli, broker: BlockingBroker, tmp_path: Path) -> None:
    broker.create_topic("t")
    path = tmp_path / "rows.jsonl"
    path.write_text('{"value":"a"}\nnonsense\n{"value":"b"}\n')
    error = cli.refused("produce", "t", str(path), "--format", "json")
    assert f"{path}, line 2: is not JSON" in error
    assert "--on-error skip leaves such rows out (1 record acknowledged before)" in error
    error = cli.refused("produce", "t", "--format", "csv", stdin='a\n1\n"2\n')
    assert "standard input, line 3: a quote that opens in this row never closes (1 record acknowledged before)" in error
    assert [record.value for record in stored(broker)] == [b"a", b'{"a":"1"}']
    rows = "".join(f'{{"value":"{number}"}}\n[]\n' for number in range(12))
    result = cli.call("produce", "t", "--format", "json", "--on-error", "skip", "--json", stdin=rows)
    assert result.exit_code == 0
    assert {"records": 12, "skipped": 12}.items() <= json.loads(result.stdout).items()
    lines = result.stderr.splitlines()
    assert lines[0] == "skipped standard input, line 2: is [], not a JSON object"
    assert lines[-1] == "more rows are skipped without a word"
    assert len(lines) == 11
    assert "; 12 bad rows skipped" in cli.call("produce", "t", "--format", "json", "--on-error", "skip", stdin=rows).stdout


def test_a_row_for_a_missing_partition_is_bad_and_what_the_server_refuses_fails(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    rows = '{"value":"a","partition":7}\n{"value":"b","partition":0}\n'
    assert "line 1: no partition 7 of t, which has 0 to 0" in cli.refused("produce", "t", "--format", "json", stdin=rows)
    result = cli.call("produce", "t", "--format", "json", "--on-error", "skip", stdin=rows)
    assert (result.exit_code, [record.value for record in stored(broker)]) == (0, [b"b"])
    error = cli.refused("produce", "t", "--partition", "7", "--on-error", "skip", stdin="a\n")
    assert "partition 7 of t, which has 0 to 0" in error
    assert "there is no topic 'nope'. `triolog topics create nope`" in cli.refused("produce", "nope", stdin="a")
    broker.alter_config("t", {"max.message.bytes": "1000"})
    error = cli.refused("produce", "t", stdin="x" * 2000)
    assert "MESSAGE_TOO_LARGE" in error
    assert "(0 records acknowledged before)" in error


def test_every_codec_arrives_and_without_acknowledgements_offsets_are_not_known(cli: Cli, broker: BlockingBroker) -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    for acks in ("all", "1"):
        for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
            broker.create_topic("t")
            cli.ok("produce", "t", "--compression", compression, "--acks", acks, "--linger-ms", "50", stdin=text)
            assert [record.value for record in stored(broker)] == text.encode().splitlines()
            assert (broker.describe_topic("t").partitions[0].size_bytes < 10_000) == (compression != "none")
            broker.delete_topic("t")
    broker.create_topic("t")
    summary = cli.json("produce", "t", "--acks", "0", stdin="a\nb\n")
    part = {"partition": 0, "records": 2, "first_offset": -1, "last_offset": -1}
    assert (summary["records"], summary["partitions"]) == (2, [part])


def test_a_commit_that_fails_leaves_its_outcome_open() -> None:
    with serving(t=1) as thread:
        thread.run(lambda server: faults_on(server, EndTransactionRequest, *[RequestError("no")] * 1000))
        host, port = thread.address()
        command = ["produce", "t", "--transactional-id", "x", "--server", f"{host}:{port}"]
        result = CliRunner().invoke(main, command, input="a\n")
    assert result.exit_code == 1
    assert result.stderr.endswith("no (the transaction may or may not have been committed)\n")


def test_a_wrong_command_line_is_a_usage_error_and_no_input_produces_nothing(cli: Cli, broker: BlockingBroker) -> None:
    for arguments, words in (
        ("--value k", "need --format json or csv"),
        ("--format json --header a=b", "need --format lines"),
        ("-m a --format json", "Leave out FILE and --format"),
        ("--header a", "'a' is not KEY=VALUE"),
        ("--format csv --delimiter ;;", "';;' is not one character"),
        ("no-such-file", "cannot read no-such-file: No such file or directory. To send the text itself: -m no-such-file"),
        ("--timezone Mars", "there is no time zone 'Mars'"),
        ("--format xml", "'xml' is not one of"),
        ("--linger-ms -1", "-1 is not in the range"),
        ("--expected-offset 0", "--expected-offset needs"),
        ("--expected-offset 0 --partition 0 --acks 1", "--expected-offset needs"),
        ("--expected-offset 0 --partition 0 --no-idempotent", "--expected-offset needs"),
    ):
        assert words in cli.refused("produce", "t", *arguments.split(), code=2)
    broker.create_topic("t")
    assert cli.json("produce", "t", "/dev/null")["records"] == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "records"),
    [
        (("-m", "hi"), "", [(None, b"hi", ())]),
        (
            ("-m", "a", "-m", "é", "-k", "k", "-H", "h=1"),
            "",
            [(b"k", b"a", (("h", b"1"),)), (b"k", "é".encode(), (("h", b"1"),))],
        ),
        (("-k", "k"), "a\nb\n", [(b"k", b"a", ()), (b"k", b"b", ())]),
        (("-K", ":"), "a:b:c\n:d\n", [(b"a", b"b:c", ()), (b"", b"d", ())]),
        (("--property", "parse.key=true"), "a\tb\n", [(b"a", b"b", ())]),
        (("--property", "parse.key=true", "--property", "key.separator=,"), "a,b\n", [(b"a", b"b", ())]),
    ],
)
def test_messages_and_lines_have_keys_and_headers(
    cli: Cli, broker: BlockingBroker, arguments: tuple[str, ...], stdin: str, records: list[object]
) -> None:
    broker.create_topic("t")
    cli.ok("produce", "t", *arguments, stdin=stdin)
    assert [(record.key, record.value, record.headers) for record in stored(broker)] == records
    if "-K" in arguments:
        assert "line 1: has no key: it does not contain ':'" in cli.refused("produce", "t", *arguments, stdin="no\n")
    if "-m" in arguments:
        assert "has more than one line. Use --format json" in cli.refused("produce", "t", "-m", "a\nb", code=2)


def test_a_line_is_sent_when_it_comes_and_a_refusal_ends_a_wait_for_input(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 1, {"max.message.bytes": "1000"})
    with cli.process("produce", "t") as process:
        process.stdin.write(b"first\nhalf")
        process.stdin.flush()
        (record,) = broker.fetch("t", 0, max_wait_s=60)
        assert record.value == b"first"
        process.stdin.write(b"x" * 2000 + b"\n")
        process.stdin.flush()
        assert process.wait(60) == 1
        assert b"MESSAGE_TOO_LARGE" in process.stderr.read()


def test_an_input_is_appended_at_the_expected_offset_or_not_at_all(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    expected = ("--partition", "1", "--expected-offset")
    summary = cli.json("produce", "t", *expected, "0", stdin=b"a\nb\n")
    assert (summary["records"], summary["bytes"]) == (2, 2)
    assert summary["partitions"] == [{"partition": 1, "records": 2, "first_offset": 0, "last_offset": 1}]
    refused = cli.refused("produce", "t", *expected, "1", stdin=b"c\nd\n")
    assert "OFFSET_OUT_OF_RANGE: t-1: the log ends at offset 2, expected_offset is 1. Nothing was appended" in refused
    bad = cli.refused("produce", "t", *expected, "2", "--format", "json", stdin=b'{"value": "c"}\nno\n')
    assert "line 2" in bad
    cli.ok("produce", "t", *expected, "2", "--format", "json", stdin=b'{"value": "c", "timestamp": 5, "key": "k"}\n')
    assert [record.value for record in stored(broker, 1)] == [b"a", b"b", b"c"]
    assert (stored(broker, 1)[2].key, stored(broker, 1)[2].timestamp) == (b"k", 5)
    assert cli.json("produce", "t", *expected, "9", stdin=b"")["records"] == 0


TABLE = pa.table({"tail": ["N1", "N2"], "delay": [5, None], "at": pa.array([1_000, 2_000], pa.timestamp("ms", "UTC"))})


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_rows_of_a_file_become_records_or_one_line(cli: Cli, broker: BlockingBroker, tmp_path: Path, kind: str) -> None:
    broker.create_topic("t", config={"retention.ms": "-1"})
    path = tmp_path / "table"
    if kind == "parquet":
        pq.write_table(TABLE, path)
    else:
        pf.write_feather(TABLE, path, compression="uncompressed")
    summary = cli.json("produce", "t", str(path), "--format", kind, "--key", "tail", "--timestamp", "at")
    assert summary["records"] == 2
    assert summary["partitions"] == [{"partition": 0, "records": 2, "first_offset": 0, "last_offset": 1}]
    records = broker.fetch("t", 0)
    assert [(record.key, record.timestamp) for record in records] == [(b"N1", 1_000), (b"N2", 2_000)]
    assert json.loads(records[1].value or b"") == {"tail": "N2", "delay": None, "at": "1970-01-01T00:00:02.000Z"}
    assert cli.ok("produce", "t", str(path), "--format", kind, "--value", "tail").startswith("produced 2 records to t in ")
    path = tmp_path / "table.parquet"
    pq.write_table(TABLE, path)
    asked = ("--format", "parquet")
    assert "has no column no, only tail, delay, at" in cli.refused("produce", "t", str(path), *asked, "--key", "no")
    assert "has no topic other" in cli.refused("produce", "other", str(path), *asked)
    assert "cannot read standard input" in cli.refused("produce", "t", "-", *asked)
    path.write_bytes(b"noise")
    assert "table.parquet: " in cli.refused("produce", "t", str(path), *asked)
