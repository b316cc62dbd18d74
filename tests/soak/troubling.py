"""What goes wrong in a run: kills and pauses of the server and its clients, faults of requests and of the disk, zombies.

All of it comes from the seed, but for the moment to the microsecond.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from tests.soak.clients.worker import Notebook
from tests.soak.processes import ClientProcess, Clients
from tests.soak.server import STARTS_WITHIN_S, SoakServer

TO_SERVER: Final = {"kill": 6, "kill twice": 1, "stop": 2, "pause": 2}
TO_OTHERS: Final = {"kill": 3, "pause": 3, "zombie": 1, "wire": 4, "disk": 2}
"""How often which."""
DURABILITIES: Final = ("os", "os", "fsync", "group:50")
"""Of a life; a killed process loses nothing with any of them."""

Ending = tuple[float, Callable[[], None]]
"""When something that goes wrong is over, in monotonic seconds, and what ends it."""


@attrs.define(eq=False)
class Troublemaker:
    """Owner of what is wrong at present, and of the choices of a seed."""

    rng: random.Random
    pace: Pace
    server: SoakServer
    clients: Clients
    notes: Notebook
    counts: dict[str, int] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)
    """What went wrong that nobody had asked for."""
    _durability: str = "os"
    _endings: list[Ending] = attrs.field(factory=list)
    _next_server: float = 0.0
    _next_other: float = 0.0

    def begin(self) -> None:
        """The time until the first trouble counts from now."""
        first = time.monotonic() + self.pace.first_s
        self._next_server = first + a_time(self.rng, self.pace.server)
        self._next_other = first + a_time(self.rng, self.pace.others)

    def turn(self, *, with_server: bool) -> None:
        """End what is over, begin what is due."""
        now = time.monotonic()
        for ending in [each for each in self._endings if each[0] <= now]:
            self._endings.remove(ending)
            ending[1]()
        if with_server and now >= self._next_server:
            self._trouble_server()
            self._next_server = time.monotonic() + a_time(self.rng, self.pace.server)
        if now >= self._next_other:
            self._trouble_others()
            self._next_other = time.monotonic() + a_time(self.rng, self.pace.others)
        if (code := self.server.process.process.poll()) is not None:
            self.problems.append(f"the server ended by itself with {code}")
            self.begin_life()

    def calm(self) -> None:
        """Nothing goes wrong any more; logs that went offline are there again."""
        self.notes.write("calm")
        for _, end in self._endings:
            end()
        self._endings.clear()
        if self.pace.with_control:
            self.server.clear_faults()
            self._kill_server()
            self.begin_life()

    def begin_life(self) -> None:
        """Start the server, with another durability perhaps."""
        self._durability = self.rng.choice(DURABILITIES)
        self.server.start(self._durability)
        self._count("server starts", durability=self._durability, life=self.server.lives)

    def stop_server(self) -> None:
        if (code := self.server.process.stop()) != 0:
            self.problems.append(f"an orderly stop ended with {code}")

    def _trouble_server(self) -> None:
        match self.rng.choices(list(TO_SERVER), list(TO_SERVER.values()))[0]:
            case "pause":
                lasts_s = self.rng.uniform(0.2, 10)
                self._count("server pauses", seconds=lasts_s)
                self.server.pause()
                time.sleep(lasts_s)
                self.server.go_on()
                return
            case "stop":
                self._count("server stops")
                self.stop_server()
            case "kill":
                self._kill_server()
            case "kill twice":
                self._kill_server()
                self.server.spawn(self._durability)
                self.server.process.wait_locked(self.server.data_dir, STARTS_WITHIN_S)
                time.sleep(self.rng.uniform(0, 0.3))
                self._kill_server()
        time.sleep(self.rng.choice((0, 0, 0.5, 4)))
        self.begin_life()

    def _kill_server(self) -> None:
        self._count("server kills")
        self.server.process.kill()

    def _trouble_others(self) -> None:
        possible = {what: share for what, share in TO_OTHERS.items() if self.pace.with_control or what not in ("wire", "disk")}
        match self.rng.choices(list(possible), list(possible.values()))[0]:
            case "kill":
                self._kill_client(self.clients.one(self.rng))
            case "pause":
                client = self.clients.one(self.rng)
                self._count("client pauses", of=client.task.name)
                client.pause()
                self._after(self.rng.uniform(0.5, 15), client.go_on)
            case "zombie":
                self._make_zombie(self.clients.one(self.rng))
            case "wire":
                rule = a_wire_fault(self.rng)
                if self.server.add_fault(rule):
                    self._count("wire faults", rule=rule)
                    self._after(self.rng.uniform(1, 8), self.server.clear_faults)
            case "disk":
                self._trouble_disk()

    def _kill_client(self, client: ClientProcess) -> None:
        self._count("client kills", of=client.task.name)
        client.go_on()
        client.kill()
        self.clients.start_again(client.task.name)

    def _make_zombie(self, client: ClientProcess) -> None:
        """A client that is stopped, and goes on when another one has taken its place, transactional ids and all."""
        self._count("zombies", of=client.task.name)
        client.pause()
        client.was_killed = True
        self.clients.start_again(client.task.name)
        self._after(self.rng.uniform(3, 12), client.go_on)
        self._after(self.rng.uniform(13, 20), client.kill)

    def _trouble_disk(self) -> None:
        rule, needs_restart = a_disk_fault(self.rng)
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
        self.begin_life()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._endings.append((time.monotonic() + seconds, what))

    def _count(self, what: str, **told: object) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.notes.write(what, **told)


GROUP_APIS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat")
TRANSACTION_APIS: Final = ("InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn")
BUSY: Final = ("Produce", "Fetch", "Metadata", "ListOffsets", *GROUP_APIS, *TRANSACTION_APIS)


@attrs.frozen(kw_only=True)
class Pace:
    """Seconds between troubles, from and to. None: there are none."""

    server: tuple[float, float] | None
    others: tuple[float, float] | None
    first_s: float = 8.0
    """Nothing goes wrong before."""
    with_control: bool = True
    """Whether requests and the disk go wrong, too: with a server that has its door for tests open."""


HISTORIES: Final = Pace(server=(10.0, 40.0), others=(3.0, 12.0))
SOAK: Final = Pace(server=(600.0, 1200.0), others=(60.0, 180.0), first_s=300.0, with_control=False)


def a_wire_fault(rng: random.Random) -> dict[str, Any]:
    """A rule for the requests of Kafka clients, all of which they have to live with."""
    rule: dict[str, Any] = {"probability": rng.choice((0.05, 0.2, 0.5)), "seed": rng.randrange(1 << 30)}
    rule["times"] = rng.randint(1, 12)
    match rng.choice(("error", "error", "disconnect", "disconnect", "delay", "truncate", "throttle")):
        case "error":
            api = rng.choice(("Produce", "Fetch", *GROUP_APIS, *TRANSACTION_APIS))
            rule |= {"api": api, "error": _error_of(api, rng)}
            if api in ("Produce", "OffsetCommit", "TxnOffsetCommit", "EndTxn") and rng.random() < 0.5:
                rule["applied"] = True
        case "disconnect":
            rule |= {"api": rng.choice(BUSY), "disconnect": True, "applied": rng.random() < 0.5}
        case "delay":
            rule |= {"api": rng.choice(BUSY), "delay_ms": rng.randint(20, 1500)}
        case "truncate":
            rule |= {"api": rng.choice(BUSY), "truncate_to": rng.randint(0, 60), "applied": rng.random() < 0.5}
        case "throttle":
            rule |= {"api": rng.choice(("Produce", "Fetch")), "throttle_ms": rng.randint(50, 800)}
    return rule


def _error_of(api: str, rng: random.Random) -> str:
    if api in ("Produce", "Fetch"):
        return rng.choice(("NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"))
    if api in ("Heartbeat", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"):
        return rng.choice(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
    return rng.choice(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"))


def a_disk_fault(rng: random.Random) -> tuple[dict[str, Any], bool]:
    """A rule for the device, and whether logs stay offline after it, until a restart."""
    path = rng.choice(("*plain-*", "*copied-*", "*__consumer_offsets-*", "*__transaction_state-*", "*"))
    rule: dict[str, Any] = {"path": f"{path}/*.log", "probability": rng.choice((0.1, 0.5)), "seed": rng.randrange(1 << 30)}
    match rng.choice(("delay", "delay", "full", "write", "sync", "read")):
        case "delay":
            slow = {"operation": rng.choice(("write", "sync")), "delay_ms": rng.randint(20, 800)}
            return {**rule, "effect": "delay", **slow}, False
        case "full":
            return {**rule, "effect": "full", "times": rng.randint(1, 20)}, True
        case operation:
            return {**rule, "effect": "error", "operation": operation, "times": rng.randint(1, 5)}, True


def a_time(rng: random.Random, between: tuple[float, float] | None) -> float:
    return float("inf") if between is None else rng.uniform(*between)
