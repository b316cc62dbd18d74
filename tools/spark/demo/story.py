"""The Spark demo from the first start of the server to the sums: what happens, in order, and what is claimed of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from ....protocol.types import Record, TopicPartition
from ...client.admin import Admin
from ...client.config import ClientConfig
from ...client.connection import Client, connect
from ...client.consumer import open_consumer
from ...client.producer import open_producer
from ...demo.flights import AIRPORTS, Flight, row_of, send_flight
from ...demo.processes import started_server
from ...demo.showing import Demo
from .job import DEPARTURES, FLIGHTS, HOURS, PARQUET, Settings
from .job_process import KillPoint, run_job
from .tables import DAY_MS, HOUR_MS, Group, Sums, add_hour, disorder_ms, recompute, sums_by_carrier, together

KEEP_ALL: Final = {"retention.ms": "-1"}
"""The flights are of 2013; a topic with the default would delete them."""
BATCHES: Final = 8
"""Of each streaming part; a job that is killed twice needs some to be killed between."""
KILLED_PARTS: Final = (DEPARTURES, HOURS)
SIGKILL_STATUS: Final = -9


def kill_points(seed: int, batches: int = BATCHES) -> list[KillPoint]:
    """Return one for each streaming part, about its middle; the seed decides how far into a batch."""
    random = Random(seed)
    return [KillPoint(part, random.randint(batches // 4, batches // 2), random.random()) for part in KILLED_PARTS]


def watermark_ms(timestamps: Sequence[int]) -> tuple[int, int]:
    """Return a delay and the span of all times; the delay is the span in whole days, rounded up.

    A record is late when it is more than the delay behind the greatest time that was read before. No two times are further
    apart than the span, so with this delay none is, in whatever order partitions and batches are read.
    """
    span = max(timestamps) - min(timestamps)
    return (span // DAY_MS + 1) * DAY_MS, span


async def run_job_story(
    demo: Demo,
    source: Path,
    flights: Sequence[Flight],
    data_dir: Path,
    work_dir: Path,
    *,
    seed: int,
    config: Mapping[str, str],
) -> None:
    """Run all chapters."""
    timestamps = [flight.timestamp for flight in flights]
    delay, span = watermark_ms(timestamps)
    async with started_server(data_dir, work_dir) as server:
        async with connect(server.address, config=ClientConfig(client_id="spark-demo")) as client:
            demo.chapter("A year of departures from New York, in a log")
            await _produce(demo, client, flights)
            demo.chapter("Through Spark, exactly once")
            disorder = disorder_ms(timestamps) / DAY_MS
            demo.say(
                f"The file holds the months in the order 1, 10, 11, 12, 2, ...: records are up to {disorder:.0f} days late."
            )
            demo.say(
                f"The watermark waits {delay / DAY_MS:.0f} days, as long as all times span, so no order of reading makes a"
            )
            demo.say("record late; one closing record after the last flight closes every hour.")
            settings = Settings(
                servers="{}:{}".format(*server.address),
                folder=str(work_dir / "job"),
                tables=str(source.parent),
                rows_per_batch=-(-len(flights) // BATCHES),
                delay_ms=delay,
                closing_ms=max(timestamps) + 2 * HOUR_MS + delay,
                config=config,
            )
            lines = await _run_job(demo, settings, work_dir / "job.log", kill_points(seed))
            dropped = sum(line.get("dropped", 0) for line in lines)
            detail = f"{dropped} rows dropped; delay {delay / DAY_MS:.1f} days, all times within {span / DAY_MS:.1f} days"
            demo.check("the watermark dropped nothing", not dropped and delay >= span, detail)
            demo.figures |= {"batches": sum("batch" in line for line in lines), "dropped_by_watermark": dropped}
            results = await read_results(client, work_dir / "job")
        status = server.stop()
    judge(demo, flights, results, await trio.to_thread.run_sync(recompute, source, flights))
    demo.check("the server stopped cleanly", status == 0, f"exit status {status}")


async def _produce(demo: Demo, client: Client, flights: Sequence[Flight]) -> None:
    """Send all flights to a new topic, in the order of the file."""
    for topic in (FLIGHTS, DEPARTURES, HOURS):
        await Admin(client).create_topic(topic, len(AIRPORTS), KEEP_ALL)
    begin = time.perf_counter()
    async with open_producer(client) as producer:
        sent = [await send_flight(producer, FLIGHTS, flight, number) for number, flight in enumerate(flights)]
        await producer.flush()
    seconds = time.perf_counter() - begin
    demo.say(f"{len(flights):,} flights in {seconds:.1f} s into topic {FLIGHTS}, retention.ms=-1")
    demo.figures |= {"rows": len(flights), "produce_s": seconds}
    acknowledged = sum(record.value().offset >= 0 for record in sent)
    detail = f"{acknowledged:,} of {len(flights):,}"
    demo.check("every flight was acknowledged before the job began", acknowledged == len(flights), detail)


async def _run_job(demo: Demo, settings: Settings, log: Path, kills: Sequence[KillPoint]) -> list[dict[str, Any]]:
    """Run the job to its end with these kills on the way; return everything that it said."""

    def said(line: Mapping[str, Any]) -> None:
        what = f" batch {line['batch']:>2}: {line['rows']:>7,} rows in {line['seconds']:.1f} s" if "batch" in line else ""
        demo.say(f"{line['part']:<10}{what}")

    begin = time.perf_counter()
    runs = await run_job(settings, kills, log, said)
    demo.figures |= {"job_s": time.perf_counter() - begin, "kills": [attrs.asdict(kill) for kill in kills]}
    statuses = [run.exit_status for run in runs]
    points = ", ".join(f"{kill.part} {kill.share:.0%} of a batch after number {kill.batch}" for kill in kills)
    demo.check(
        "the job was killed in the middle and came to its end",
        statuses == [*[SIGKILL_STATUS] * len(kills), 0] and [run.killed for run in runs] == [*kills, None],
        f"exit statuses {', '.join(map(str, statuses))}; killed in {points}",
    )
    return [line for run in runs for line in run.lines]


@attrs.define(eq=False, repr=False)
class Results:
    """The output of the job, read without Spark: both topics by a consumer, the table by pyarrow."""

    departures: Counter[bytes] = attrs.Factory(Counter)
    """How often the number of a source row is in the topic of departures; empty for records that name none."""
    hours: dict[Group, Sums] = attrs.Factory(dict)
    hour_records: int = 0
    parquet: dict[Group, Sums] = attrs.Factory(dict)
    parquet_rows: int = 0


async def read_results(client: Client, folder: Path) -> Results:
    """Read everything, from the first offset to the last."""
    import pyarrow.parquet

    results = Results()

    def add(record: Record) -> None:
        results.hour_records += 1
        add_hour(results.hours, json.loads(record.value or b"{}"))

    await _read(client, DEPARTURES, lambda record: results.departures.update([row_of(record)]))
    await _read(client, HOURS, add)
    for row in pyarrow.parquet.read_table(folder / PARQUET).to_pylist():
        results.parquet_rows += 1
        add_hour(results.parquet, row)
    return results


async def _read(client: Client, topic: str, take: Callable[[Record], object]) -> None:
    async with open_consumer(client, follow=False) as consumer:
        await consumer.assign([TopicPartition(topic, number) for number in range(len(AIRPORTS))])
        async for batch in consumer:
            for record in batch.records():
                take(record)


def judge(demo: Demo, flights: Sequence[Flight], results: Results, expected: Mapping[Group, Sums]) -> None:
    """Compare the results with the flights, and with a plain recomputation of the sums from the CSV files."""
    demo.chapter("Delay by carrier")
    carriers = sums_by_carrier(results.hours)
    cells = ((name, f"{sums.flights:,}", f"{sums.mean_delay or 0:+.1f} min", f"{sums.wet:,}") for name, sums in carriers)
    demo.table(("carrier", "flights", "mean delay", "in wet hours"), cells)
    found = results.departures
    demo.figures |= {
        "departures": found.total() - found[b""],
        "hours": len(results.hours),
        "parquet_rows": results.parquet_rows,
    }
    missing = sum(flight.row not in found for flight in flights)
    doubled = found.total() - len(found)
    demo.check(
        "every flight is in the topic of departures exactly once",
        not missing and not doubled and len(found) == len(flights) + 1 and found[b""] == 1,
        f"{found.total():,} records: {missing:,} missing, {doubled:,} doubled, {found[b'']} closing",
    )
    stored = {"topic": (results.hours, results.hour_records), "Parquet table": (results.parquet, results.parquet_rows)}
    for name, (hours, rows) in stored.items():
        lacking, foreign = len(expected.keys() - hours.keys()), len(hours.keys() - expected.keys())
        wrong = [
            f"{group} has {hours[group]}, the files give {sums}"
            for group, sums in expected.items()
            if hours.get(group, sums) != sums
        ]
        detail = f"{lacking} missing, {foreign} foreign, {len(wrong)} wrong, {rows - len(hours)} repeated"
        is_equal = bool(expected) and hours == expected and rows == len(hours)
        demo.check(f"every hour in the {name} is that of the files", is_equal, "; ".join([detail, *wrong[:1]]))
    ours, theirs = together(results.hours.values()), together(expected.values())
    detail = f"{ours}; the files: {theirs}"
    demo.check("totals equal a plain recomputation from the CSV files", ours == theirs and bool(ours.flights), detail)
