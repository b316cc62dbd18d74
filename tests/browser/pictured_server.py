"""A server with something in every view of its console: the demo's flights, traffic, a group that falls behind, a link."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from confluent_kafka import Consumer, Producer
from triolog.protocol.native.messages import NewTopic
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.client.config import ProducerConfig
from triolog.tools.demo.flights import AIRPORTS, ROW_HEADER, TOPIC, Flight, find_source, load_flights
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.control_port import PATIENCE_S, Control
from tests.support.forwarding import until
from tests.support.server_process import COMMAND, ServerFolder, ServerProcess, environment

from .conftest import console_of

ROWS: Final = 30_000
LATE: Final = 4_000
"""The last of them, which come in while somebody looks."""
SEGMENT_MS: Final = 30 * 86_400_000
DEPARTURES, ALARMS, SALES = "departures", "alarms", "sales"
BEHIND: Final = "billing"
ANY_PORT: Final = "127.0.0.1:0"
DATA_DIR: Final = "data"
"""Relative to the server's folder, whose own path is nobody's business."""
BYTES_PER_SECOND: Final = 100_000
"""Of the link: it has a backlog for as long as pictures are taken."""
SMALL_BATCHES: Final = ProducerConfig(batch_bytes=4096)
"""About as far apart as entries of an index are."""
LINKS, LINK = "triolog-forward", "plant-7"
TICK_S: Final = 0.2
MOST_A_TICK: Final = 60
LATE_A_TICK: Final = 3
FETCH_WAIT_MS: Final = 5000
READ_A_TICK: Final = {"display": 200, "billing": 12}
"""Of a group, by each of its members."""


@attrs.frozen
class Pictured:
    console: str
    control: Control
    neutral: dict[str, str]
    """What stands in a picture for what would be another on each machine."""
    _is_still: threading.Event

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is written for the time of the block: what was asked stays among the last requests, however slow we are."""
        self._is_still.set()
        try:
            yield
        finally:
            self._is_still.clear()

    def refuse_alarms(self) -> None:
        """A rule that makes a producer try again, and one that nobody has met."""
        self.control.do("POST", "/faults", {"api": "Produce", "topic": ALARMS, "error": "NOT_LEADER_OR_FOLLOWER", "times": 2})
        self.control.do("POST", "/faults", {"api": "OffsetCommit", "group": "reports", "delay_ms": 250})
        producer = self.control.producer(**{"client.id": "boiler"})
        for number in range(3):
            producer.produce(ALARMS, f'{{"pressure": {3 + number}}}', key="boiler")
            assert producer.flush(30) == 0


@contextmanager
def pictured(folder: Path) -> Iterator[Pictured]:
    """The server, its upstream and its clients, for the time of the block."""
    is_still = threading.Event()
    flights = sorted(load_flights(find_source(), ROWS), key=lambda flight: flight.timestamp)
    (folder / "upstream").mkdir()
    with ServerFolder(folder / "upstream", arguments=("--kafka", ANY_PORT)) as of_upstream:
        upstream = json.loads(of_upstream.start().ready_file.read_text())["kafka"]
        arguments = ("--native", ANY_PORT, "--kafka", ANY_PORT, "--control", ANY_PORT, "--nodes", "3")
        with ServerProcess.spawn(folder, ["--data-dir", DATA_DIR, *arguments]) as server:
            _fill(server, flights[:-LATE])
            ready = json.loads(server.ready_file.read_text())
            options = ("--control", ready["control"], "--forward-state-dir", LINKS, "--allow-changes")
            with (
                _open_transaction(ready["kafka"]),
                _traffic(ready["kafka"], flights, is_still),
                _link(folder, ready["native"], upstream),
                console_of(ready["native"], *options, folder=folder) as console,
            ):
                neutral = {ready["native"]: "127.0.0.1:9095", ready["kafka"]: "127.0.0.1:9092", upstream: "kafka.example:9092"}
                yield Pictured(console, Control(ready), neutral, is_still)


