from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType
from triolog.protocol.records.columnar.schema import arrow_type
from triolog.protocol.types import Record
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer
from triolog.tools.spark.jobs.job_session import JobProgress, cause
from triolog.tools.spark.jobs.load import Load, LoadError, find_files, load, plan_load, read_files, record_columns

from tests.support.server_process import Address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def server(served: tuple[Address, BlockingClient]) -> tuple[Address, BlockingClient]:
    for topic in ("parquet", "csv", "json", "gone", "refused"):
        BlockingAdmin(served[1]).create_topic(topic, config={"retention.ms": "-1"})
    return served


def records(client: BlockingClient, topic: str) -> list[Record]:
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(topic)
        return [record for _, record in consumer.records()]


def job(server: tuple[Address, BlockingClient], source: Path, kind: str, **how: object) -> Load:
    host, port = server[0]
    return Load(**{"source": str(source), "format": kind, "topic": kind, "servers": f"{host}:{port}", **how})  # type: ignore[arg-type]


def test_parquet_of_an_export_comes_back(spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path) -> None:
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


def test_csv_rows_become_json_with_key(spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,at,name\n1,2024-01-01 00:00:00,x\n2,2024-01-01 00:00:01,\n")
    assert load(spark, job(server, tmp_path, "csv", key="id", timestamp="at")) == 2
    [first, second] = records(server[1], "csv")
    assert (first.key, first.timestamp) == (b"1", 1_704_067_200_000)
    assert json.loads(first.value or b"") == {"id": "1", "at": "2024-01-01 00:00:00", "name": "x"}
    assert json.loads(second.value or b"") == {"id": "2", "at": "2024-01-01 00:00:01"}


def test_load_resumes_and_repeats_nothing(spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path) -> None:
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
    kept["plan"][2].append({"files": [str(files / "2.jsonl")], "bytes": 1})
    manifest.write_text(json.dumps(kept | {"is_complete": False}))
    (files / "0.jsonl").unlink()
    load(spark, what, manifest=manifest)
    found = [json.loads(record.value or b"")["number"] for record in records(server[1], "json")]
    assert found == [0, 1, 1, 2, 2, 2]


def rows_of(spark: SparkSession, source: Path, kind: str) -> list[dict[str, object]]:
    """What a load would write, as JSON; each file read with the columns of all, as a group is."""
    what = Load(source=str(source), format=kind, topic="t", servers="localhost:1")
    _, schema, groups = plan_load(spark, what)
    found = [row for group in groups for row in record_columns(_read_group(spark, what, group, schema), what).collect()]
    return [json.loads(row.value) for row in found]


def _read_group(spark: SparkSession, what: Load, group: dict[str, list[str]], schema: object) -> DataFrame:
    return read_files(spark, what, group["files"], StructType.fromJson(schema))  # type: ignore[arg-type]


def test_files_are_read_once_with_all_columns_whatever_they_are_called(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "folder" / "rows.parquet"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), folder / "part-0.parquet")
    assert rows_of(spark, folder.parent, "parquet") == [{"a": 1}]
    columns = tmp_path / "columns"
    columns.mkdir()
    pq.write_table(pa.table({"a": [1]}), columns / "1.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["x"]}), columns / "2.parquet")
    assert sorted(rows_of(spark, columns, "parquet"), key=len) == [{"a": 1}, {"a": 2, "b": "x"}]
    names = ["a1.json", "a[1].json", "b*.json", "b{x,y}?.json", "c\\d e,f.json"]
    for name in names:
        (tmp_path / name).write_text(json.dumps({"name": name}) + "\n")
    assert sorted(str(row["name"]) for row in rows_of(spark, tmp_path, "json")) == names
    rows = [{"id": "1", "a`b.c": 'say "hi", ok'}, {"id": "2", "a`b.c": "back\\slash\\"}, {"id": "3", "a`b.c": "two\nlines"}]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "a`b.c"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    assert rows_of(spark, tmp_path, "csv") == rows
    for number, timestamp in enumerate(('"2024-01-01T00:00:00Z"', "1704067200000")):
        path = tmp_path / f"time-{number}.json"
        path.write_text(f'{{"value": "v", "timestamp": {timestamp}}}\n')
        what = Load(source=str(path), format="json", topic="t", servers="localhost:1")
        found = record_columns(read_files(spark, what, [str(path)]), what)
        assert [row.at for row in found.selectExpr("unix_millis(timestamp) as at").collect()] == [1_704_067_200_000], timestamp


def test_csv_columns_in_other_order_fail(spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path) -> None:
    """And not a row with the values of one column under the name of the other."""
    (tmp_path / "1.csv").write_text("x,y\n1,2\n")
    (tmp_path / "2.csv").write_text("y,x\n3,4\n")
    with pytest.raises(Exception, match="CSV header does not conform to the schema") as caught:
        rows_of(spark, tmp_path, "csv")
    assert cause(str(caught.value)).startswith("[FAILED_READ_FILE")
    assert "2.csv" in cause(str(caught.value))
    assert "CSV header does not conform" in cause(str(caught.value))


def test_files_that_were_loaded_may_go(spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("n\n1\n2\n")
    what = job(server, tmp_path / "in", "csv", topic="gone")
    assert load(spark, what, manifest=tmp_path / "manifest.json") == 2
    (tmp_path / "in" / "a.csv").unlink()
    seen: list[JobProgress] = []
    assert load(spark, what, manifest=tmp_path / "manifest.json", progress=seen.append) == 2
    assert [(each.pieces, each.done, each.done_before, each.records) for each in seen] == [(1, 1, 1, 2)]
    assert [record.value for record in records(server[1], "gone")] == [b'{"n":"1"}', b'{"n":"2"}']


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"value": "absent"}, "value names column absent, which does not exist. Columns: id"),
        ({"keeps_partitions": True}, "needs a column partition"),
    ],
)
def test_column_that_is_not_there_is_named(
    spark: SparkSession, server: tuple[Address, BlockingClient], tmp_path: Path, how: dict[str, object], complaint: str
) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(LoadError, match=complaint):
        load(spark, job(server, tmp_path, "csv", topic="refused", **how))
