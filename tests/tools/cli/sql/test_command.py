from __future__ import annotations

import csv
import io
import json
import signal
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
import triolog
from triolog.protocol.records.builder import build_batch
from triolog.server.embedded import BlockingBroker

from ..conftest import Cli, call

QUESTION: Final = "select carrier, avg(delay) as late, count(*) n from flights group by 1 order by 1"


@pytest.fixture
def flights(broker: BlockingBroker) -> BlockingBroker:
    broker.create_topic("flights", partitions=2, config={"retention.ms": "-1"})
    for number, (carrier, delay) in enumerate([("UA", 3), ("B6", 4), ("UA", 10), ("B, 6", None)]):
        value = json.dumps({"carrier": carrier, "delay": delay}).encode()
        broker.append("flights", build_batch([(1000 + number, b"k", value, ())]), partition=number % 2)
    return broker


def test_an_answer_is_a_table_json_lines_or_csv(cli: Cli, flights: BlockingBroker) -> None:
    lines = [line.split() for line in cli.ok("sql", QUESTION).splitlines() if line.strip()]
    assert lines[0] == ["carrier", "late", "n"]
    assert lines[2:] == [["B,", "6", "null", "1"], ["B6", "4", "1"], ["UA", "6.5", "2"]]
    assert "the first 1 row; --max N shows more" in cli.ok("sql", QUESTION, "--rows", "1")
    assert cli.lines("sql", QUESTION, "--format", "json")[1:] == [
        {"carrier": "B6", "late": 4.0, "n": 1},
        {"carrier": "UA", "late": 6.5, "n": 2},
    ]
    rows = list(csv.reader(io.StringIO(cli.ok("sql", QUESTION, "--format", "csv"))))
    assert rows == [["carrier", "late", "n"], ["B, 6", "", "1"], ["B6", "4.0", "1"], ["UA", "6.5", "2"]]
    everything = 'select * from flights where partition = 0 and "offset" = 1'
    [row] = cli.lines("sql", everything, "--format", "json", "--timezone", "UTC")
    place = {"topic": "flights", "partition": 0, "offset": 1, "timestamp": "1970-01-01T00:00:01.002Z", "timestamp_type": 0}
    content = {"key": "k", "value": '{"carrier": "UA", "delay": 10}', "headers": []}
    assert row == {**place, "carrier": "UA", "delay": 10, **content}


def test_an_answer_becomes_a_file(cli: Cli, flights: BlockingBroker, tmp_path: Path) -> None:
    path = tmp_path / "late.parquet"
    assert cli.ok("sql", QUESTION, "--output", str(path)) == ""
    assert pq.read_table(path).to_pylist()[2] == {"carrier": "UA", "late": 6.5, "n": 2}
    before = path.read_bytes()
    failing = "select cast(carrier as int) from flights"
    assert "Could not convert string" in cli.refused("sql", failing, "--output", str(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert "--format" in cli.refused("sql", QUESTION, "--output", str(path), "--format", "table", code=2)
    assert "Add --format" in cli.refused("sql", QUESTION, "--output", "late", code=2)


def test_explain_shows_what_is_read(cli: Cli, flights: BlockingBroker) -> None:
    sql = "select max(delay) from flights where partition = 1 and timestamp >= '1970-01-01 00:00:01.003Z'"
    text = cli.ok("sql", sql, "--explain", "--timezone", "UTC")
    assert "scan 1: topic flights, columns delay" in text
    assert "range: times 1970-01-01T00:00:01.003Z to the end; 1 of 2 partitions" in text
    assert "flights-0: not read, of 0 to 2" in text
    walk = "the range: offsets 1 to 2, 103 B in 1 run of 1 of 1 segment"
    assert f"flights-1: read from offset 0 to 2, of 0 to 2; {walk}" in text
    assert "1 record of the range" in text


def test_a_directory_is_asked_without_a_server(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path / "data", native="127.0.0.1:0") as broker:
        broker.create_topic("t")
        broker.append("t", [b'{"a": 1}', b'{"a": "x"}'])
    asked = ("sql", "select a from t", "--data-dir", tmp_path / "data", "--format", "csv")
    assert "have no common schema as json" in call(*asked).stderr
    assert call(*asked, "--schema", "t=a VARCHAR").stdout == ""
    refused = call(*asked, "--schema", "a BIGINT")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
    assert refused.stderr.startswith("Error: t-0 offset 1: ")
    assert "--errors null gives null" in refused.stderr
    assert call(*asked, "--schema", "t=a BIGINT", "--errors", "null").stdout == 'a\n1\n""\n'


def test_what_cannot_be_answered_is_one_line(cli: Cli, flights: BlockingBroker) -> None:
    assert "there is no topic fligths. Did you mean flights?" in cli.refused("sql", "select * from fligths")
    assert "'zip' is not one of" in cli.refused("sql", QUESTION, "--values", "zip", code=2)
    assert "exclude each other" in cli.refused("sql", QUESTION, "--data-dir", ".", "--server", cli.address, code=2)
    assert "invalid duration" in cli.refused("sql", QUESTION, "--follow", "soon", code=2)
    nobody = call("sql", QUESTION, env={"TRIOLOG_SERVER": "127.0.0.1:1"})
    assert nobody.exit_code == 1
    assert "Is `triolog serve` running there?" in nobody.stderr


@pytest.mark.merge
def test_follow_asks_again_until_it_is_interrupted(cli: Cli, flights: BlockingBroker) -> None:
    asked = ("sql", "select count(*) n from flights", "--format", "json", "--follow", "1ms")
    with cli.process(*asked) as process:
        try:
            assert json.loads(process.stdout.readline()) == {"n": 4}
            flights.append("flights", [b"{}"])
            while json.loads(process.stdout.readline()) != {"n": 5}:
                pass
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, b"")
