"""A streaming job that reads a topic, changes every row and writes another, to be killed: `python -m tests.support.spark_copy`.

Its arguments are the server, the folder of the checkpoint, the most rows of a batch and the options of its JVM. It says
`batch N` when a batch is over. A process that is started on the same folder goes on where the last one was.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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
    reader = spark.readStream.format("triolog").option("kafka.bootstrap.servers", server).option("subscribe", SOURCE)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(rows_per_batch))
    rows = reader.load().selectExpr(
        f"concat('{PREFIX}', upper(cast(value as string))) as value", "md5(value) as key", "timestamp"
    )
    writer = rows.writeStream.format("triolog").option("kafka.bootstrap.servers", server).option("topic", SINK)
    return writer.option("checkpointLocation", str(folder)).outputMode("append").trigger(availableNow=True).start()


def batches_of(query: StreamingQuery) -> int:
    """Number of the last batch that is over, -1 before the first one."""
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId


@contextmanager
def copying_process(server: str, folder: Path, rows_per_batch: int, jvm_options: str) -> Iterator[subprocess.Popen[str]]:
    """The job as a process, the leader of a group that has its JVM too; the block ends with SIGKILL for what is left of it."""
    log = folder.with_name(folder.name + ".log")
    arguments = [server, str(folder), str(rows_per_batch), jvm_options]
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


def main(server: str, folder: str, rows_per_batch: str, jvm_options: str) -> None:
    """Copy everything."""
    from triolog.tools.spark.session import session

    config = {
        "spark.driver.extraJavaOptions": jvm_options,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    spark = session("copy", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    query = start_copying(spark, server, Path(folder), int(rows_per_batch))
    told = -1
    while query.isActive:
        if (last := batches_of(query)) > told:
            told = last
            sys.stdout.write(f"batch {told}\n")
            sys.stdout.flush()
        time.sleep(POLL_S)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
