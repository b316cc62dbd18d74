"""A streaming job that reads a topic, changes every row and writes another, to be killed: `python -m tests.support.spark_copy`.

Its arguments are the server, the folder of the checkpoint, the most rows of a batch and the options of its JVM. On a cluster
the master and a folder follow; a second query writes the same rows there as Parquet. It says `batch N` when a batch is over. A
process that is started on the same folder goes on where the last one was.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = "rows"
SINK: Final = "copies"
PREFIX: Final = "seen "
POLL_S: Final = 0.01


def copied(value: str) -> str:
    """What a row of the source is in the sink."""
    return PREFIX + value.upper()


def start_copying(spark: SparkSession, server: str, folder: Path, rows_per_batch: int) -> StreamingQuery:
    """Everything that is in the source now, in batches."""
    writer = _copies(spark, server, rows_per_batch).writeStream.format("triolog").option("kafka.bootstrap.servers", server)
    writer = writer.option("topic", SINK).option("checkpointLocation", str(folder))
    return writer.outputMode("append").trigger(availableNow=True).start()


def start_writing_parquet(spark: SparkSession, server: str, folder: Path, rows_per_batch: int, target: Path) -> StreamingQuery:
    """The same rows, to files."""
    writer = _copies(spark, server, rows_per_batch).writeStream.format("parquet").option("path", str(target))
    return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


def committed_files(target: Path) -> list[Path]:
    """The files that Spark's file sink has committed: others are of batches that were not finished."""
    lines = [line for log in (target / "_spark_metadata").glob("[0-9]*") for line in log.read_text().splitlines()[1:]]
    return sorted({Path(urlsplit(json.loads(line)["path"]).path) for line in lines})


def _copies(spark: SparkSession, server: str, rows_per_batch: int) -> DataFrame:
    reader = spark.readStream.format("triolog").option("kafka.bootstrap.servers", server).option("subscribe", SOURCE)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(rows_per_batch))
    return reader.load().selectExpr(
        f"concat('{PREFIX}', upper(cast(value as string))) as value", "md5(value) as key", "timestamp"
    )


def batches_of(query: StreamingQuery) -> int:
    """Number of the last batch that is over, -1 before the first one."""
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId


@contextmanager
def copying_process(
    server: str, folder: Path, rows_per_batch: int, jvm_options: str, *cluster: str
) -> Iterator[subprocess.Popen[str]]:
    """The job as a process, the leader of a group that has its JVM too; the block ends with SIGKILL for what is left of it."""
    log = folder.with_name(folder.name + ".log")
    arguments = [server, str(folder), str(rows_per_batch), jvm_options, *cluster]
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    except BaseException as exc:
        exc.add_note("the job wrote:\n" + log.read_text(errors="replace")[-4000:])
        raise
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_for_batches(process: subprocess.Popen[str], count: int) -> bool:
    """Until the process has said so many batches; False when it ended before."""
    assert process.stdout is not None
    seen = 0
    while seen < count:
        line = process.stdout.readline()
        if not line:
            return False
        seen += line.startswith("batch ")
    return True


def main(server: str, folder: str, rows_per_batch: str, jvm_options: str, master: str = "local[2]", target: str = "") -> None:
    """Copy everything."""
    from triolog.tools.spark.session import session

    config = {
        "spark.driver.extraJavaOptions": jvm_options,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": jvm_options,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    spark = session("copy", master=master, config=config)
    spark.sparkContext.setLogLevel("ERROR")
    query = start_copying(spark, server, Path(folder), int(rows_per_batch))
    files = None
    if target:
        files = start_writing_parquet(spark, server, Path(folder + "-files"), int(rows_per_batch), Path(target))
    told = -1
    while query.isActive:
        if (last := batches_of(query)) > told:
            told = last
            sys.stdout.write(f"batch {told}\n")
            sys.stdout.flush()
        time.sleep(POLL_S)
    query.awaitTermination()
    if files is not None:
        files.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
