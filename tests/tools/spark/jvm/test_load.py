"""Loading files into a topic, each row once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from triolog.protocol.records.columnar.schema import arrow_type
from triolog.protocol.types import Record
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer
from triolog.tools.spark.jobs.load import Load, LoadError, find_files, load

from tests.support.server_process import Address, ServerFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, BlockingClient]]:
    with ServerFolder(tmp_path_factory.mktemp("server"), ("--durability", "os")) as folder:
        address = folder.start().address
        with BlockingClient(address) as client:
            for topic in ("parquet", "csv", "json"):
                BlockingAdmin(client).create_topic(topic, config={"retention.ms": "-1"})
            yield address, client


def records(client: BlockingClient, topic: str) -> list[Record]:
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(topic)
        return [record for _, record in consumer.records()]


def job(server: tuple[Address, BlockingClient], source: Path, kind: str, **how: object) -> Load:
    host, port = server[0]
    return Load(source=str(source), format=kind, topic=kind, servers=f"{host}:{port}", **how)  # type: ignore[arg-type]


def test_parquet_of_an_export_comes_back_as_the_records_it_was(
    spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path
) -> None:
    columns = {
        "key": pa.array([b"a", None], pa.binary()),
        "value": pa.array([None, b"v"], pa.binary()),
        "partition": pa.array([5, 5], pa.int32()),
        "offset": pa.array([10, 11], pa.int64()),
        "timestamp": pa.array([1_000_000, 2_000_000], arrow_type("timestamp")),
        "headers": pa.array([[{"key": "h", "value": None}], []], arrow_type("headers")),
    }
    folder = tmp_path / "topic=t" / "day=1970-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "part-00005-0.parquet")
    assert load(spark, job(server, tmp_path, "parquet")) == 2
    assert records(server[1], "parquet") == [Record(0, 1000, b"a", None, (("h", None),)), Record(1, 2000, None, b"v")]


def test_csv_rows_become_json_with_the_key_and_time_of_their_columns(
    spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,at,name\n1,2024-01-01 00:00:00,x\n2,2024-01-01 00:00:01,\n")
    assert load(spark, job(server, tmp_path, "csv", key="id", timestamp="at")) == 2
    [first, second] = records(server[1], "csv")
    assert (first.key, first.timestamp) == (b"1", 1_704_067_200_000)
    assert json.loads(first.value or b"") == {"id": "1", "at": "2024-01-01 00:00:00", "name": "x"}
    assert json.loads(second.value or b"") == {"id": "2", "at": "2024-01-01 00:00:01"}


def test_load_that_is_run_again_goes_on_where_it_was_and_repeats_nothing(
    spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path
) -> None:
    """Of three groups the second run finds one noted, one committed but not noted, and one that is not there yet."""
    manifest = tmp_path / "manifest.json"
    files = tmp_path / "in"
    files.mkdir()
    for number in range(3):
        (files / f"{number}.jsonl").write_text(f'{{"number": {number}}}\n' * (number + 1))
    what = job(server, files, "json", group_bytes=1)
    (files / "2.jsonl").rename(tmp_path / "2.jsonl")
    with pytest.raises(LoadError, match="holds no file"):
        find_files(job(server, tmp_path / "none", "json"))
    assert load(spark, what, manifest=manifest) == 3
    kept = json.loads(manifest.read_text())
    del kept["done"]["1"]
    (tmp_path / "2.jsonl").rename(files / "2.jsonl")
    kept["plan"][1].append([str(files / "2.jsonl")])
    manifest.write_text(json.dumps(kept))
    load(spark, what, manifest=manifest)
    found = [json.loads(record.value or b"")["number"] for record in records(server[1], "json")]
    assert found == [0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"value": "absent"}, "value is to be column absent, which is not there; there are id"),
        ({"keeps_partitions": True}, "no column partition"),
    ],
)
def test_column_that_is_not_there_is_named(
    spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path, how: dict[str, object], complaint: str
) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(LoadError, match=complaint):
        load(spark, job(server, tmp_path, "csv", **how))
