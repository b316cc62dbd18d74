"""A run: the server, its clients and what goes wrong, by a seed; then calm, and everything is read back.

Seven families of clients take part, some of them twice. What the driver did stands in `driver.jsonl`, what the clients did in
files of theirs; together they are the history.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
from triolog.protocol.errors import RequestError
from triolog.protocol.native import messages
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from tests.soak import reading, troubling
from tests.soak.clients.worker import Notebook, Notes, Task
from tests.soak.processes import Clients
from tests.soak.server import SoakServer
from tests.soak.troubling import Troublemaker
from tests.support.forked_servers import ServerForker
from tests.support.kill_history import KillHistory, Numbered
from tests.support.kill_loads import OLD_MS, Caller, Progress, RecreatingLoad, ServerGoneError
from tests.support.server_process import COMMAND, Address
from tests.support.wire_client import WireClient

TURN_S: Final = 0.1
LOOK_S: Final = 1.0
QUIET_S: Final = 300.0
"""How long feeders may take for what they have sent, and a group for its next step to the end of what there is."""


@attrs.define(eq=False)
class Run:
    """Owner of everything."""

    folder: Path
    seed: str
    commands: Mapping[str, Sequence[str]]
    """Of each family that is here."""
    pace: troubling.Pace
    rate: float
    """Records a second of each feeder."""
    processes: Mapping[str, tuple[str, tuple[Role, ...]]] = attrs.field(factory=lambda: PROCESSES)
    configurations: Mapping[str, Mapping[str, str]] = attrs.field(factory=lambda: CONFIGURATIONS)
    """Of the topics."""
    quiet_server_after_s: float = float("inf")
    """Since the start: the server is left alone from then on."""
    serve: Sequence[str] | ServerForker = COMMAND
    on_turn: Callable[[], None] = lambda: None
    server: SoakServer = attrs.field(init=False)
    clients: Clients = attrs.field(init=False)
    troublemaker: Troublemaker = attrs.field(init=False)
    remaking: Remaking = attrs.field(init=False)
    _notes: Notebook = attrs.field(init=False)
    _written: Notes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = SoakServer(self.folder, self.serve, self.pace.with_control)
        self.clients = Clients(self.folder, self.commands)
        self.remaking = Remaking(self.server.native_address, self.seed)
        self._written = Notes(str(self.folder / "driver.jsonl"))
        self._notes = Notebook(self._written, "driver")
        self.troublemaker = Troublemaker(random.Random(self.seed), self.pace, self.server, self.clients, self._notes)

    @property
    def histories(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    @property
    def problems(self) -> list[str]:
        """What went wrong that nobody had asked for, beside what the checker finds."""
        return [*self.troublemaker.problems, *self.clients.failures]

    def play(self, seconds: float, is_enough: Callable[[], bool] = lambda: True) -> None:
        """The whole run; troubles take so long, and longer until it is enough."""
        try:
            self._start()
            self.clients.wait_busy(QUIET_S)
            self._trouble(seconds, is_enough)
            self._come_to_the_end()
            self._read_back()
        except BaseException:
            self.clients.kill()
            raise
        finally:
            self.remaking.finish()
            self.server.close()
            self._written.close()

    def _start(self) -> None:
        self.troublemaker.begin_life()
        with BlockingClient(self.server.native_address) as client:
            for topic, count in PARTITIONS.items():
                BlockingAdmin(client).create_topic(topic, partitions=count, config=self.configurations[topic])
        self.remaking.start()
        protocol = self.troublemaker.rng.choice(("classic", "consumer"))
        for name, (family, roles) in self.processes.items():
            if family in self.commands:
                played = tuple({**role, "protocol": protocol} if role.get("group") == PIPES else role for role in roles)
                self.clients.start(family, self._task(name, played))

    def _task(self, name: str, roles: tuple[Role, ...]) -> Task:
        return Task(
            name=name,
            life=0,
            seed=self.seed,
            kafka=self.server.kafka,
            native=self.server.native,
            history=str(self.folder / f"{name}-0.jsonl"),
            rate=self.rate,
            topics=PARTITIONS,
            roles=roles,
        )

    def _trouble(self, seconds: float, is_enough: Callable[[], bool]) -> None:
        began = time.monotonic()
        self.troublemaker.begin()
        while (now := time.monotonic()) < began + seconds or (now < began + seconds + QUIET_S and not is_enough()):
            self.troublemaker.turn(with_server=now < began + self.quiet_server_after_s)
            self.clients.look()
            self.on_turn()
            time.sleep(TURN_S)

    def _come_to_the_end(self) -> None:
        """Feeders stop, then pipes and groups come to the end of what there is, then everybody leaves."""
        self.remaking.finish()
        self.troublemaker.calm()
        self.clients.look()
        self.clients.tell("quiet")
        if left := self.clients.wait_quiet(QUIET_S):
            self.troublemaker.problems.append(f"stuck: {', '.join(left)} still send after {QUIET_S:g} s")
        for group in (PIPES, *(group for group in GROUPS if group != PIPES)):
            self._wait_for(group)
        self.clients.end()

    def _wait_for(self, group: str) -> None:
        """Until a group has committed all that its members see."""
        topic, committed = GROUPS[group]
        topics = {topic: PARTITIONS[topic]}
        if not self.clients.have_group(group):
            return
        wanted = reading.ends(self.server.kafka, topics, committed=committed)
        moved_at, before = time.monotonic(), dict[TopicPartition, int]()
        while True:
            found = reading.committed_offsets(self.server.native_address, group, topics, self._notes)
            if all(found[where] >= end for where, end in wanted.items()):
                more = reading.ends(self.server.kafka, topics, committed=committed)  # a transaction may have ended meanwhile
                if more == wanted:
                    return
                wanted = more
            if found != before:
                moved_at, before = time.monotonic(), found
            if time.monotonic() > moved_at + QUIET_S:
                self.troublemaker.problems.append(f"stuck: group {group} is at {found}, there is {wanted}")
                return
            self.clients.look()
            time.sleep(LOOK_S)

    def _read_back(self) -> None:
        """By a server that was started anew, on a directory that was verified."""
        self.troublemaker.stop_server()
        verified = subprocess.run([*COMMAND, "verify", str(self.server.data_dir)], capture_output=True, text=True)
        if verified.returncode:
            self.troublemaker.problems.append(f"verify: {verified.stdout[-2000:]}{verified.stderr[-2000:]}")
        self.troublemaker.begin_life()
        self.troublemaker.problems += self.remaking.problems()
        reading.read_everything(self.server.kafka, self.server.native_address, PARTITIONS, self._notes)
        expired = time.time_ns() // 1_000_000 - RETENTION_MS
        for where in reading.partitions_of(PARTITIONS):
            if where.topic == "expiring":
                self._notes.write("expires", of=[*where], before=expired)
            elif where.topic == "compacted":
                self._notes.write("compacts", of=[*where])
        for group, (topic, _) in GROUPS.items():
            reading.committed_offsets(self.server.native_address, group, {topic: PARTITIONS[topic]}, self._notes)
        self.troublemaker.stop_server()
        if "Traceback" in (wrote := self.server.wrote()):
            self.troublemaker.problems.append(f"the server wrote: {wrote[wrote.index('Traceback') - 500 :][:4000]}")


def take_signals() -> None:
    """SIGTERM ends a run as Ctrl-C does: clients and server go with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


