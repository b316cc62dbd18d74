"""`triolog spark load`: rows of Parquet, CSV or JSON lines files as records of a topic, each once.

Files are written in groups, in the order of their names, each group as one version of one application: a group whose commit the
driver did not live to note is not written again. The application's name, the groups and the columns that all files together
have are in the manifest, so files that were loaded may go; without a manifest a second run loads everything again. Files that
`export` wrote come back with key, value, headers and time. CSV is that of RFC 4180: a quoted field may hold line ends, and
quotes as two of them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from ....protocol.errors import TriologError
from ....protocol.limits import MIB
from ...cli.terminal.output import count_text, json_option, print_json, say
from ...cli.terminal.remote import ServerAddress, plain_server_option
from ...export.manifest import Manifest, Piece, absolute
from .job_session import Progress, job_session, manifest_option, master_option, no_progress, report, watched

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS: Final = {"parquet": ".parquet", "csv": ".csv", "json": ".json"}
"""Format -> how the names of its files end; JSON lines are `json` to Spark, `.jsonl` is taken too."""
GROUP_BYTES: Final = 256 * MIB
HEADERS: Final = "array<struct<key:string,value:binary>>"
READ_OPTIONS: Final = {
    "parquet": {"mergeSchema": "true"},
    "csv": {"header": "true", "multiLine": "true", "escape": '"', "enforceSchema": "false"},
    "json": {},
}
"""What Spark would else do: take the columns of one Parquet file for those of all, and those of a CSV file by their places."""
TIMES: Final = frozenset({"timestamp", "bigint", "int", "string"})
_GLOB: Final = re.compile(r"([\[\]{}*?\\])")


@click.command("load")
@click.argument("source", metavar="PATH", type=click.Path(exists=True))
@click.option("--topic", required=True, metavar="NAME", help="Topic to write (must exist).")
@click.option(
    "--format",
    "kind",
    required=True,
    type=click.Choice(list(FORMATS)),
    help="Format: csv with a line of column names, or json, which is JSON lines.",
)
@click.option("--value", metavar="COLUMN", help="Column of the records' values. [default: value, else the whole row as JSON]")
@click.option("--key", metavar="COLUMN", help="Column of the records' keys. [default: key beside value, else none]")
@click.option(
    "--timestamp", metavar="COLUMN", help="Column with a time, or ms since 1970. [default: timestamp beside value, else now]"
)
@click.option("--keep-partitions", is_flag=True, help="Write to the partitions that the column partition names.")
@click.option("--compression", default="none", show_default=True, type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]))
@plain_server_option
@master_option
@manifest_option
@json_option
def command(
    source: str,
    topic: str,
    kind: str,
    value: str | None,
    key: str | None,
    timestamp: str | None,
    keep_partitions: bool,
    compression: str,
    server: ServerAddress,
    master: str,
    manifest: Path | None,
    as_json: bool,
) -> None:
    """Write the rows of a file, or of the files below a folder, as records of a topic.

    With --manifest the same command continues an interrupted run, and no row is written twice. Without it, a second run writes
    all rows again. Exit code 1 when something failed.
    """
    with job_session("load", master) as spark:
        job = Load(
            source=source,
            format=kind,
            topic=topic,
            servers=str(server),
            value=value,
            key=key,
            timestamp=timestamp,
            keeps_partitions=keep_partitions,
            compression=compression,
        )
        with watched("loading") as progress:
            records = load(spark, job, manifest=manifest, progress=progress)
    if as_json:
        print_json({"topic": topic, "records": records})
    else:
        say(f"{count_text(records, 'record')} in {topic}")


class LoadError(TriologError):
    """Files or columns that cannot be loaded."""


@attrs.frozen(kw_only=True)
class Load:
    """The source of a load, and the mapping from rows to records.

    `value` names a column; None: the column `value`, or when there is none the whole row as JSON. `key` and `timestamp` name
    columns; None: the columns of these names where the column `value` is used, else nothing. A timestamp is a timestamp, its
    text, or milliseconds. `keeps_partitions`: the column `partition` says where a record goes.
    """

    source: str = attrs.field(converter=absolute)
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
    application, schema, groups = kept.planned(lambda: plan_load(spark, job))
    before = len(kept.done)
    pieces = [Piece(str(version), group["bytes"], group["files"]) for version, group in enumerate(groups)]
    report(pieces, kept, before, progress)
    for version, piece in enumerate(pieces):
        if piece.name not in kept.done:
            kept.add({piece.name: {"records": _write(spark, job, piece.what, schema, application, version)}})
            report(pieces, kept, before, progress)
    kept.complete()
    return sum(result["records"] for result in kept.done.values())


def plan_load(spark: SparkSession, job: Load) -> list[Any]:
    """The application's name, the columns of all files, and the groups."""
    files = find_files(job)
    schema = read_files(spark, job, [str(path) for path in files]).schema
    return [f"load-{uuid.uuid4()}", schema.jsonValue(), list(_groups(files, job.group_bytes))]


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
        if path.name.endswith(endings) and path.is_file() and not any(part[0] in "._" for part in path.relative_to(root).parts)
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
            raise LoadError(f"{option} names column {name}, which does not exist. Columns: {', '.join(types)}")
    is_records = job.value is None and types.get("value") in ("binary", "string")
    value = job.value or ("value" if is_records else None)
    key = job.key or ("key" if is_records and "key" in types else None)
    timestamp = job.timestamp or ("timestamp" if is_records and types.get("timestamp") in TIMES else None)
    everything = functions.to_json(functions.struct(*(_column(name) for name in types)))
    columns: list[Column] = [(_bytes(value, types) if value else everything).alias("value")]
    if key is not None:
        columns.append(_bytes(key, types).alias("key"))
    if timestamp is not None:
        columns.append(_time(timestamp, types).alias("timestamp"))
    if is_records and types.get("headers") == HEADERS:
        columns.append(functions.col("headers"))
    if job.keeps_partitions:
        if "partition" not in types:
            raise LoadError(f"--keep-partitions needs a column partition. Columns: {', '.join(types)}")
        columns.append(functions.col("partition").cast("int").alias("partition"))
    return frame.select(*columns)


