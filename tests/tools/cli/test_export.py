from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import triolog
from click.testing import Result
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import (
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    encode_meta_properties,
    encode_offsets,
)
from triolog.tools.cli.terminal.rows import RowOptions, read_content, row_reader
from triolog.tools.export import layout
from triolog.tools.export.layout import MANIFEST, SUCCESS, Export, export_piece
from triolog.tools.export.log_pieces import LogSource, plan_pieces
from triolog.tools.export.manifest import Manifest

from tests.support.damaged_batches import flip
from tests.support.golden import GOLDEN
from tests.support.logs import START_MS, batch, open_driven
from tests.support.stopped_logs import TOPIC, StoppedLogs
from tests.tools.cli.conftest import call, json_lines

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
    flip(log, 80)
    result = call("export", logs.partition())
    assert result.exit_code == 1
    assert f"warning: flights-0/{log.name} at position 0: " in result.stderr
    assert "the batch is left out" in result.stderr
    lost = len(logs.records[TopicPartition(TOPIC, 0)]) - len(result.stdout.splitlines())
    assert 1 <= lost <= 4


DAY_MS: Final = 86_400_000
COUNT: Final = 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, one of two partitions with a record each for days 1 to 20."""
    path = tmp_path_factory.mktemp("export") / "data"
    with triolog.blocking.open(path, durability="os", config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("u")
        for number in range(COUNT):
            value = b'{"n": %d, "text": "a, b"}' % number
            rows = [((1 + number // 2) * DAY_MS, b"k%d" % number, value, ())]
            broker.append("t", build_batch(rows), partition=number % 2)
        broker.append("u", [b"\xff", None])
    return path


def files(target: Path) -> dict[str, bytes]:
    """What is there, but for the manifest, which names the source."""
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.suffix != ".json" and path.is_file()
    }


def read_arrow(path: Path) -> list[dict[str, Any]]:
    return pa.ipc.open_file(path).read_all().to_pylist()


def read_parquet(path: Path) -> list[dict[str, Any]]:
    return ds.dataset(path).to_table().to_pylist()


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return [row | {name: int(row[name]) for name in ("partition", "offset")} for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("format_name", "read"), [("parquet", read_parquet), ("arrow", read_arrow), ("jsonl", read_lines), ("csv", read_csv)]
)
def test_every_record_is_in_the_file_of_its_day(
    data: Path, tmp_path: Path, format_name: str, read: Callable[[Path], list[dict[str, Any]]]
) -> None:
    result = call("export", data, "--topic", "t", "--format", format_name, "--target", tmp_path, "--partition-by", "day")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{COUNT} records in {COUNT} files, ")
    [first, second] = sorted((tmp_path / "topic=t" / "day=1970-01-04").iterdir())
    assert first.name == f"part-00000-{0:020}.{format_name}"
    for partition, path in enumerate((first, second)):
        [found] = read(path)
        value = found["value"]
        assert json.loads(value)["n"] == 4 + partition
        assert (found["partition"], found["offset"]) == (partition, 2)
    assert (tmp_path / SUCCESS).exists()


def test_the_files_are_those_of_sparks_job(data: Path, tmp_path: Path) -> None:
    """Its tasks do no more than `export_piece`."""
    assert call("export", data, "--format", "parquet", "--target", tmp_path / "cli").exit_code == 0
    job = Export(source=LogSource(directories=(str(data),)), target=str(tmp_path / "spark"))
    for piece in plan_pieces(job.source, Manifest.open(None, "export", {})):
        export_piece(job, piece.what)
    expected = files(tmp_path / "spark")
    found = files(tmp_path / "cli")
    del found[SUCCESS]
    assert found == expected
    assert len(expected) == COUNT + 1


def test_offsets_and_times_bound_what_comes_in_files(data: Path, tmp_path: Path) -> None:
    times = ("--from-time", f"@{6 * 86400}", "--to-time", f"@{9 * 86400}")
    asked = ("--format", "jsonl", "--from-offset", 3, "--to-offset", 10, *times)
    assert call("export", data, "--topic", "t", "--target", tmp_path, *asked).exit_code == 0
    found = [row["offset"] for path in sorted(tmp_path.rglob("part-00000*")) for row in read_lines(path)]
    assert found == [5, 6, 7]


KILLED: Final = """
import os, sys
from triolog.tools.cli.main import main
from triolog.tools.export import manifest
add = manifest.Manifest.add
def add_and_die(self, results):
    add(self, results)
    os._exit(9)