@contextmanager
def _link(folder: Path, server: str, upstream: str) -> Iterator[None]:
    """`triolog forward`, which has sent something and has a backlog."""
    what = ["--topics", f"{DEPARTURES},{TOPIC}", "--priority", DEPARTURES, "--max-rate", str(BYTES_PER_SECOND)]
    where = ["--server", server, "--to", upstream, "--node", "gateway", "--link", LINK, "--state-dir", LINKS]
    command = [*COMMAND, "forward", *where, *what]
    with (folder / "forward.stderr").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=log)
    control = folder / LINKS / LINK / CONTROL

    def has_sent() -> bool:
        try:
            return bool(ask(str(control), {"command": "status"}, PATIENCE_S)["records"])
        except OSError:  # it has not begun to listen
            return False

    with process:
        try:
            until(has_sent, "the first record of the link")
            yield
        finally:
            process.kill()


def _fill(server: ServerProcess, flights: list[Flight]) -> None:
    monthly = {"retention.ms": "-1", "segment.ms": str(SEGMENT_MS)}
    with BlockingClient(server.address) as client:
        topics = [NewTopic(TOPIC, len(AIRPORTS), monthly), NewTopic(DEPARTURES, len(AIRPORTS), {"durability": "group:20"})]
        others = [NewTopic(ALARMS, 1, {"cleanup.policy": "compact"}), NewTopic(SALES, 2)]
        BlockingAdmin(client).create_topics([*topics, *others])
        with BlockingProducer(client, SMALL_BATCHES) as producer:
            for row, partition, key, timestamp, value in flights:
                producer.send(TOPIC, value, key=key, timestamp_ms=timestamp, partition=partition, headers=((ROW_HEADER, row),))
            producer.flush()


@contextmanager
def _open_transaction(kafka: str) -> Iterator[None]:
    """One that was committed, and one that nobody has ended."""
    for name in ("till-1", "till-2"):
        settings = {"client.id": name, "transactional.id": name, "transaction.timeout.ms": 600_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": kafka, **settings})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(SALES, b'{"espresso": 2}', key=name, partition=0)
        assert producer.flush(30) == 0
        if name == "till-1":
            producer.commit_transaction()
    yield


@contextmanager
def _traffic(kafka: str, flights: list[Flight], is_still: threading.Event) -> Iterator[None]:
    """Departures at a changing rate, late flights, a group that reads all departures and one that falls behind."""
    over = threading.Event()
    shared: dict[str, Any] = {"bootstrap.servers": kafka, "log_level": 0}
    reading = {**shared, "auto.offset.reset": "earliest", "fetch.wait.max.ms": FETCH_WAIT_MS, "auto.commit.interval.ms": 1000}
    groups = {"display": {"group.protocol": "consumer"}, BEHIND: {}}
    producer = Producer({**shared, "client.id": "tower"})
    readers = [
        (Consumer({**reading, **settings, "group.id": group, "client.id": f"{group}-{number}"}), READ_A_TICK[group])
        for group, settings in groups.items()
        for number in (1, 2)
    ]

    def move() -> None:
        rng, left, late, most = random.Random(7), iter(flights), iter(flights[-LATE:]), MOST_A_TICK // 2
        while not over.wait(TICK_S):
            if is_still.is_set():
                continue
            most = min(MOST_A_TICK, max(4, most + rng.randint(-8, 8)))
            for flight, _ in zip(left, range(most), strict=False):
                producer.produce(DEPARTURES, flight.value, key=flight.key, partition=flight.partition)
            for flight, _ in zip(late, range(LATE_A_TICK), strict=False):
                producer.produce(TOPIC, flight.value, key=flight.key, partition=flight.partition, timestamp=flight.timestamp)
            producer.poll(0)
            for reader, count in readers:
                reader.consume(count, 0)

    for reader, _ in readers:
        reader.subscribe([DEPARTURES])
    thread = threading.Thread(target=move, name="traffic")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for reader, _ in readers:
            reader.close()
        producer.flush(30)