def _column(name: str) -> Column:
    from pyspark.sql import functions

    return functions.col("`{}`".format(name.replace("`", "``")))


def _bytes(name: str, types: dict[str, str]) -> Column:
    from pyspark.sql import functions

    column = _column(name)
    if types[name] in ("binary", "string"):
        return column
    is_nested = types[name].startswith(("struct", "array", "map"))
    return functions.to_json(column) if is_nested else column.cast("string")


def _time(name: str, types: dict[str, str]) -> Column:
    from pyspark.sql import functions

    column = _column(name)
    if types[name] in ("bigint", "int"):
        return functions.timestamp_millis(column)
    return column if types[name] == "timestamp" else column.cast("timestamp")


def _groups(files: Sequence[Path], group_bytes: int) -> Iterator[dict[str, Any]]:
    group: list[str] = []
    size = 0
    for path in files:
        group.append(str(path))
        size += path.stat().st_size
        if size >= group_bytes:
            yield {"files": group, "bytes": size}
            group, size = [], 0
    if group:
        yield {"files": group, "bytes": size}


def read_files(spark: SparkSession, job: Load, files: Sequence[str], schema: StructType | None = None) -> DataFrame:
    """The rows of these files, whose names are no patterns. Spark's errors for what is no file of that format."""
    reader: Any = spark.read.format(job.format).options(mode="FAILFAST", **READ_OPTIONS[job.format])
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load([_GLOB.sub(r"\\\1", name) for name in files])  # type: ignore[no-any-return]


def _write(spark: SparkSession, job: Load, files: Sequence[str], schema: Any, application: str, version: int) -> int:
    from pyspark.sql import Observation, functions
    from pyspark.sql.types import StructType

    counted = Observation()
    rows = record_columns(read_files(spark, job, files, StructType.fromJson(schema)), job).observe(
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
