"""`triolog edge-demo`: a week of flights without an uplink, then an uplink, a SIGKILL of everything, and what has arrived.

A year of flights, on a clock that runs 52 times as fast, becomes three topics of a server whose logs are bounded. `triolog
forward` takes them to another `triolog serve`, which does not run while the week is written.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

import attrs
import click

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import KIB, MIB
from ...protocol.types import TopicPartition
from ..client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer, BlockingProducer
from ..forward.handing import GAP_HEADER
from ..forward.process.place import CONTROL, ask
from .flights import AIRPORTS, ROW_HEADER, Flight, find_source, load_flights, send_flight
from .processes import Process, serve_arguments
from .showing import Demo, DemoError, as_json_option, check_kafka_client, working_folder

DEPARTURES, DELAYS, CANCELLATIONS = "departures", "delays", "cancellations"
LINK, NODE = "uplink", "edge-demo"
GROUP: Final = f"triolog-forward.{NODE}.{LINK}"
LATE_MINUTES: Final = 60
DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS
LOGS_BYTES: Final = 50 * MIB
BYTES_PER_SECOND: Final = 6_000_000
"""Of the link, before compression."""
TIMEOUT_S: Final = 240.0
POLL_S: Final = 0.05
SETTINGS: Final = {"TRIOLOG_RETENTION_CHECK_INTERVAL_MS": "1000", "TRIOLOG_LOG_MAX_BYTES": str(LOGS_BYTES)}
CONFIG: Final = {
    "segment.bytes": str(MIB),
    "retention.ms": str(DAY_MS),
    "file.delete.delay.ms": "0",
    "retention.hold.groups": GROUP,
    "disk.full.policy": "drop-oldest",
}
"""Retention deletes records after a day, unless the forwarder's group still holds them."""
TOPICS: Final[Mapping[str, tuple[str, int, Mapping[str, str]]]] = {
    DEPARTURES: ("most of it, gives up its oldest records first", len(AIRPORTS), {"disk.full.priority": "0"}),
    DELAYS: ("an hour late or more, disk.full.priority=10", 1, {"disk.full.priority": "10"}),
    CANCELLATIONS: (
        "never left, disk.full.policy=refuse above 1 MiB",
        1,
        {"disk.full.policy": "refuse", "segment.bytes": str(256 * KIB), "retention.hold.max.bytes": str(MIB)},
    ),
}
"""For each topic, for people, its place in the story; its partitions; its configuration over CONFIG."""


@attrs.define
class Account:
    """The flights of one partition, by offset here and upstream."""

    written: list[Flight] = attrs.field(factory=list)
    refused: int = 0
    arrived: list[Flight] = attrs.field(factory=list)
    told: set[int] = attrs.field(factory=set)
    """Offsets in gaps, as headers upstream have them."""

    @property
    def adds_up(self) -> bool:
        """Return whether each acknowledged flight is upstream once, as written and in order, or told as lost."""
        return self.arrived == [flight for offset, flight in enumerate(self.written) if offset not in self.told]


Accounts = defaultdict[TopicPartition, Account]


