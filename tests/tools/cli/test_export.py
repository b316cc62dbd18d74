from __future__ import annotations

import base64
import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import LOG_START_FILE, encode_offsets
from triolog.tools.cli.terminal.rows import RowOptions, read_content, row_reader

from tests.support.golden import GOLDEN
from tests.support.logs import START_MS, batch, open_driven
from tests.support.stopped_logs import TOPIC, StoppedLogs

from .conftest import call, json_lines

EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())


def test_json_lines_have_every_record_in_order(logs: StoppedLogs) -> None:
    found = json_lines("export", logs.path)
    for number in range(2):
        records = logs.records[TopicPartition(TOPIC, number)]
        mine = [row for row in found if row["partition"] == number]
        assert [row["offset"] for row in mine] == [record.offset for record in records]
        assert [read_content(row["value"]) for row in mine] == [record.value for record in records]
        assert [row["timestamp"] for row in mine] == [record.timestamp for record in records]
    (again,) = row_reader("json", RowOptions()).feed(json.dumps(found[0]).encode() + b"\n")
    assert getattr(again, "value", None) == logs.records[TopicPartition(TOPIC, 0)][0].value, "what produce reads"


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_kafkas_transactions_come_out_as_kafka_serves_them(tmp_path: Path, isolation: str) -> None:
    """Up to the last stable offset that Kafka had when it answered: the last transaction was aborted afterwards."""
    directory = shutil.copytree(GOLDEN / "clean" / "txn-0", tmp_path / "txn-0", copy_function=shutil.copyfile)
    Path(directory).chmod(0o755)
    answers = EXPECTED["txn"]["partitions"]["0"]
    hidden = set() if isolation == "read_uncommitted" else set(answers["not_in_read_committed"])
    stable, _ = answers["read_committed"]["latest"]
    expected = [record[0] for record in answers["records"] if record[0] not in hidden and record[0] < stable]
    rows = json_lines("export", directory, "--isolation", isolation, "--to-offset", stable)
    assert [row["offset"] for row in rows] == expected


def test_offsets_and_times_bound_what_comes(logs: StoppedLogs) -> None:
    records = logs.records[TopicPartition(TOPIC, 0)]
    middle, late = records[20], records[40]
    found = json_lines("export", logs.partition(), "--from-offset", middle.offset, "--to-offset", late.offset)
    assert [row["offset"] for row in found] == [record.offset for record in records[20:40]]
    span = (middle.timestamp, middle.timestamp + 8000)
    found = json_lines("export", logs.partition(), "--from-time", span[0], "--to-time", span[1])
    expected = [record.offset for record in records if span[0] <= record.timestamp < span[1]]
    assert [row["offset"] for row in found] == expected
    assert expected


def test_records_below_the_log_start_are_not_there(logs: StoppedLogs) -> None:
    (logs.path / LOG_START_FILE).write_bytes(encode_offsets({TopicPartition(TOPIC, 0): 13}))
    assert json_lines("export", logs.partition())[0]["offset"] >= 13


def test_csv_tells_null_empty_text_and_bytes_apart(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    driven = open_driven(directory, topic_partition=TopicPartition("t", 0))
    values = [None, b"", b'a,"b"\nc', b"\xff\x00", b"base64:x", "ä".encode()]
    for value in values:
        driven.append(batch(START_MS, value=value))
    driven.close()
    text = call("export", directory, "--format", "csv").stdout
    assert text.splitlines()[0] == "topic,partition,offset,timestamp,key,value,headers"
    found = list(csv.reader(io.StringIO(text, newline="")))[1:]
    encoded = ["", "", 'a,"b"\nc', "base64:" + base64.b64encode(b"\xff\x00").decode(), "base64:YmFzZTY0Ong=", "ä"]
    assert [row[5] for row in found] == encoded
    assert f"t,0,0,{START_MS},,,\n" in text
    assert f't,0,1,{START_MS},,"",\n' in text


def test_a_damaged_batch_is_left_out_and_told_of(logs: StoppedLogs) -> None:
    log = sorted(logs.partition().glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    result = call("export", logs.partition())
    assert result.exit_code == 1
    assert f"warning: flights-0/{log.name} at position 0: " in result.stderr
    assert "the batch is left out" in result.stderr
    lost = len(logs.records[TopicPartition(TOPIC, 0)]) - len(result.stdout.splitlines())
    assert 1 <= lost <= 4
