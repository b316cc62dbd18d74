"""The story of `triolog demo`: flights into a server that is killed half way, out again, and a day found by time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import attrs
import trio

from ...protocol.types import Record, TimeRange, TopicPartition
from ..cli.terminal.walk_tree import walk_tree
from ..client.admin import Admin
from ..client.config import ClientConfig
from ..client.connection import Client, connect
from ..client.consumer import open_consumer
from ..client.procedures.topics import AtTime
from ..client.producer import SentRecord, open_producer
from .flights import AIRPORTS, DAY, DAY_END, DAY_START, NEW_YORK, TOPIC, Flight, row_of, send_flight
from .processes import Process, started_server
from .showing import Demo

PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in range(len(AIRPORTS)))
CLEAN_MARKER: Final = ".kafka_cleanshutdown"
SIGKILL_STATUS: Final = -9
LOOKUP_ROUNDS: Final = 200
QUESTION: Final = """\
select carrier, max(arr_delay) as latest, count(distinct tailnum) as aircraft from flights
where timestamp >= '2013-07-04' and timestamp < '2013-07-05'
group by carrier order by latest desc nulls last, carrier limit 5"""
"""Its answer is the same when a flight is stored twice."""


class Acknowledged(NamedTuple):
    """The place that was acknowledged for a flight."""

    partition: int
    offset: int


@attrs.define(eq=False, repr=False)
class Copy:
    """The rows of a partition by offset, with the differences from the source."""

    rows: list[bytes] = attrs.field(factory=list)
    times: list[int] = attrs.field(factory=list)
    gaps: list[str] = attrs.field(factory=list)
    differing: list[str] = attrs.field(factory=list)

    def add(self, partition: int, record: Record, flights: Mapping[bytes, Flight]) -> None:
        """Take the next record of the partition; `flights` are the source, by row."""
        row = row_of(record)
        if record.offset != len(self.rows):
            self.gaps.append(f"{AIRPORTS[partition]}: offset {record.offset}, expected {len(self.rows)}")
        if flights.get(row) != (row, partition, record.key, record.timestamp, record.value) or len(record.headers) != 1:
            self.differing.append(f"{AIRPORTS[partition]} {record.offset}: {record!r}")
        self.rows.append(row)
        self.times.append(record.timestamp)


async def run_story(demo: Demo, flights: Sequence[Flight], data_dir: Path, work_dir: Path, seed: int) -> None:
    """Run all chapters."""
    async with started_server(data_dir, work_dir) as server:
        demo.say(f"triolog serve is process {server.pid}, durability fsync, data in {data_dir}")
        async with connect(lambda: server.address, config=ClientConfig(client_id="demo")) as client:
            acknowledged = await _produce(demo, client, server, flights, kill_at=kill_point(len(flights), seed))
            copies = await _read_back(demo, client, flights, acknowledged)
            await _look_up(demo, client, copies)
            await _consume_day(demo, client, flights)
        demo.chapter("On disk, after a clean shutdown")
        status = server.stop()
    size = sum(path.stat().st_size for partition in PARTITIONS for path in (data_dir / str(partition)).iterdir())
    demo.say(f"{size:,} bytes; `triolog du --data-dir {data_dir}` shows what of")
    demo.figures["disk_bytes"] = size
    is_marked = (data_dir / CLEAN_MARKER).exists()
    how = f"exit status {status}, {'marked' if is_marked else 'not marked'} as a clean shutdown"
    demo.check("the server stopped cleanly", status == 0 and is_marked, how)
    await trio.to_thread.run_sync(_ask, demo, flights, data_dir)


def kill_point(total: int, seed: int) -> int:
    """Return the record whose acknowledgement draws the SIGKILL: about the middle one."""
    return int(total * Random(seed).uniform(0.45, 0.55))


async def _produce(
    demo: Demo, client: Client, server: Process, flights: Sequence[Flight], *, kill_at: int
) -> list[Acknowledged]:
    demo.chapter("In: a partition for each airport, the tail number as key, the departure as timestamp")
    await Admin(client).create_topic(TOPIC, len(AIRPORTS), {"retention.ms": "-1"})
    sent: list[SentRecord] = []
    killed, kill = trio.Event(), dict[str, Any]()

    def kill_server() -> None:
        server.kill()
        kill.update(acknowledged=sum(record.is_done for record in sent), after_s=time.perf_counter() - begin)
        killed.set()

    async def restart() -> None:
        await killed.wait()
        kill["status"] = await trio.to_thread.run_sync(server.wait)
        kill["recovery_ms"] = await trio.to_thread.run_sync(server.start)

    begin = time.perf_counter()
    async with open_producer(client) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(restart)
        for number, flight in enumerate(flights):
            if number == max(kill_at + 1, len(flights) * 3 // 4):
                await killed.wait()  # so that some are left to send
            sent.append(await send_flight(producer, TOPIC, flight, number))
            if number == kill_at:
                sent[-1].add_listener(kill_server)
        await producer.flush()
    seconds = time.perf_counter() - begin
    size = sum(len(flight.key or b"") + len(flight.value) for flight in flights)
    demo.say(
        f"{len(flights):,} records acknowledged in {seconds:.2f} s: {len(flights) / seconds:,.0f} records/s, kill included"
    )
    demo.say(f"SIGKILL after {kill['after_s']:.2f} s; a new process accepted within {kill['recovery_ms']:.0f} ms")
    demo.figures |= {"rows": len(flights), "payload_bytes": size, "produce_s": seconds, "mb_per_s": size / 1e6 / seconds}
    demo.figures |= {"acknowledged_at_kill": kill["acknowledged"], "recovery_ms": kill["recovery_ms"]}
    is_middle = 0 < kill["acknowledged"] < len(flights) and kill["status"] == SIGKILL_STATUS
    how = f"exit status {kill['status']} with {kill['acknowledged']:,} of {len(flights):,} acknowledged"
    demo.check("the server was killed in the middle of production", is_middle, how)
    places = [Acknowledged(found.partition, found.offset) for found in (record.value() for record in sent)]
    misplaced = sum(flight.partition != place.partition for flight, place in zip(flights, places, strict=True))
    distinct = len(set(places))
    demo.check(
        "every flight was acknowledged, each at an offset of its own",
        distinct == len(flights) and not misplaced,
        f"{len(flights):,} acknowledged at {distinct:,} places, {misplaced} in a wrong partition",
    )
    return places


async def _read(client: Client, times: TimeRange | None, take: Callable[[int, Record], None]) -> float:
    """Hand the records of these times, or all, to `take`, each with its partition. Return the seconds that took."""
    begin = time.perf_counter()
    async with open_consumer(client, follow=False) as consumer:
        await consumer.assign(PARTITIONS, times=times)
        async for batch in consumer:
            for record in batch.records():
                take(batch.partition.partition, record)
    return time.perf_counter() - begin


async def _read_back(demo: Demo, client: Client, flights: Sequence[Flight], acknowledged: Sequence[Acknowledged]) -> list[Copy]:
    demo.chapter("Out again: everything, compared with the source")
    by_row = {flight.row: flight for flight in flights}
    copies = [Copy() for _ in AIRPORTS]
    seconds = await _read(client, None, lambda partition, record: copies[partition].add(partition, record, by_row))
    stored = sum(len(copy.rows) for copy in copies)
    demo.say(f"{stored:,} records read in {seconds:.2f} s: {stored / seconds:,.0f} records/s, each compared")
    demo.figures["read_records_per_s"] = stored / seconds
    judge_copies(demo, flights, acknowledged, copies)
    return copies


def judge_copies(demo: Demo, flights: Sequence[Flight], acknowledged: Sequence[Acknowledged], copies: Sequence[Copy]) -> None:
    """Check that the log has each flight once, as it was sent, where it was acknowledged."""
    stored = sum(len(copy.rows) for copy in copies)
    differing = [each for copy in copies for each in copy.differing]
    detail = "; ".join([f"{len(differing):,} of {stored:,} differ", *differing[:1]])
    demo.check("every record read back equals its row of the source", bool(stored) and not differing, detail)
    lost = [
        f"row {flight.row.decode()} is not at {AIRPORTS[partition]} {offset}"
        for flight, (partition, offset) in zip(flights, acknowledged, strict=True)
        if not 0 <= offset < len(copies[partition].rows) or copies[partition].rows[offset] != flight.row
    ]
    detail = "; ".join([f"{len(lost):,} of {len(flights):,} are not", *lost[:1]])
    demo.check("every acknowledged record is at the offset acknowledged for it", not lost, detail)
    rows, expected = set().union(*(copy.rows for copy in copies)), {flight.row for flight in flights}
    duplicates = stored - len(rows)
    detail = f"{len(rows):,} distinct rows, {len(expected - rows):,} missing, {duplicates:,} duplicates"
    demo.check("every row of the source is in the log exactly once", rows == expected and not duplicates, detail)
    gaps = [gap for copy in copies for gap in copy.gaps]
    spans = (f"{AIRPORTS[number]} 0-{len(copy.rows) - 1:,}" for number, copy in enumerate(copies))
    demo.check("offsets are consecutive", not gaps, "; ".join(gaps[:3]) or ", ".join(spans))
    demo.figures |= {"stored": stored, "duplicates": duplicates}


async def _look_up(demo: Demo, client: Client, copies: Sequence[Copy]) -> None:
    demo.chapter(f"Where does {DAY} begin?")
    admin, begin = Admin(client), time.perf_counter()
    for _ in range(LOOKUP_ROUNDS):
        found = await admin.offsets_for_times(dict.fromkeys(PARTITIONS, DAY_START))
    lookup_us = (time.perf_counter() - begin) / LOOKUP_ROUNDS * 1e6
    walks = {name: await admin.explain(name, AtTime(DAY_START)) for name in PARTITIONS}
    demo.say(f"Looked up in {len(PARTITIONS)} partitions with one request: {lookup_us:,.0f} us, there and back")
    for name, walk in walks.items():
        demo.draw(walk_tree(AIRPORTS[name.partition], walk, ZoneInfo(NEW_YORK)))
    demo.say("The records are out of order: the file holds the months in the order 1, 10, 11, 12, 2, ...,")
    demo.say("so the first record at or after that midnight left in another month, and the day begins further on.")
    answers = {name.partition: (entry.offset, entry.timestamp) for name, entry in found.items()}
    explained = {name.partition: (walk["answer"]["offset"], walk["answer"]["timestamp"]) for name, walk in walks.items()}
    demo.figures |= {"lookup_us": lookup_us, "lookups": {AIRPORTS[at]: offset for at, (offset, _) in answers.items()}}
    demo.check("the lookup by time finds what a scan finds", *compare_lookups(answers, copies))
    demo.check("the explained lookups come to the same", *compare_lookups(explained, copies))


def compare_lookups(answers: Mapping[int, tuple[int, int]], copies: Sequence[Copy]) -> tuple[bool, str]:
    """Compare lookups of the day's start with a scan; return whether they are equal, and the offsets or what differs."""
    scanned = [next(((offset, at) for offset, at in enumerate(copy.times) if at >= DAY_START), (-1, -1)) for copy in copies]
    wrong = [
        f"{AIRPORTS[number]}: {answers.get(number)}, a scan finds {expected}"
        for number, expected in enumerate(scanned)
        if answers.get(number) != expected
    ]
    return not wrong, "; ".join(wrong) or ", ".join(f"{AIRPORTS[at]} {offset:,}" for at, (offset, _) in answers.items())


