"""The Spark demo from the first start of the server to the picture: what happens, in order, and what is claimed of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from ...client.admin import Admin
from ...client.config import ClientConfig
from ...client.connection import Client, connect
from ...client.producer import SentRecord, open_producer
from ...demo.checks import Check
from ...demo.ending import DemoFindings
from ...demo.flights import AIRPORTS, Flight
from ...demo.reading import ROW_HEADER
from ...demo.server_process import open_server
from ...demo.telling import Narrator, Telling
from . import checks, plot
from .job import DEPARTURES, FLIGHTS, HOURS, Settings
from .job_process import KillPoint, Run, rows_per_batch, run_job
from .results import PARTITIONS, Results, read_results
from .tables import DAY_MS, HOUR_MS, Group, Sums, disorder_ms, recompute

KEEP_ALL: Final = {"retention.ms": "-1"}
"""The flights are of 2013; a topic with the default would delete them."""
BATCHES: Final = 8
"""Of each streaming part; a job that is killed twice needs some to be killed between."""
KILLED_PARTS: Final = (DEPARTURES, HOURS)
CHECKPOINT_RECORDS: Final = 256
"""How many records are handed to the producer before other tasks get a turn."""


class JobNarrator(Narrator):
    """Of this demo."""

    def produced(self, count: int, seconds: float, address: tuple[str, int]) -> None:
        """All flights are in the log."""

    def watermark(self, delay_ms: int, span_ms: int, disorder: int) -> None:
        """The delay is chosen."""

    def job_said(self, line: Mapping[str, Any]) -> None:
        """A line of the job."""

    def job_ended(self, runs: Sequence[Run], seconds: float) -> None:
        """The job is done."""

    def result(self, hours: Mapping[Group, Sums], picture: Path | None) -> None:
        """The sums, and where the picture is."""


def kill_points(seed: int, batches: int = BATCHES) -> list[KillPoint]:
    """One in each streaming part, about its middle; the seed decides how far into a batch."""
    random = Random(seed)
    return [KillPoint(part, random.randint(batches // 4, batches // 2), random.random()) for part in KILLED_PARTS]


def watermark_ms(timestamps: Sequence[int]) -> tuple[int, int]:
    """(delay, span): the span of all times in whole days, rounded up.

    A record is late when it is more than the delay behind the greatest time that was read before. No two times are further
    apart than the span, so with this delay none is, in whatever order partitions and batches are read.
    """
    span = max(timestamps) - min(timestamps)
    return (span // DAY_MS + 1) * DAY_MS, span


async def run_job_story(
    source: Path,
    flights: Sequence[Flight],
    data_dir: Path,
    work_dir: Path,
    *,
    seed: int,
    narrator: JobNarrator,
    picture: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> DemoFindings:
    """Run the demo. Raises TriologError, ServerFailedError, JobFailedError or a group of them when it cannot go on."""
    telling = Telling(narrator)
    check = telling.check
    timestamps = [flight.timestamp for flight in flights]
    delay, span = watermark_ms(timestamps)
    disorder = disorder_ms(timestamps)

    async with open_server(data_dir, work_dir) as server:
        async with connect(address=server.address, config=ClientConfig(client_id="spark-demo")) as client:
            begin = time.perf_counter()
            acknowledged = await _produce(client, flights)
            seconds = time.perf_counter() - begin
            narrator.produced(len(flights), seconds, server.address())
            telling.note(rows=len(flights), produce_s=seconds)
            narrator.watermark(delay, span, disorder)
            host, port = server.address()
            settings = Settings(
                servers=f"{host}:{port}",
                folder=str(work_dir / "job"),
                tables=str(source.parent),
                rows_per_batch=rows_per_batch(len(flights), BATCHES),
                delay_ms=delay,
                closing_ms=max(timestamps) + 2 * HOUR_MS + delay,
                config=config or {},
            )
            begin = time.perf_counter()
            kills = kill_points(seed)
            runs = await run_job(settings, kills, work_dir / "job.log", narrator.job_said)
            seconds = time.perf_counter() - begin
            narrator.job_ended(runs, seconds)
            results = await read_results(client, work_dir / "job")
        status = await server.stop()
    if picture is not None:
        await trio.to_thread.run_sync(plot.draw, results.hours, picture)
    narrator.result(results.hours, picture)
    expected = await trio.to_thread.run_sync(recompute, source, flights)
    telling.note(**_figures(runs, results, seconds, delay, span, disorder))
    check(
        Check(
            "every flight was acknowledged before the job began",
            acknowledged == len(flights),
            f"{acknowledged:,} of {len(flights):,}",
        )
    )
    check(checks.job_killed_in_the_middle(runs, len(kills)))
    check(checks.nothing_dropped(runs, delay, span, disorder))
    check(checks.departures_once(flights, results))
    check(checks.hours_equal("every hour in the topic is that of the files", results.hours, results.repeated_hours, expected))
    repeated = results.parquet_rows - len(results.parquet)
    check(checks.hours_equal("every hour in the Parquet table is that of the files", results.parquet, repeated, expected))
    check(checks.totals_equal(results.hours, expected))
    check(Check("the server stopped in order", status == 0, f"exit status {status}"))
    return telling.findings


async def _produce(client: Client, flights: Sequence[Flight]) -> int:
    """All flights into a new topic, in the order of the file; how many were acknowledged."""
    admin = Admin(client)
    for topic in (FLIGHTS, DEPARTURES, HOURS):
        await admin.create_topic(topic, PARTITIONS, KEEP_ALL)
    assert len(AIRPORTS) == PARTITIONS
    sent: list[SentRecord] = []
    async with open_producer(client) as producer:
        for number, (row, partition, key, timestamp, value) in enumerate(flights):
            headers = ((ROW_HEADER, row),)
            options: dict[str, Any] = {"key": key, "timestamp_ms": timestamp, "partition": partition, "headers": headers}
            if number % CHECKPOINT_RECORDS:
                try:
                    sent.append(producer.send_nowait(FLIGHTS, value, **options))
                    continue
                except trio.WouldBlock:
                    pass
            sent.append(await producer.send(FLIGHTS, value, **options))
        await producer.flush()
    return sum(record.value().offset >= 0 for record in sent)


def _figures(runs: Sequence[Run], results: Results, seconds: float, delay: int, span: int, disorder: int) -> dict[str, Any]:
    lines = [line for run in runs for line in run.lines]
    return {
        "job_s": seconds,
        "kills": [attrs.asdict(run.killed) for run in runs if run.killed is not None],
        "batches": sum("batch" in line for line in lines),
        "dropped_by_watermark": sum(line.get("dropped", 0) for line in lines),
        "watermark_days": delay / DAY_MS,
        "span_days": span / DAY_MS,
        "disorder_days": disorder / DAY_MS,
        "departures": results.departures.total(),
        "hours": len(results.hours),
        "parquet_rows": results.parquet_rows,
    }
