"""Load: rows of Parquet, CSV or JSON lines files as records of a topic, each once.

Files are written in groups, in the order of their names, each group as one version of one application: a group whose commit the
driver did not live to note is not written again. The application's name is in the manifest; without one a second run loads
everything again. Files that `export` wrote come back with key, value, headers and time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ....protocol.errors import TriologError
from ....protocol.limits import MIB
from .manifest import Manifest
from .runner import JobProgress, Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS: Final = {"parquet": ".parquet", "csv": ".csv", "json": ".json"}
"""Format -> how the names of its files end; JSON lines are `json` to Spark, `.jsonl` is taken too."""
GROUP_BYTES: Final = 256 * MIB
HEADERS: Final = "array<struct<key:string,value:binary>>"


class LoadError(TriologError):
    """Files or columns that cannot be loaded."""


@attrs.frozen(kw_only=True)
class Load:
    """What is loaded, and how a row becomes a record.

    `value` names a column; None: the column `value`, or when there is none the whole row as JSON. `key` and `timestamp` name
    columns; None: the columns of these names where the column `value` is used, else nothing. A timestamp is a timestamp, or
    milliseconds. `keeps_partitions`: the column `partition` says where a record goes.
    """

    source: str
    format: str
    topic: str
    servers: str
    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    keeps_partitions: bool = False
    compression: str = "none"
    group_bytes: int = GROUP_BYTES


def load(spark: SparkSession, job: Load, *, manifest: Path | None = None, progress: Progress = no_progress) -> int:
    """Load all files and answer how many records that made. LoadError, ManifestError, OSError, Spark's errors."""
    kept = Manifest.open(manifest, "load", attrs.asdict(job, filter=lambda field, _: field.name != "servers"))
    application, groups = kept.planned(lambda: [f"load-{uuid.uuid4()}", list(_groups(find_files(job), job.group_bytes))])
    sizes = {name: Path(name).stat().st_size for group in groups for name in group}
    schema = _read(spark, job, [name for group in groups for name in group]).schema
    before = len(kept.done)
    for version, group in enumerate(groups):
        if str(version) not in kept.done:
            records = _write(spark, job, group, schema, application, version)
            kept.add({str(version): {"records": records}})
        done = [name for number, names in enumerate(groups) if str(number) in kept.done for name in names]
        progress(
            JobProgress(
                pieces=len(groups),
                done=len(kept.done),
                done_before=before,
                total_bytes=sum(sizes.values()),
                done_bytes=sum(sizes[name] for name in done),
                records=sum(result["records"] for result in kept.done.values()),
            )
        )
    kept.complete()
    return sum(result["records"] for result in kept.done.values())


def find_files(job: Load) -> list[Path]:
    """The files, by name; below a directory those with the format's ending that are not hidden. LoadError: there is none."""
    if job.format not in FORMATS:
        raise LoadError(f"format {job.format!r} is unknown, expected one of {', '.join(FORMATS)}")
    root = Path(job.source)
    if root.is_file():
        return [root]
    endings = (FORMATS[job.format], ".jsonl") if job.format == "json" else (FORMATS[job.format],)
    found = [
        path
        for path in sorted(root.rglob("*"))
        if path.name.endswith(endings) and not any(part[0] in "._" for part in path.relative_to(root).parts)
    ]
    if not found:
        raise LoadError(f"{root} holds no file that ends in {' or '.join(endings)}")
    return found


def record_columns(frame: DataFrame, job: Load) -> DataFrame:
    """The columns that the sink takes, made of those that the files have. LoadError names a column that is missing."""
    from pyspark.sql import functions

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for option, name in (("value", job.value), ("key", job.key), ("timestamp", job.timestamp)):
        if name is not None and name not in types:
            raise LoadError(f"{option} is to be column {name}, which is not there; there are {', '.join(types)}")
    is_records = job.value is None and types.get("value") in ("binary", "string")
    value = job.value or ("value" if is_records else None)
    key = job.key or ("key" if is_records and "key" in types else None)
    timestamp = job.timestamp or ("timestamp" if is_records and types.get("timestamp") == "timestamp" else None)
    everything = functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in types)))
    columns: list[Column] = [(_bytes(value, types) if value else everything).alias("value")]
    if key is not None:
        columns.append(_bytes(key, types).alias("key"))
    if timestamp is not None:
        columns.append(_time(timestamp, types).alias("timestamp"))
    if is_records and types.get("headers") == HEADERS:
        columns.append(functions.col("headers"))
    if job.keeps_partitions:
        if "partition" not in types:
            raise LoadError(f"partitions are to be kept, but there is no column partition; there are {', '.join(types)}")
        columns.append(functions.col("partition").cast("int").alias("partition"))
    return frame.select(*columns)


def _bytes(name: str, types: dict[str, str]) -> Column:
    from pyspark.sql import functions

    column = functions.col(f"`{name}`")
    if types[name] in ("binary", "string"):
        return column
    is_nested = types[name].startswith(("struct", "array", "map"))
    return functions.to_json(column) if is_nested else column.cast("string")


def _time(name: str, types: dict[str, str]) -> Column:
    from pyspark.sql import functions

    column = functions.col(f"`{name}`")
    if types[name] in ("bigint", "int"):
        return functions.timestamp_millis(column)
    return column if types[name] == "timestamp" else column.cast("timestamp")


def _groups(files: Sequence[Path], group_bytes: int) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for path in files:
        group.append(str(path.absolute()))
        size += path.stat().st_size
        if size >= group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _read(spark: SparkSession, job: Load, files: Sequence[str], schema: StructType | None = None) -> DataFrame:
    reader: Any = spark.read.format(job.format).option("mode", "FAILFAST")
    if job.format == "csv":
        reader = reader.option("header", "true")
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(list(files))  # type: ignore[no-any-return]


def _write(spark: SparkSession, job: Load, files: Sequence[str], schema: StructType, application: str, version: int) -> int:
    from pyspark.sql import Observation, functions

    counted = Observation()
    rows = record_columns(_read(spark, job, files, schema), job).observe(
        counted, functions.count(functions.lit(1)).alias("rows")
    )
    options = {
        "kafka.bootstrap.servers": job.servers,
        "topic": job.topic,
        "txnAppId": application,
        "txnVersion": str(version),
        "kafka.compression.type": job.compression,
    }
    rows.write.format("triolog").options(**options).mode("append").save()
    return int(counted.get["rows"])