async def _consume_day(demo: Demo, client: Client, flights: Sequence[Flight]) -> None:
    demo.chapter(f"{DAY} by time")
    found: dict[bytes, bytes | None] = {}

    day = TimeRange(DAY_START, DAY_END)
    seconds = await _read(client, day, lambda _, record: found.update({row_of(record): record.value}))
    demo.say(f"{len(found):,} flights read in {seconds:.2f} s, although no offset begins or ends the day")
    delays: dict[str, list[int]] = {}
    for value in found.values():
        row = json.loads(value or b"{}")
        delays.setdefault(row["carrier"], []).extend([] if row["dep_delay"] is None else [row["dep_delay"]])
    lines = sorted(delays.items(), key=lambda each: (-len(each[1]), each[0]))
    means = ((name, f"{len(late):,}", f"{sum(late) / len(late):+.1f} min" if late else "-") for name, late in lines)
    demo.table(("carrier", "left", "mean delay"), means)
    demo.figures |= {"day_flights": len(found), "day_s": seconds}
    expected = {flight.row: flight.value for flight in flights if DAY_START <= flight.timestamp < DAY_END}
    missing, foreign = len(expected.keys() - found.keys()), len(found.keys() - expected.keys())
    differing = sum(found.get(row, value) != value for row, value in expected.items())
    detail = f"{len(expected):,} rows: {missing} missing, {foreign} that do not belong, {differing} that differ"
    demo.check("the day consumed by time is the day in the source", bool(expected) and found == expected, detail)


