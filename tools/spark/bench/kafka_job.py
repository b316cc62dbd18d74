"""A measured job of `beside_kafka`, in a process of its own: `python -m triolog.tools.spark.bench.kafka_job JSON`.

The argument is a `Job`, the only line on standard output a `Measured`. The processor time is that of the driver from its first
instruction on, of the executors and of the server: what a job costs that `spark-submit` starts.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...client.blocking import BlockingClient
from .cpu import tree_cpu_by_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TIMEOUT_S: Final = 600
REPEATS: Final = 3
"""Of a short stream, beside the first one, in which processes start and Java compiles."""
RECORD_EVERY_S: Final = 0.5
SMALL_TOPIC: Final = "one-partition"
MANY_TOPIC: Final = "many-partitions"
LATENCY_TOPIC: Final = "latency"
START: Final = "start"
"""A job that reads nothing: what the start of the driver and the executors costs with any source."""
KINDS: Final = ("batch", "available-now", "small")
START_TASKS: Final = 8


@attrs.frozen(kw_only=True)
class Job:
    """The work of a process, and the processes whose time counts."""

    kind: str
    form: str
    """`triolog` or `kafka`."""
    master: str
    servers: str
    native: tuple[str, int]
    topic: str
    folder: str
    jars: str
    latency_records: int
    workers: tuple[int, ...]
    server: int


@attrs.frozen(kw_only=True)
class Measured:
    """Seconds by name: processor time of a program in a place (`driver java`), or time on the clock."""

    cpu_s: dict[str, float]
    clock_s: dict[str, float]


def main(argument: str) -> None:
    """Run the job and print what it took."""
    job = Job(**json.loads(argument))
    before = _cpu(job)
    from ..session import session

    config = {
        "spark.driver.memory": "2g",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": job.jars,
    }
    spark = session("beside Kafka's source", master=job.master, config=config, is_quiet=True)
    clock_s = {START: _start, "batch": _batch, "available-now": _available_now, "small": _small}[job.kind](spark, job)
    after = _cpu(job)
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    sys.stdout.write(json.dumps(attrs.asdict(Measured(cpu_s=used, clock_s=clock_s))) + "\n")
    sys.stdout.flush()
    spark.stop()


def _cpu(job: Job) -> dict[str, float]:
    found = {f"driver {name}": seconds for name, seconds in tree_cpu_by_program(os.getpid()).items()}
    for worker in job.workers:
        for name, seconds in tree_cpu_by_program(worker).items():
            found[f"executors {name}"] = found.get(f"executors {name}", 0.0) + seconds
    found["server"] = sum(tree_cpu_by_program(job.server).values())
    return found


def _start(spark: SparkSession, job: Job) -> dict[str, float]:
    rows = spark.range(0, START_TASKS, 1, START_TASKS)
    return {START: _timed(lambda: rows.write.format("noop").mode("overwrite").save())}


def _batch(spark: SparkSession, job: Job) -> dict[str, float]:
    rows = spark.read.format(job.form).options(**_place(job, job.topic)).load()
    return {"batch": _timed(lambda: rows.write.format("noop").mode("overwrite").save())}


def _available_now(spark: SparkSession, job: Job) -> dict[str, float]:
    return {"available now": _timed(lambda: _stream(spark, job, job.topic, "all").awaitTermination(TIMEOUT_S))}


def _small(spark: SparkSession, job: Job) -> dict[str, float]:
    many = spark.read.format(job.form).options(**_place(job, MANY_TOPIC))
    return {
        "first batch of a stream": _median(lambda number: _stream(spark, job, SMALL_TOPIC, number).awaitTermination(TIMEOUT_S)),
        "many partitions": _timed(lambda: many.load().count()),  # once: Kafka's source takes a minute
        "latency p95": _latency_p95(spark, job),
    }


def _latency_p95(spark: SparkSession, job: Job) -> float:
    """Append a record every RECORD_EVERY_S, and return the 95th percentile of the time until the batch with it is over."""
    query = _stream(spark, job, LATENCY_TOPIC, "latency", {"processingTime": "0 seconds"})
    appended: list[float] = []
    with BlockingClient(job.native) as client:
        first = client.append(LATENCY_TOPIC, [b"x"]).last_offset + 1  # the first batch is measured elsewhere
        query.processAllAvailable()
        due = time.monotonic()
        for _ in range(job.latency_records):
            due += RECORD_EVERY_S
            threading.Event().wait(max(0.0, due - time.monotonic()))
            appended.append(time.time())
            client.append(LATENCY_TOPIC, [b"x"])
        query.processAllAvailable()
    ends = [_end(progress) for progress in query.recentProgress if progress.numInputRows]
    query.stop()
    waited = [
        next(time_s for offset, time_s in ends if offset > first + number) - appended_s
        for number, appended_s in enumerate(appended)
    ]
    return statistics.quantiles(waited, n=20)[-1]


def _end(progress: Any) -> tuple[int, float]:
    """Return the offset that a batch has reached, and the time when it was over."""
    began = datetime.fromisoformat(progress.timestamp).timestamp()
    offset = json.loads(progress.sources[0].endOffset)[LATENCY_TOPIC]["0"]
    return offset, began + progress.durationMs["triggerExecution"] / 1000


ONCE: Final = {"availableNow": True}


def _stream(spark: SparkSession, job: Job, topic: str, name: object, trigger: dict[str, Any] = ONCE) -> StreamingQuery:
    rows = spark.readStream.format(job.form).options(**_place(job, topic), startingOffsets="earliest").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", f"{job.folder}/{topic}-{name}")
    return writer.trigger(**trigger).start()


def _place(job: Job, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job.servers, "subscribe": topic}


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _median(work: Callable[[int], object]) -> float:
    return statistics.median([_timed(lambda number=number: work(number)) for number in range(REPEATS + 1)][1:])  # type: ignore[misc]


if __name__ == "__main__":
    main(sys.argv[1])