PAUSE_S: Final = 0.05
"""Between two requests, so that the other clients have the server."""
AWAY: Final = (ServerGoneError, RequestError, ConnectionError, EOFError, TimeoutError)
"""What the troubles of a run do to a request: it is asked for again."""


class Remaking(threading.Thread):
    """Works from `start` to `finish`, on one server after the other."""

    def __init__(self, address: Address, seed: str) -> None:
        super().__init__(name="remaking")
        self._address = address
        self._history = KillHistory()
        self._load = RecreatingLoad(
            name="remaking",
            rng=random.Random(f"{seed}/remaking"),
            history=self._history,
            where=TopicPartition("remade", 0),
            make=_made,
            max_records=4,
            share=0.3,
            config={"segment.bytes": "8192", "retention.ms": "-1"},
        )
        self._is_over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                with suppress(*AWAY):
                    self._work()
                self._is_over.wait(PAUSE_S)
        except BaseException as exc:
            self._error = exc

    def _work(self) -> None:
        with WireClient.connect(self._address, say_hello=False) as client:
            caller = Caller(client, Progress())
            caller.ask(messages.HelloRequest("remaking"))
            while not self._is_over.wait(PAUSE_S):
                self._load.step(caller)

    def finish(self) -> None:
        """No more requests from now on."""
        self._is_over.set()
        if self.ident is not None:
            self.join()

    def problems(self) -> list[str]:
        """What is wrong with the topic as it is; nothing troubles the server any more."""
        if self._error is not None:
            return [f"remaking: {self._error!r}"]
        try:
            with WireClient.connect(self._address) as client:
                self._load.read(client)
                self._load.settle(Caller(client, Progress()))
                self._load.read(client)
            self._history.check()
        except (AssertionError, *AWAY) as exc:
            return [f"remaking: {exc!r}"]
        return []