manifest.Manifest.add = add_and_die
main(sys.argv[1:])
"""


@pytest.mark.merge
def test_an_export_that_is_killed_goes_on(data: Path, tmp_path: Path) -> None:
    """It dies when its first piece is in the manifest, with leftovers of another."""
    target = tmp_path / "out"
    asked = ["export", str(data), "--format", "parquet", "--target", str(target)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *asked], capture_output=True, timeout=120)
    assert killed.returncode == 9, killed.stderr
    manifest = json.loads((target / MANIFEST).read_text())
    assert 0 < len(manifest["done"]) < len(manifest["plan"])
    assert not (target / SUCCESS).exists()
    done = {name for result in manifest["done"].values() for name in result["files"]}
    before = {name: (target / name).stat().st_mtime_ns for name in done}
    (target / layout.TEMPORARY / "piece").mkdir(parents=True)
    (target / layout.TEMPORARY / "piece" / "half").write_bytes(b"PAR1")
    assert call(*asked).exit_code == 0
    assert {name: (target / name).stat().st_mtime_ns for name in done} == before
    whole = tmp_path / "whole"
    assert call(*asked[:-1], whole).exit_code == 0
    assert files(target) == files(whole)


def test_what_cannot_be_exported_is_one_line(data: Path, tmp_path: Path) -> None:
    assert "need --target FOLDER" in call("export", data, "--format", "parquet").stderr
    assert "need --target FOLDER" in call("export", data, "--partition-by", "day").stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    refused = call("export", data, "--target", tmp_path / "mine")
    assert refused.exit_code == 1
    assert "holds letter" in refused.stderr
    assert "no partition of topic no" in call("export", data, "--topic", "no", "--target", tmp_path / "a").stderr
    damaged = shutil.copytree(data, tmp_path / "damaged")
    flip(damaged / "t-0" / f"{0:020}.log", 80)
    stopped = call("export", damaged, "--target", tmp_path / "b")
    assert stopped.exit_code == 1
    assert "position 0" in stopped.stderr
    assert len(stopped.stderr.splitlines()) == 1


def exporting(*arguments: object) -> Result:
    return call("export-kafka", *arguments)


def ok(*arguments: object) -> str:
    result = exporting(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def options(command: str) -> dict[str, str]:
    """Topic key -> value of a `kafka-topics.sh` line."""
    words = shlex.split(command)
    return dict(word.split("=", 1) for flag, word in itertools.pairwise(words) if flag == "--config")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "triolog"
    with triolog.blocking.open(directory, native="127.0.0.1:0") as broker:
        broker.create_topic("flights", 2, {"retention.ms": "-1", "segment.bytes": "5000", "durability": "os"})
        broker.append("flights", [b"one", b"two"])
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A log directory as Kafka leaves it when the topic was created."""
    directory = tmp_path / "kafka"
    for partition in range(2):
        (directory / f"flights-{partition}").mkdir(parents=True)
        (directory / f"flights-{partition}" / PARTITION_METADATA_FILE).write_text(
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        )
        (directory / f"flights-{partition}" / f"{0:020d}.log").touch()
    properties = encode_meta_properties(cluster_id="kafka", node_id=1, directory_id=uuid.UUID(int=7))
    (directory / META_PROPERTIES_FILE).write_bytes(properties)
    return directory


def test_commands_create_the_topics_as_they_are_or_with_other_configs(source: Path) -> None:
    *remarks, command = ok(source, "--print-commands", "--bootstrap-server", "kafka:9092").splitlines()
    assert command.startswith("kafka-topics.sh --bootstrap-server kafka:9092 --create --topic flights --partitions 2 ")
    assert options(command) == {"retention.ms": "-1", "segment.bytes": "1048576"}
    assert remarks == [
        "# flights: durability=os is left out, Kafka 4.3 has no such key",
        "# flights: segment.bytes=5000 is raised to 1048576, the smallest that Kafka takes",
    ]
    configs = ("--config", "retention.ms=1000", "--config", "segment.bytes=2000000")
    [command] = json.loads(ok(source, "--print-commands", "--json", *configs))["commands"]
    assert shlex.split(command)[0] == "kafka-topics.sh"
    assert options(command) == {"retention.ms": "1000", "segment.bytes": "2000000"}


def test_an_export_says_what_it_did(source: Path, target: Path) -> None:
    document: dict[str, Any] = json.loads(ok(source, shutil.copytree(target, target.parent / "other"), "--json"))
    [partition] = document["partitions"]
    assert (partition["topic"], partition["log_start_offset"], partition["log_end_offset"]) == ("flights", 0, 2)
    assert document["already_there"] == 1
    assert document["copied_bytes"] == partition["bytes"]
    text = ok(source, target)
    assert text.startswith(f"exported 1 partition to {target}: 0 files linked (0 B), ")
    assert text.endswith("; 1 partition there already\n")  # the empty one
    assert "exported 0 partitions" in ok(source, target)


def test_what_cannot_be_exported_is_refused_with_the_next_step(source: Path, tmp_path: Path) -> None:
    printing = ("--print-commands", "--config")
    for arguments, said in (
        ((), "Give OUT"),
        ((*printing, "retention.ms"), "is not KEY=VALUE"),
        ((*printing, "retention.ms=1", "--config", "retention.ms=2"), "retention.ms is given twice"),
        ((*printing, "durability=os"), "'durability' is not a topic key of Kafka"),
        ((*printing, "segment.bytes=1g"), "'segment.bytes=1g': segment.bytes is not a number"),
        (("nowhere",), "does not exist"),
    ):
        result = exporting(source, *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
    with triolog.blocking.open(source, native="127.0.0.1:0"):
        result = exporting(source, tmp_path)
    assert result.exit_code == 1
    assert f"holds the lock of log directory {source}" in result.stderr