@click.command
@as_json_option
def command(as_json: bool) -> None:
    """Write a week of real flights to a server without an uplink, then forward it over a slow uplink and a SIGKILL.

    Exit code 0 when everything adds up, 1 when it does not, 2 when something is not installed, 3 when a process failed.
    """
    source = find_source()
    check_kafka_client()
    demo, accounts = Demo(is_quiet=as_json), Accounts(Account)
    with working_folder(None) as (_, work_dir), ExitStack() as stack:
        week = in_a_week(load_flights(source), time.time_ns() // 1_000_000)
        for name in ("server", "upstream", "forwarder"):
            (work_dir / name).mkdir()
        arguments = serve_arguments(work_dir / "server" / "data")
        server = stack.enter_context(Process("the server", work_dir / "server", arguments, SETTINGS))
        arguments = serve_arguments(work_dir / "upstream" / "data", "--kafka", "127.0.0.1:0")
        upstream = stack.enter_context(Process("the upstream", work_dir / "upstream", arguments))
        forwarder = stack.enter_context(Process("the forwarder", work_dir / "forwarder", ()))
        server.start()
        upstream.start()
        for process, config, prefix in ((server, CONFIG, ""), (upstream, {}, f"{NODE}.")):
            with BlockingClient(process.address) as client:
                for topic, (_, partitions, special) in TOPICS.items():
                    own = {**config, **special} if config else {"retention.ms": "-1"}
                    BlockingAdmin(client).create_topic(prefix + topic, partitions, own)
        upstream.arguments = serve_arguments(work_dir / "upstream" / "data", "--kafka", upstream.kafka)
        upstream.stop()
        _write(demo, server, forwarder, upstream.kafka, week, accounts)
        _forward(demo, [forwarder, server, upstream], sum(len(account.written) for account in accounts.values()))
        with BlockingClient(upstream.address) as client:
            _read(client, accounts)
    _judge(demo, accounts)
    demo.end()


def in_a_week(flights: Sequence[Flight], end_ms: int) -> list[tuple[str, Flight]]:
    """Return topics and flights in the order of their time, the year's last one at the end of the week."""
    ordered = sorted(flights, key=lambda flight: (flight.timestamp, flight.row))
    first, last = ordered[0].timestamp, ordered[-1].timestamp
    week = []
    for flight in ordered:
        topic = topic_of(flight)
        partition = flight.partition if topic == DEPARTURES else 0
        timestamp = end_ms - WEEK_MS + (flight.timestamp - first) * WEEK_MS // max(1, last - first)
        week.append((topic, flight._replace(partition=partition, timestamp=timestamp)))
    return week


def topic_of(flight: Flight) -> str:
    """Return the topic for what became of a flight."""
    row = json.loads(flight.value)
    if row["dep_time"] is None:
        return CANCELLATIONS
    return DELAYS if row["dep_delay"] >= LATE_MINUTES else DEPARTURES


def _start_forwarder(forwarder: Process, server: Process, to: str, *options: str) -> None:
    host, port = server.address
    where = ("--server", f"{host}:{port}", "--to", to, "--node", NODE, "--link", LINK, "--state-dir", str(forwarder.folder))
    topics = ("--topics", ",".join(TOPICS), "--priority", f"{CANCELLATIONS},{DELAYS}", "--target", "{node}.{topic}")
    forwarder.arguments = ("forward", *where, *topics, "--max-rate", str(BYTES_PER_SECOND), *options)
    forwarder.start()


def _write(
    demo: Demo, server: Process, forwarder: Process, to: str, week: Sequence[tuple[str, Flight]], accounts: Accounts
) -> None:
    """Write the week while the upstream is down."""
    demo.chapter("A gateway without an uplink")
    demo.say(f"triolog serve is process {server.pid}, durability fsync, log_max_bytes={LOGS_BYTES}")
    for topic, (duty, _, _) in TOPICS.items():
        demo.say(f"{topic:<13} {sum(name == topic for name, _ in week):>7,}  {duty}")
    _start_forwarder(forwarder, server, to)
    begin = time.perf_counter()
    with BlockingClient(server.address) as client:
        with BlockingProducer(client) as producer:
            sent = [send_flight(producer, *each) for each in week]
            producer.flush()
        dropped = sum(each["records"] for each in BlockingAdmin(client).statistics()["dropped"])
    for (topic, flight), record in zip(week, sent, strict=True):
        account = accounts[TopicPartition(topic, flight.partition)]
        try:
            record.value()
        except RequestError as exc:
            if exc.code is not ErrorCode.POLICY_VIOLATION:
                raise
            account.refused += 1
        else:
            account.written.append(flight)
    size = sum(len(flight.value) for account in accounts.values() for flight in account.written)
    written = sum(len(account.written) for account in accounts.values())
    demo.say(f"{written:,} of {len(week):,} acknowledged in {time.perf_counter() - begin:.1f} s; {dropped:,} had to go")
    demo.figures |= {"written_bytes": size, "dropped_before_link": dropped}
    detail = f"{size / 1e6:.1f} MB of values, room for {LOGS_BYTES / 1e6:.1f} MB"
    demo.check("more was acknowledged than the server has room for", size > LOGS_BYTES, detail)


def _forward(demo: Demo, processes: Sequence[Process], written: int) -> None:
    """Start the upstream; kill everything when a third is upstream, and continue from there."""
    forwarder, server, upstream = processes
    demo.chapter(f"The upstream is back, {BYTES_PER_SECOND / 1e6:.0f} MB/s away")
    upstream.start()
    begin = time.perf_counter()
    left = total = 0
    while not total or left > total * 2 // 3:
        if time.perf_counter() - begin > TIMEOUT_S:
            raise DemoError(f"{left:,} of {total:,} records are not upstream after {TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)
        status = _status(forwarder)
        if status.get("state") == "running":
            left = status["backlog_records"]
            total = total or left + status["records"]
    for process in processes:
        process.kill()
    statuses = [process.wait() for process in processes]
    server.start()
    upstream.start()
    _start_forwarder(forwarder, server, upstream.kafka, "--drain")
    if status_at_end := forwarder.wait(TIMEOUT_S):
        raise forwarder.failed(f"ended with {status_at_end}")
    demo.say(f"nothing is left after {time.perf_counter() - begin:.1f} s, the kill included")
    demo.figures["forwarded_at_kill"] = total - left
    detail = f"exit statuses {statuses}, with {total - left:,} of {total:,} upstream"
    demo.check(
        "everything was killed in the middle of forwarding", statuses == [-9] * 3 and 0 < left < total <= written, detail
    )


def _status(forwarder: Process) -> dict[str, Any]:
    with suppress(OSError):  # it does not listen yet
        return ask(str(forwarder.folder / LINK / CONTROL), {"command": "status"}, TIMEOUT_S)
    return {}


def _read(client: BlockingClient, accounts: Accounts) -> None:
    """Read everything upstream."""
    with BlockingConsumer(client, follow=False, isolation="read_committed") as consumer:
        consumer.assign([TopicPartition(f"{NODE}.{place.topic}", place.partition) for place in accounts])
        for place, record in consumer.records():
            account = accounts[TopicPartition(place.topic.removeprefix(f"{NODE}."), place.partition)]
            headers = dict(record.headers)
            row, gap = headers.get(ROW_HEADER) or b"", headers.get(GAP_HEADER)
            if gap is not None:
                first, _, last = gap.decode().partition("-")
                account.told.update(range(int(first), int(last) + 1))
            account.arrived.append(Flight(row, place.partition, record.key, record.timestamp, record.value or b""))


def _judge(demo: Demo, accounts: Mapping[TopicPartition, Account]) -> None:
    """Print the table of the topics, and check its claims."""
    demo.chapter("Everything upstream, compared with what was acknowledged")
    topics: dict[str, dict[str, int]] = {}
    for topic in TOPICS:
        own = [account for place, account in accounts.items() if place.topic == topic]
        topics[topic] = {
            "written": sum(len(account.written) for account in own),
            "refused": sum(account.refused for account in own),
            "forwarded": sum(len(account.arrived) for account in own),
            "told": sum(len(account.told) for account in own),
        }
    demo.table(("topic", *topics[DEPARTURES]), ((topic, *(f"{n:,}" for n in line.values())) for topic, line in topics.items()))
    demo.figures["topics"] = topics
    wrong = [str(place) for place, account in accounts.items() if not account.adds_up]
    claim = "every acknowledged record is upstream once, as written and in order, or told as lost"
    demo.check(claim, bool(accounts) and not wrong, ", ".join(wrong) or f"{len(accounts)} partitions")
    lost = [topic for topic, line in topics.items() if line["told"]]
    refused = [topic for topic, line in topics.items() if line["refused"]]
    detail = f"lost: {lost}, refused: {refused}"
    demo.check(
        "only departures gave way, only cancellations were refused", (lost, refused) == ([DEPARTURES], [CANCELLATIONS]), detail
    )