def _made(producer: str, rng: random.Random, number: int) -> Numbered:
    return Numbered(producer, number, OLD_MS + number, None, rng.randbytes(rng.randint(0, 100)))


PARTITIONS: Final = {"plain": 4, "copied": 4, "expiring": 2, "compacted": 2}
"""`plain` is fed, moved into and copied from; `copied` is what the pipes make of it; `expiring` and `compacted` are fed."""
RETENTION_MS: Final = 60_000
SEGMENTS: Final = {"segment.bytes": str(128 * 1024), "segment.index.bytes": "40960", "retention.ms": "-1"}
CONFIGURATIONS: Final[dict[str, dict[str, str]]] = {
    "plain": SEGMENTS,
    "copied": SEGMENTS,
    "expiring": {**SEGMENTS, "retention.ms": str(RETENTION_MS), "segment.ms": "20000", "file.delete.delay.ms": "1000"},
    "compacted": {
        **SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.ms": "20000",
        "file.delete.delay.ms": "1000",
    },
}
LARGE: Final = {"segment.bytes": str(64 * 1024 * 1024), "segment.index.bytes": str(1024 * 1024), "retention.ms": "-1"}
SOAK: Final[dict[str, dict[str, str]]] = {**CONFIGURATIONS, "plain": LARGE, "copied": LARGE}
"""For hours: each segment has descriptors and some memory, and where none is ever deleted there are to be few. Those of the
others come and go."""
PIPES: Final = "pipes"
"""The group of the exactly-once pipes."""

Role = dict[str, Any]
FEED: Final[Role] = {"role": "feed"}
LOOK: Final[Role] = {"role": "look"}


def member(group: str, protocol: str, topic: str, *, committed: bool) -> Role:
    return {"role": "member", "group": group, "protocol": protocol, "topic": topic, "committed": committed}


def mover(transactional_id: str) -> Role:
    return {"role": "move", "transactional_id": transactional_id}


def reader(group: str, *topics: str, committed: bool) -> Role:
    return {"role": "read", "group": group, "topics": topics, "committed": committed}


def pipe(transactional_id: str, protocol: str) -> Role:
    return {
        **member(PIPES, protocol, "plain", committed=True),
        "role": "pipe",
        "transactional_id": transactional_id,
        "target": "copied",
    }


CLASSIC: Final = member("classic", "classic", "plain", committed=False)
SERVED: Final = member("served", "consumer", "copied", committed=True)
"""Of a group whose assignments the server makes (KIP-848)."""

PROCESSES: Final[Mapping[str, tuple[str, tuple[Role, ...]]]] = {
    "confluent": ("confluent", (FEED, CLASSIC, SERVED, LOOK)),
    "pipe-0": ("confluent", (pipe("pipe-0", "classic"),)),
    "pipe-1": ("confluent", (pipe("pipe-1", "classic"),)),
    "franz-go": ("franz-go", (FEED, mover("franz-go"), CLASSIC, SERVED)),
    "java": ("java", (FEED, mover("java"), SERVED, LOOK)),
    "kafka-python": ("kafka-python", (FEED, CLASSIC, LOOK)),
    "aiokafka": ("aiokafka", (FEED, mover("aiokafka"), CLASSIC)),
    "native": ("native", (FEED, mover("native"), reader("native", "plain", "expiring", committed=False), LOOK)),
    "blocking": ("blocking", (FEED, mover("blocking"), reader("blocking", "compacted", "copied", committed=True))),
}
"""Name of each process, its family and its roles."""

GROUPS: Final = {
    "classic": ("plain", False),
    "served": ("copied", True),
    PIPES: ("plain", True),
    "native": ("plain", False),
    "blocking": ("copied", True),
}
"""Groups that have to come to the end of a topic, and whether they read what is committed only."""
