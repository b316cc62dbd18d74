"""A run: the server, its clients and what goes wrong, by a seed; then calm, everything read back, and the checker over all of it.

| part | does |
|---|---|
| `play` | starts all, lets things go wrong for so long |
| `_calm` | nothing goes wrong any more; feeders stop, pipes and groups come to the end of what there is |
| `_read_back` | the server is started anew, everything is read in both isolation levels, and the groups' offsets |
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from tests.support.server_process import COMMAND

from . import reading, troubles
from .clients.notes import Notebook, Notes
from .clients.worker import Task
from .layout import CONFIGURATIONS, GROUPS, PARTITIONS, PIPES, PROCESSES, RETENTION_MS
from .processes import ClientProcess, Clients
from .server import SoakServer

TURN_S: Final = 0.1
QUIET_S: Final = 150.0
"""How long feeders may take for what they have sent, and groups for what there is."""
CLIENT_SHARE: Final = {"kill": 3, "pause": 3, "zombie": 1, "wire": 4, "disk": 2}


@attrs.define(eq=False)
class Run:
    """Owner of everything. What it did stands in `driver.jsonl`, as what the clients did in files of theirs."""

    folder: Path
    seed: str
    commands: dict[str, Sequence[str]]
    pace: troubles.Pace
    rate: float = 60.0
    """Records a second of each feeder."""
    quiet_server_after_s: float = float("inf")
    """Since the start: the server is left alone from then on."""
    on_turn: Callable[[Run], None] = lambda run: None
    server: SoakServer = attrs.field(init=False)
    clients: Clients = attrs.field(init=False)
    notes: Notebook = attrs.field(init=False)
    rng: random.Random = attrs.field(init=False)
    counts: dict[str, int] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)
    durability: str = "os"
    _written: Notes = attrs.field(init=False)
    _endings: list[troubles.Ending] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with_control = self.pace is not troubles.SOAK
        self.server = SoakServer(self.folder, with_control)
        self.clients = Clients(self.folder, self.commands)
        self._written = Notes(str(self.folder / "driver.jsonl"))
        self.notes = Notebook(self._written, "driver")
        self.rng = random.Random(self.seed)

    @property
    def histories(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def play(self, seconds: float) -> None:
        """The whole run. What went wrong that should not stands in `problems`."""
        try:
            self._start()
            self._trouble(seconds)
            self._calm()
            self._read_back()
        except BaseException:
            self.clients.kill()
            raise
        finally:
            self.server.close()
            self._written.close()

    # ---- the beginning -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._begin_life()
        with BlockingClient(self.server.native_address) as client:
            for topic, count in PARTITIONS.items():
                BlockingAdmin(client).create_topic(topic, partitions=count, config=CONFIGURATIONS[topic])
        protocol = self.rng.choice(("classic", "consumer"))
        for name, (family, roles) in PROCESSES.items():
            if family not in self.commands:
                continue
            played = tuple({**role, "protocol": protocol} if role.get("group") == PIPES else role for role in roles)
            task = Task(
                name=name,
                life=0,
                seed=self.seed,
                kafka=self.server.kafka,
                native=self.server.native,
                history=str(self.folder / f"{name}-0.jsonl"),
                rate=self.rate,
                topics=PARTITIONS,
                roles=played,
            )
            self.clients.start(family, task)

    def _begin_life(self) -> None:
        self.durability = self.rng.choice(("os", "os", "fsync", "group:50"))
        self.server.start(self.durability)
        self._count("server starts", durability=self.durability, life=self.server.lives)

    # ---- what goes wrong -----------------------------------------------------------------------------------------------------

    def _trouble(self, seconds: float) -> None:
        began = time.monotonic()
        next_server = began + self.pace.first_s + troubles.a_time(self.rng, self.pace.server)
        next_other = began + self.pace.first_s + troubles.a_time(self.rng, self.pace.others)
        while (now := time.monotonic()) < began + seconds:
            self._end_what_is_over(now)
            if now >= next_server and now < began + self.quiet_server_after_s:
                self._trouble_server()
                next_server = time.monotonic() + troubles.a_time(self.rng, self.pace.server)
            if now >= next_other:
                self._trouble_others()
                next_other = time.monotonic() + troubles.a_time(self.rng, self.pace.others)
            self.clients.look()
            self._look_at_server()
            self.on_turn(self)
            time.sleep(TURN_S)

    def _end_what_is_over(self, now: float) -> None:
        for ending in [each for each in self._endings if each[0] <= now]:
            self._endings.remove(ending)
            ending[1]()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._endings.append((time.monotonic() + seconds, what))

    def _look_at_server(self) -> None:
        if self.server.process.process.poll() is not None:
            self.problems.append(f"the server ended by itself with {self.server.process.process.returncode}")
            self._begin_life()

    def _trouble_server(self) -> None:
        kinds = {"kill": 6, "kill twice": 1, "stop": 2, "pause": 2}
        match self.rng.choices(list(kinds), list(kinds.values()))[0]:
            case "pause":
                lasts_s = self.rng.uniform(0.2, 10)
                self._count("server pauses", seconds=lasts_s)
                self.server.pause()
                time.sleep(lasts_s)
                self.server.go_on()
                return
            case "stop":
                self._count("server stops")
                if (code := self.server.stop()) != 0:
                    self.problems.append(f"an orderly stop ended with {code}")
            case "kill":
                self._kill_server()
            case "kill twice":
                self._kill_server()
                self.server.spawn(self.durability)
                self.server.wait_locked()
                time.sleep(self.rng.uniform(0, 0.3))
                self._kill_server()
        time.sleep(self.rng.choice((0, 0, 0.5, 4)))
        self._begin_life()

    def _kill_server(self) -> None:
        self._count("server kills")
        self.server.kill()

    def _trouble_others(self) -> None:
        share = {kind: weight for kind, weight in CLIENT_SHARE.items() if self.server.with_control or kind not in ("wire", "disk")}
        match self.rng.choices(list(share), list(share.values()))[0]:
            case "kill":
                self._kill_client(self.clients.one(self.rng))
            case "pause":
                client = self.clients.one(self.rng)
                self._count("client pauses", of=client.task.name)
                client.pause()
                self._after(self.rng.uniform(0.5, 15), client.go_on)
            case "zombie":
                self._make_zombie()
            case "wire":
                rule = troubles.a_wire_fault(self.rng)
                if self.server.add_fault(rule):
                    self._count("wire faults", rule=rule)
                    self._after(self.rng.uniform(1, 8), self.server.clear_faults)
            case "disk":
                self._trouble_disk()

    def _kill_client(self, client: ClientProcess) -> None:
        name = client.task.name
        self._count("client kills", of=name)
        client.go_on()
        client.kill()
        self.clients.start_again(name)

    def _make_zombie(self) -> None:
        """A client that is stopped and goes on when another one has taken its place, transactional ids and all."""
        client = self.clients.one(self.rng)
        self._count("zombies", of=client.task.name)
        client.pause()
        client.was_killed = True
        self.clients.start_again(client.task.name)
        self._after(self.rng.uniform(3, 12), client.go_on)
        self._after(self.rng.uniform(13, 20), client.kill)

    def _trouble_disk(self) -> None:
        rule, needs_restart = troubles.a_disk_fault(self.rng)
        if not self.server.add_fault(rule, of_disk=True):
            return
        self._count("disk faults", rule=rule)
        lasts_s = self.rng.uniform(1, 6)
        self._after(lasts_s, self.server.clear_faults)
        if needs_restart:
            self._after(lasts_s + self.rng.uniform(0, 2), self._restart_after_fault)

    def _restart_after_fault(self) -> None:
        """Logs that went offline are there again."""
        self._kill_server()
        self._begin_life()

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        self.notes.write("calm")
        for _, end in self._endings:
            end()
        self._endings.clear()
        if self.server.with_control:
            self.server.clear_faults()
            self._kill_server()
            self._begin_life()
        self.clients.look()
        for client in self.clients.all():
            client.go_on()
            client.tell("quiet")
        if left := self.clients.wait_quiet(QUIET_S):
            self.problems.append(f"stuck: {', '.join(left)} still send after {QUIET_S:g} s")
        pipes = self._wait_for(PIPES)
        others = [self._wait_for(group) for group in GROUPS if group != PIPES]
        self.notes.write("came to the end", all=pipes and all(others))
        self.clients.end()
        self.problems += self.clients.failures

    def _wait_for(self, group: str) -> bool:
        """Until a group has committed all that its members see."""
        topic, committed = GROUPS[group]
        topics = {topic: PARTITIONS[topic]}
        if not any(role.get("group") == group for client in self.clients.running.values() for role in client.task.roles):
            return True
        deadline = time.monotonic() + QUIET_S
        while True:
            wanted = reading.last_records(self.server.kafka, topics, committed=committed)
            found = reading.committed_offsets(self.server.native_address, group, topics, self.notes)
            if all(found[where] >= end for where, end in wanted.items()):
                return True
            if time.monotonic() > deadline:
                self.problems.append(f"stuck: group {group} is at {found}, there is {wanted}")
                return False
            self.clients.look()
            time.sleep(2)

    def _read_back(self) -> None:
        """Twice: what a server reads that goes on, and one that was started anew after an orderly stop."""
        if (code := self.server.stop()) != 0:
            self.problems.append(f"an orderly stop ended with {code}")
        verified = subprocess.run([*COMMAND, "verify", str(self.server.data_dir)], capture_output=True, text=True)
        if verified.returncode:
            self.problems.append(f"verify: {verified.stdout[-2000:]}{verified.stderr[-2000:]}")
        self._begin_life()
        for topic, count in PARTITIONS.items():
            for number in range(count):
                if topic == "expiring":
                    before = time.time_ns() // 1_000_000 - RETENTION_MS
                    self.notes.write("expires", of=[topic, number], before=before)
                if topic == "compacted":
                    self.notes.write("compacts", of=[topic, number])
        reading.read_everything(self.server.kafka, self.server.native_address, PARTITIONS, self.notes)
        for group, (topic, _) in GROUPS.items():
            reading.committed_offsets(self.server.native_address, group, {topic: PARTITIONS[topic]}, self.notes)
        if (code := self.server.stop()) != 0:
            self.problems.append(f"an orderly stop ended with {code}")
        if "Traceback" in (wrote := self.server.wrote()):
            self.problems.append(f"the server wrote: {wrote[wrote.index('Traceback') - 500 :][:4000]}")

    def _count(self, what: str, **told: object) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.notes.write(what, **told)


def take_signals() -> None:
    """SIGTERM ends a run as Ctrl-C does: clients and server go with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
