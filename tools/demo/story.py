"""The demo from the first start of the server to its orderly stop: what happens, in order, and what is claimed of it.

Everything that is measured or found goes into `DemoFindings`; what people see of it is the narrator's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from ...protocol.types import TimeRange, TopicPartition
from ..client.admin import Admin
from ..client.config import ClientConfig
from ..client.connection import Client, connect
from ..client.consumer import LATEST, open_consumer
from ..client.procedures.topics import AtTime
from . import checks
from .day import DAY_END, DAY_START, DayReader
from .disk_usage import PartitionUsage, partition_usage
from .ending import DemoFindings
from .flights import AIRPORTS, Flight
from .producing import Production, produce
from .question import Answered, ask_log, expected_answer
from .reading import PartitionCopy
from .server_process import ServerProcess, open_server
from .telling import Narrator, Telling

TOPIC: Final = "flights"
PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in range(len(AIRPORTS)))
LOOKUP_ROUNDS: Final = 200
CLEAN_MARKER: Final = ".kafka_cleanshutdown"


@attrs.frozen(kw_only=True)
class Lookup:
    """A time looked up in all partitions at once."""

    answers: dict[int, tuple[int, int]]
    """Partition -> offset and timestamp of the first record at or after it."""
    median_us: float
    """Of one request for all partitions, there and back through the socket."""
    walks: dict[int, dict[str, Any]]
    """Partition -> how the server found it, and all segments."""
    ranges: dict[int, dict[str, Any]]
    """Partition -> how it finds the records of the day."""


class FlightsNarrator(Narrator):
    """Of this demo."""

    def started(self, pid: int, address: tuple[str, int], data_dir: Path) -> None:
        """The first server accepts."""

    def producing(self, acknowledged: int) -> None:
        """So many records are acknowledged; told some 20 times a second."""

    def produced(self, production: Production) -> None:
        """All records are acknowledged."""

    def read_back(self, copies: Sequence[PartitionCopy], seconds: float) -> None:
        """The whole topic was read."""

    def looked_up(self, lookup: Lookup) -> None:
        """The day's start was looked up."""

    def consumed(self, day: DayReader, seconds: float) -> None:
        """The day was read."""

    def stopped(self, usage: Sequence[PartitionUsage]) -> None:
        """The server has stopped."""

    def answered(self, answered: Answered) -> None:
        """The log has answered a question."""