def _ask(demo: Demo, flights: Sequence[Flight], data_dir: Path) -> None:
    from ..sql.options import SqlOptions
    from ..sql.session import ask

    demo.chapter("A question in SQL, to files without a server: `triolog sql`")
    for line in QUESTION.splitlines():
        demo.say(line)
    begin = time.perf_counter()
    with ask(str(data_dir), QUESTION, SqlOptions(time_zone=NEW_YORK)) as answer:
        found = [tuple(row.values()) for batch in answer.batches() for row in batch.to_pylist()]
    demo.figures["sql_s"] = time.perf_counter() - begin
    demo.table(("carrier", "latest", "aircraft"), ([str(cell) for cell in row] for row in found))
    expected = expected_answer(flights)
    differing = sum(mine != theirs for mine, theirs in zip(found, expected, strict=False)) + abs(len(found) - len(expected))
    demo.check(
        "the answer in SQL is the source's", bool(expected) and not differing, f"{len(expected)} rows, {differing} differ"
    )


def expected_answer(flights: Sequence[Flight]) -> list[tuple[str, int | None, int]]:
    """Return what the source answers to QUESTION: carrier, latest arrival in minutes, how many aircraft."""
    found: dict[str, tuple[set[int], set[str]]] = {}
    for flight in flights:
        if DAY_START <= flight.timestamp < DAY_END:
            row = json.loads(flight.value)
            delays, aircraft = found.setdefault(row["carrier"], (set(), set()))
            delays.update(() if row["arr_delay"] is None else (row["arr_delay"],))
            aircraft.update(() if row["tailnum"] is None else (row["tailnum"],))
    lines = [(name, max(delays, default=None), len(aircraft)) for name, (delays, aircraft) in found.items()]
    return sorted(lines, key=lambda each: (each[1] is None, -(each[1] or 0), each[0]))[:5]


async def show(data_dir: Path, work_dir: Path, console: str, say: Callable[[str], None]) -> None:
    """Serve the data once more, with a console at HOST:PORT, until cancelled or interrupted. Raises ProcessFailedError."""
    async with started_server(data_dir, work_dir, "--console", console) as server:
        page = f"http://{server.addresses['console']}"
        say(f"The console: {page}/")
        say(f"The Fourth of July: {page}/topics/{TOPIC}/records?at={DAY_START}&to={DAY_END}")
        say(f"How a time is looked up: {page}/topics/{TOPIC}/walk?partition=0&at={DAY_START}")
        say("Ctrl-C ends it.")
        try:
            await trio.sleep_forever()
        finally:
            server.stop()
