"""The edge demo from the first record to the sum: a week without an uplink, the uplink, a kill, and what has arrived."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import attrs
import trio

from ....protocol.types import TopicPartition
from ...client.admin import Admin
from ...client.config import ClientConfig
from ...client.connection import connect
from ..ending import DemoFindings
from ..server_process import Address
from ..telling import Narrator, Telling
from . import accounts as claims
from .accounts import Account, TopicAccount
from .producing import PLACES, Production, write_week
from .small_disk import SmallDisk
from .stage import Stage, open_stage
from .upstream import Arrived
from .week import PARTITIONS, Written, topic_config

LOOK_S: Final = 0.05
GOING_ON: Final = frozenset({"running", "draining"})
"""States of a link in which its backlog is known."""
FORWARD_TIMEOUT_S: Final = 240.0


@attrs.frozen(kw_only=True)
class WeekEnd:
    """How things stand before the link comes back."""

    seconds: float
    written: int
    refused: int
    stored: int
    dropped: int
    turned_away: int
    """Attempts of the forwarder to reach the upstream."""


@attrs.frozen(kw_only=True)
class Kill:
    """Of everything at once."""

    at_s: float
    """Since the link came back."""
    forwarded: int
    statuses: dict[str, int]
    restart_ms: float
    """Until everything was there again."""


class EdgeNarrator(Narrator):
    """Of this demo."""

    def started(self, disk: SmallDisk, source: int, upstream: str) -> None:
        """The servers accept. `source` is a process, `upstream` an address."""

    def writing(self, settled: int) -> None:
        """So many records are acknowledged or refused; told some 20 times a second."""

    def week_is_over(self, end: WeekEnd) -> None:
        """All records are settled."""

    def link_is_up(self, bytes_per_second: int) -> None:
        """The forwarder can reach the upstream from now on."""

    def forwarding(self, forwarded: int, total: int) -> None:
        """So many records are upstream; told some 20 times a second."""

    def killed(self, kill: Kill) -> None:
        """Everything was killed and started again."""

    def drained(self, seconds: float, carried_bytes: int) -> None:
        """Nothing is left to forward."""

    def added_up(self, lines: Sequence[TopicAccount]) -> None:
        """Everything was read back and compared."""


class Story:
    """One run. Its chapters are its methods, each to be called once, in order."""

    def __init__(self, week: Sequence[Written], stage: Stage, narrator: EdgeNarrator) -> None:
        self._week = week
        self._stage = stage
        self._narrator = narrator
        self._telling = Telling(narrator)
        self._total = 0

    @property
    def findings(self) -> DemoFindings:
        return self._telling.findings

    async def write(self, disk: SmallDisk) -> dict[TopicPartition, Production]:
        """The week, with the uplink down."""
        stage = self._stage
        async with connect(address=stage.source.address(), config=ClientConfig(client_id="edge-demo")) as client:
            admin = Admin(client)
            for topic, count in PARTITIONS.items():
                await admin.create_topic(topic, count, topic_config(topic, stage.group))
            await stage.start_forwarder()
            produced, seconds = await write_week(client, self._week, self._narrator.writing)
            found = await admin.statistics()
        end = WeekEnd(
            seconds=seconds,
            written=sum(len(each.flights) for each in produced.values()),
            refused=sum(each.refused for each in produced.values()),
            stored=sum(topic["records"] for topic in found["topics"] if topic["topic"] in PARTITIONS),
            dropped=sum(each["records"] for each in found["dropped"]),
            turned_away=stage.link.turned_away,
        )
        self._narrator.week_is_over(end)
        flights = [flight for each in produced.values() for flight in each.flights]
        written_bytes = sum(len(flight.key or b"") + len(flight.value) for flight in flights)
        self._telling.note(
            disk=disk.what,
            room_bytes=disk.room_bytes,
            written_bytes=written_bytes,
            write_s=seconds,
            dropped_before_link=end.dropped,
            refused_connections=end.turned_away,
        )
        self._telling.check(claims.more_was_written_than_fits(written_bytes, disk.room_bytes))
        errors = found["protocols"]["native"]["apis"].get("produce", {}).get("errors", {})
        self._telling.check(claims.no_producer_met_a_full_disk(errors))
        return produced

    async def forward(self, share: float) -> None:
        """The link is back; everything is killed when `share` of the backlog is upstream, and goes on from there."""
        stage, begin = self._stage, time.perf_counter()
        with trio.move_on_after(FORWARD_TIMEOUT_S) as patience:
            self._narrator.link_is_up(await stage.bring_link_up())
            forwarded = await self._watch_until(share)
            at_s = time.perf_counter() - begin
            statuses = await stage.kill()
            restart_ms = await stage.restart()
            kill = Kill(at_s=at_s, forwarded=forwarded, statuses=statuses, restart_ms=restart_ms)
            self._narrator.killed(kill)
            await self._drain()
        if patience.cancelled_caught:
            raise stage.forwarder.failed(f"had not sent everything within {FORWARD_TIMEOUT_S:.0f} s")
        seconds = time.perf_counter() - begin
        self._narrator.drained(seconds, stage.link.carried_bytes)
        self._telling.note(
            forward_s=seconds,
            link_bytes=stage.link.carried_bytes,
            killed_after_s=kill.at_s,
            forwarded_at_kill=kill.forwarded,
            restart_ms=kill.restart_ms,
        )
        self._telling.check(claims.killed_while_forwarding(kill.statuses, kill.forwarded, self._total))

    async def add_up(self, produced: Mapping[TopicPartition, Production]) -> None:
        """Read everything upstream and compare it with what was acknowledged, and with what the server says it dropped."""
        stage = self._stage
        async with connect(address=stage.source.address(), config=ClientConfig(client_id="edge-demo")) as client:
            found = await Admin(client).statistics()
        dropped = {TopicPartition(each["topic"], each["partition"]): each["records"] for each in found["dropped"]}
        arrived = {
            place: Arrived({flight.row: flight for flight in production.flights}) for place, production in produced.items()
        }
        begin = time.perf_counter()
        await stage.read_upstream(arrived)
        accounts = [_account(place, produced[place], arrived[place], dropped.get(place, 0)) for place in PLACES]
        lines = claims.by_topic(accounts)
        self._narrator.added_up(lines)
        self._telling.note(read_s=time.perf_counter() - begin, topics={line.topic: line.as_json() for line in lines})
        self._telling.check(claims.everything_adds_up(accounts))
        self._telling.check(claims.order_is_kept(accounts))
        self._telling.check(claims.bytes_are_equal(accounts))
        self._telling.check(claims.what_matters_is_complete(accounts))

    async def _watch_until(self, share: float) -> int:
        while True:
            forwarded = await self._look()
            if self._total and forwarded >= share * self._total:
                return forwarded
            await trio.sleep(LOOK_S)

    async def _drain(self) -> None:
        async def watch() -> None:
            while True:
                await self._look()
                await trio.sleep(LOOK_S)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            status = await self._stage.forwarder.wait()
            nursery.cancel_scope.cancel()
        if status:
            raise self._stage.forwarder.failed(f"ended with {status}")

    async def _look(self) -> int:
        """How many records are upstream; 0 while nobody knows."""
        status = await self._stage.forwarder.status()
        if status is None or status["state"] not in GOING_ON:
            return 0
        left: int = status["backlog_records"]
        self._total = self._total or left + status["records"]
        self._narrator.forwarding(self._total - left, self._total)
        return self._total - left


def _account(place: TopicPartition, produced: Production, arrived: Arrived, dropped: int) -> Account:
    return Account(
        place=place,
        written=[flight.row for flight in produced.flights],
        refused=produced.refused,
        misplaced=produced.misplaced,
        arrived=arrived.rows,
        told=arrived.gaps,
        dropped=dropped,
        differing=arrived.differing,
        first_difference=arrived.first_difference,
    )


async def run_edge_story(
    week: Sequence[Written], disk: SmallDisk, work_dir: Path, to: Address | None, seed: int, narrator: EdgeNarrator
) -> DemoFindings:
    """Run the demo. Raises TriologError, ServerFailedError, UnreadableError or a group of them when it cannot go on."""
    async with open_stage(disk, work_dir, to) as stage:
        story = Story(week, stage, narrator)
        narrator.started(disk, stage.source.pid, "triolog serve" if to is None else stage.read_at)
        produced = await story.write(disk)
        await story.forward(Random(seed).uniform(0.35, 0.65))
        await story.add_up(produced)
        await stage.tidy()
    return story.findings