class Story:
    """One run over one data directory. Its chapters are its methods, each to be called once, in order."""

    def __init__(self, flights: Sequence[Flight], narrator: FlightsNarrator) -> None:
        self._flights = flights
        self._by_row = {flight.row: flight for flight in flights}
        self._narrator = narrator
        self._telling = Telling(narrator)

    @property
    def findings(self) -> DemoFindings:
        return self._telling.findings

    async def produce(self, client: Client, server: ServerProcess, kill_at: int) -> Production:
        """All flights into a new topic, with a SIGKILL in the middle."""
        await Admin(client).create_topic(TOPIC, len(AIRPORTS), {"retention.ms": "-1"})
        production = await produce(client, server, TOPIC, len(AIRPORTS), self._flights, kill_at, self._narrator.producing)
        self._narrator.produced(production)
        payload_bytes = sum(len(flight.key or b"") + len(flight.value) for flight in self._flights)
        self._telling.note(
            rows=len(self._flights),
            payload_bytes=payload_bytes,
            produce_s=production.seconds,
            records_per_s=len(self._flights) / production.seconds,
            mb_per_s=payload_bytes / 1e6 / production.seconds,
            killed_after_s=production.kill.at_s,
            acknowledged_at_kill=production.kill.acknowledged,
            recovery_ms=production.kill.recovery_ms,
            resumed_ms=production.kill.resumed_ms,
        )
        kill = production.kill
        self._telling.check(checks.killed_in_the_middle(len(self._flights), kill.acknowledged, kill.exit_status))
        self._telling.check(checks.every_flight_acknowledged(self._flights, production.acknowledged))
        return production

    async def read_back(self, client: Client, production: Production) -> list[PartitionCopy]:
        """Everything out again, compared with the source and with what was acknowledged."""
        copies = [PartitionCopy(number, self._by_row) for number in range(len(AIRPORTS))]
        begin = time.perf_counter()
        async with open_consumer(client, follow=False) as consumer:
            await consumer.assign(PARTITIONS)
            async for batch in consumer:
                copies[batch.partition.partition].add(batch.records())
        seconds = time.perf_counter() - begin
        self._narrator.read_back(copies, seconds)
        stored = sum(map(len, copies))
        distinct = len(set().union(*(copy.rows for copy in copies)))
        self._telling.note(stored=stored, duplicates=stored - distinct, read_s=seconds, read_records_per_s=stored / seconds)
        self._telling.check(checks.records_equal_source(copies))
        self._telling.check(checks.acknowledged_are_there(self._flights, production.acknowledged, copies))
        self._telling.check(checks.every_row_once(self._flights, copies))
        self._telling.check(checks.offsets_are_consecutive(copies))
        return copies

    async def look_up(self, client: Client, copies: Sequence[PartitionCopy]) -> None:
        """Midnight of the day in every partition, explained, and compared with a scan."""
        admin = Admin(client)
        rounds: list[float] = []
        for _ in range(LOOKUP_ROUNDS):
            begin = time.perf_counter()
            found = await admin.offsets_for_times(dict.fromkeys(PARTITIONS, DAY_START))
            rounds.append(time.perf_counter() - begin)
        answers = {name.partition: (entry.offset, entry.timestamp) for name, entry in found.items()}
        # After the ranges the server knows the least timestamps of the segments that it has looked through for them.
        day = TimeRange(DAY_START, DAY_END)
        ranges = {name.partition: await admin.explain(name, day, with_segments=True) for name in PARTITIONS}
        walks = {name.partition: await admin.explain(name, AtTime(DAY_START), with_segments=True) for name in PARTITIONS}
        lookup = Lookup(answers=answers, median_us=statistics.median(rounds) * 1e6, walks=walks, ranges=ranges)
        self._narrator.looked_up(lookup)
        self._telling.note(
            lookup_us=lookup.median_us, lookups={AIRPORTS[number]: offset for number, (offset, _) in answers.items()}
        )
        self._telling.check(checks.lookups_equal_scan("the lookup by time finds what a scan finds", answers, copies, DAY_START))
        explained = {number: (walk["answer"]["offset"], walk["answer"]["timestamp"]) for number, walk in walks.items()}
        self._telling.check(checks.lookups_equal_scan("the explained lookups come to the same", explained, copies, DAY_START))

    async def consume_day(self, client: Client) -> None:
        """The day by time, as a consumer would that knows nothing but the clock."""
        day = DayReader(DAY_START, DAY_END)
        begin = time.perf_counter()
        async with open_consumer(client, follow=False) as consumer:
            await consumer.assign(PARTITIONS, start=AtTime(DAY_START), end=LATEST)
            async for batch in consumer:
                day.add(batch.records())
        seconds = time.perf_counter() - begin
        self._narrator.consumed(day, seconds)
        self._telling.note(day_flights=len(day.departures), day_consumed=day.consumed_count, day_s=seconds)
        self._telling.check(checks.day_equals_source(day.values(), self._flights, DAY_START, DAY_END))

    async def stop(self, server: ServerProcess, data_dir: Path) -> None:
        """The orderly end, and what is on disk then."""
        status = await server.stop()
        usage = [partition_usage(data_dir / str(name)) for name in PARTITIONS]
        self._narrator.stopped(usage)
        self._telling.note(
            disk_bytes=sum(partition.total_bytes for partition in usage),
            segments=sum(partition.segments for partition in usage),
            offset_index_entries=sum(partition.offset_index_entries for partition in usage),
            time_index_entries=sum(partition.time_index_entries for partition in usage),
        )
        self._telling.check(checks.stopped_in_order(status, (data_dir / CLEAN_MARKER).exists()))

    async def ask(self, data_dir: Path) -> None:
        """A question in SQL, of files that no server looks after."""
        answered = await trio.to_thread.run_sync(ask_log, data_dir)
        self._narrator.answered(answered)
        self._telling.note(sql_s=answered.seconds, sql_records=answered.records)
        self._telling.check(checks.answer_equals_source(answered.airlines, expected_answer(self._flights)))


def kill_point(total: int, seed: int) -> int:
    """The record whose acknowledgement draws the SIGKILL: about the middle one."""
    return int(total * Random(seed).uniform(0.45, 0.55))


async def run_story(
    flights: Sequence[Flight], data_dir: Path, work_dir: Path, seed: int, narrator: FlightsNarrator
) -> DemoFindings:
    """Run the demo. Raises TriologError, ServerFailedError or a group of them when it cannot go on."""
    story = Story(flights, narrator)
    async with open_server(data_dir, work_dir) as server:
        narrator.started(server.pid, server.address(), data_dir)
        async with connect(address=server.address, config=ClientConfig(client_id="demo")) as client:
            production = await story.produce(client, server, kill_point(len(flights), seed))
            copies = await story.read_back(client, production)
            await story.look_up(client, copies)
            await story.consume_day(client)
        await story.stop(server, data_dir)
    await story.ask(data_dir)
    return story.findings
