"""`triolog demo`: a year of flights into a server that is killed half way, out again, and a day found by time."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import click

from ...protocol.types import TimeRange, TopicPartition
from ..cli.terminal.walk_tree import walk_tree
from ..client.blocking import AtTime, BlockingAdmin, BlockingClient, BlockingConsumer, BlockingProducer
from .flights import (
    AIRPORTS,
    DAY,
    DAY_END,
    DAY_START,
    NEW_YORK,
    ROW_HEADER,
    TOPIC,
    Flight,
    find_source,
    load_flights,
    send_flight,
)
from .processes import Process, started_server
from .showing import Demo, as_json_option, data_dir_option, working_folder

MIN_ROWS: Final = 1000
"""Rows at even distances this close include some of the day that is looked up: it has 737 in a row."""
PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in range(len(AIRPORTS)))
CLEAN_MARKER: Final = ".kafka_cleanshutdown"
SIGKILL_STATUS: Final = -9
QUESTION: Final = """\
select carrier, count(*) as flights from flights
where timestamp >= '2013-07-04' and timestamp < '2013-07-05'
group by carrier order by flights desc, carrier"""

Places = dict[tuple[int, int], Flight]
"""Flights by partition and offset."""


@click.command
@data_dir_option
@click.option("--rows", type=click.IntRange(min=MIN_ROWS), metavar="N", help="N flights at even distances instead of all.")
@click.option(
    "--console",
    is_flag=False,
    flag_value="127.0.0.1:0",
    metavar="[HOST:PORT]",
    help="Show the data in a browser at the end, until Ctrl-C; 127.0.0.1 and any port by default.",
)
@as_json_option
def command(data_dir: Path | None, rows: int | None, console: str | None, as_json: bool) -> None:
    """Send a year of real flights through a socket, a SIGKILL, and out again by time.

    Exit code 0 when all checks held, 1 when one failed, 2 when the data is not installed, 3 when the server failed.
    """
    if console is not None and as_json:
        raise click.UsageError("--console is for people to look at, --json for programs; give one of them")
    source, demo = find_source(), Demo(is_quiet=as_json)
    with working_folder(data_dir) as (log_dir, work_dir):
        flights = load_flights(source, rows)
        demo.chapter("A year of departures from New York")
        with started_server(log_dir, work_dir) as server:
            demo.say(f"{len(flights):,} flights of 2013; triolog serve is process {server.pid}, durability fsync")
            with BlockingClient(lambda: server.address) as client:
                sent = _produce(demo, client, server, flights)
                _look_up(demo, client, _read_back(demo, client, sent))
                _read_day(demo, client, flights)
            status = server.stop()
        demo.figures["disk_bytes"] = sum(path.stat().st_size for path in log_dir.glob(f"{TOPIC}-*/*"))
        is_clean = status == 0 and (log_dir / CLEAN_MARKER).exists()
        demo.check(
            "the server stopped cleanly", is_clean, f"exit status {status}, {demo.figures['disk_bytes']:,} bytes on disk"
        )
        _ask(demo, flights, log_dir)
        if data_dir is not None:
            demo.say(f"Look at it with: triolog dump {data_dir}/flights-0/{0:020d}.log")
        if console is not None:
            _show(log_dir, work_dir, console)
    demo.end(data_dir)


def _produce(demo: Demo, client: BlockingClient, server: Process, flights: Sequence[Flight]) -> Places:
    """Send all flights and kill the server half way; return them by the places that were acknowledged."""
    demo.chapter("In: a partition for each airport, the tail number as key, the departure as timestamp")
    BlockingAdmin(client).create_topic(TOPIC, len(AIRPORTS), {"retention.ms": "-1"})
    begin, sent = time.perf_counter(), []
    with BlockingProducer(client) as producer:
        for number, flight in enumerate(flights):
            if number == len(flights) // 2:
                sent[0].result()  # some are acknowledged by now, however few were sent
                acknowledged = sum(record.is_done for record in sent)
                server.kill()
                status, recovery_ms = server.wait(), server.start()
            sent.append(send_flight(producer, TOPIC, flight))
        producer.flush()
    seconds = time.perf_counter() - begin
    demo.say(f"{len(flights):,} records in {seconds:.2f} s: {len(flights) / seconds:,.0f} records/s, kill included")
    demo.say(f"SIGKILL half way; a new process accepted requests within {recovery_ms:.0f} ms")
    demo.figures |= {"rows": len(flights), "produce_s": seconds, "acknowledged_at_kill": acknowledged}
    demo.figures |= {"recovery_ms": recovery_ms, "payload_bytes": sum(len(flight.value) for flight in flights)}
    detail = f"exit status {status} with {acknowledged:,} of {len(flights):,} acknowledged"
    demo.check("the server was killed while it was written to", status == SIGKILL_STATUS and acknowledged > 0, detail)
    return {(record.value().partition, record.value().offset): flight for record, flight in zip(sent, flights, strict=True)}


def _read(client: BlockingClient, times: TimeRange | None = None) -> Places:
    """Return the stored flights of these times, or all."""
    found: Places = {}
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(PARTITIONS, times=times)
        for (_, partition), record in consumer.records():
            row = dict(record.headers).get(ROW_HEADER) or b""
            found[partition, record.offset] = Flight(row, partition, record.key, record.timestamp, record.value or b"")
    return found


def _read_back(demo: Demo, client: BlockingClient, sent: Places) -> Places:
    demo.chapter("Out again: everything, compared with the source")
    begin = time.perf_counter()
    stored = _read(client)
    demo.say(f"{len(stored):,} records read in {time.perf_counter() - begin:.2f} s")
    demo.figures["stored"] = len(stored)
    differing = sum(stored.get(place) != flight for place, flight in sent.items())
    detail = f"{differing:,} missing or different, {len(stored.keys() - sent.keys()):,} more than were sent"
    demo.check("every flight is stored once, as it was sent, at the offset acknowledged for it", stored == sent, detail)
    return stored


def _look_up(demo: Demo, client: BlockingClient, stored: Places) -> None:
    demo.chapter(f"Where does {DAY} begin?")
    admin, begin = BlockingAdmin(client), time.perf_counter()
    found = admin.offsets_for_times(dict.fromkeys(PARTITIONS, DAY_START))
    demo.figures["lookup_us"] = (time.perf_counter() - begin) * 1e6
    demo.say(f"Looked up in {len(PARTITIONS)} partitions with one request: {demo.figures['lookup_us']:,.0f} us, there and back")
    explained: dict[int, int] = {}
    for partition in PARTITIONS:
        walk = admin.explain(partition, AtTime(DAY_START))
        explained[partition.partition] = walk["answer"]["offset"]
        demo.draw(walk_tree(AIRPORTS[partition.partition], walk, ZoneInfo(NEW_YORK)))
    demo.say("The records are out of order: the file holds the months in the order 1, 10, 11, 12, 2, ...,")
    demo.say("so what comes first at or after that midnight left in another month, and the day lies further on.")
    scanned: dict[int, int] = {}
    for (number, offset), flight in stored.items():
        if flight.timestamp >= DAY_START:
            scanned[number] = min(offset, scanned.get(number, offset))
    answers = {partition.partition: entry.offset for partition, entry in found.items()}
    demo.check("the lookup by time finds what a scan finds", answers == scanned, f"{answers}, a scan {scanned}")
    demo.check("the explained lookups come to the same", explained == scanned, f"{explained}")


def _read_day(demo: Demo, client: BlockingClient, flights: Sequence[Flight]) -> None:
    demo.chapter(f"{DAY} by time")
    found = sorted(_read(client, TimeRange(DAY_START, DAY_END)).values())
    demo.figures["day_flights"] = len(found)
    demo.table(("carrier", "flights"), ((name, f"{count:,}") for name, count in _carriers(found).items()))
    expected = sorted(flight for flight in flights if DAY_START <= flight.timestamp < DAY_END)
    detail = f"{len(found):,} read, the source has {len(expected):,}"
    demo.check("the day read by time is the day in the source", bool(expected) and found == expected, detail)


def _carriers(flights: Sequence[Flight]) -> Mapping[str, int]:
    counts = Counter(json.loads(flight.value)["carrier"] for flight in flights if DAY_START <= flight.timestamp < DAY_END)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _ask(demo: Demo, flights: Sequence[Flight], log_dir: Path) -> None:
    from ..sql.options import SqlOptions
    from ..sql.session import ask

    demo.chapter("A question in SQL, to files without a server: `triolog sql`")
    for line in QUESTION.splitlines():
        demo.say(line)
    with ask(str(log_dir), QUESTION, SqlOptions(time_zone=NEW_YORK)) as answer:
        found = [tuple(row.values()) for batch in answer.batches() for row in batch.to_pylist()]
    demo.check("the answer in SQL is the source's", found == [*_carriers(flights).items()], f"{len(found)} carriers")


def _show(log_dir: Path, work_dir: Path, console: str) -> None:
    """Serve the data once more, with a console at HOST:PORT, until it is interrupted."""
    with started_server(log_dir, work_dir, "--console", console) as server:
        page = f"http://{server.addresses['console']}"
        click.echo(f"The console: {page}/")
        click.echo(f"The Fourth of July: {page}/topics/{TOPIC}/records?at={DAY_START}&to={DAY_END}")
        click.echo(f"How a time is looked up: {page}/topics/{TOPIC}/walk?partition=0&at={DAY_START}")
        click.echo("Ctrl-C ends it.")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            server.stop()
