"""What every Python client has: what it was told to do, its notes, records to send at a pace, and when to end.

A process gets one argument, a `Task` in JSON. On standard input it is told `quiet` (send nothing more) and `over` (end). The
end of the input means that its driver is gone: it ends at once, so that nobody outlives the run.

Notes are lines of JSON, in a file of the process, which `tests.simulation.loading` reads. A line is written by one system call
before the client goes on, so it outlives a SIGKILL of the process; what a call was to do is noted before it is made, what came
of it after. `at` is CLOCK_MONOTONIC in ns, which all processes of a machine share: it puts the lines of several files in order.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from tests.simulation.copies import copy_id

MOST_PENDING: Final = 400
"""Records of one producer that are not acknowledged: it sends nothing more until some are."""
PATIENCE_S: Final = 240.0
"""How long anything is tried again while the server is killed and its disk fails."""
POLL_S: Final = 0.2
MOST_PADDING: Final = 300
SESSION_MS: Final = 8000
"""Of groups: a killed member is missed after this."""
TRANSACTION_MS: Final = 15_000
"""After which the server aborts what a killed producer has left open."""

Partition = tuple[str, int]


class Record(NamedTuple):
    """One to send. `key` is empty outside of compacted topics."""

    id: str
    timestamp: int
    key: str
    value: bytes

    @property
    def noted(self) -> tuple[str, int] | tuple[str, int, str]:
        return (self.id, self.timestamp, self.key) if self.key else (self.id, self.timestamp)


@attrs.frozen(kw_only=True)
class Task:
    """What one process is to do. `roles`: each a mapping with `role`, its kind, and what that needs."""

    name: str
    life: int
    seed: str
    kafka: str
    native: str
    history: str
    rate: float
    """Records a second of each feeder, of each mover half as many."""
    topics: Mapping[str, int]
    """Partitions."""
    roles: tuple[Mapping[str, Any], ...]

    @classmethod
    def from_json(cls, text: str) -> Task:
        told = json.loads(text)
        return cls(**{**told, "roles": tuple(told["roles"])})

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @property
    def native_address(self) -> tuple[str, int]:
        host, _, port = self.native.rpartition(":")
        return host, int(port)


class Orders:
    """What the driver says on standard input."""

    def __init__(self) -> None:
        self._quiet, self._over = threading.Event(), threading.Event()

    @property
    def is_quiet(self) -> bool:
        return self._quiet.is_set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def listen(self) -> None:
        """Until it is over."""
        for line in sys.stdin:
            if line.strip() == "quiet":
                self._quiet.set()
            elif line.strip() == "over":
                self._quiet.set()
                self._over.set()
                return
        os._exit(1)

    def pause(self, seconds: float) -> None:
        """Or less, when nothing more is to be sent."""
        self._quiet.wait(seconds)


@attrs.define(eq=False)
class Work:
    """One role of a process: who notes what, and what is left to chance."""

    task: Task
    role: Mapping[str, Any]
    orders: Orders
    notes: Notebook
    rng: random.Random
    _sent: int = 0
    _transactions: int = 0
    _producers: int = 0

    def producer_name(self) -> str:
        """Of a new producer: who keeps an order of its own."""
        self._producers += 1
        return f"{self.notes.who}/{self._producers}"

    def transaction_name(self) -> str:
        self._transactions += 1
        return f"{self.notes.who} transaction {self._transactions}"

    def pause_after(self, count: int, share: float = 1.0) -> float:
        """Seconds until the next records are due."""
        return min(5.0, self.rng.expovariate(1.0) * count / (self.task.rate * share))

    def records(self, count: int, *, keyed: bool = False) -> list[Record]:
        return [self._record(keyed=keyed) for _ in range(count)]

    def _record(self, *, keyed: bool) -> Record:
        identity = f"{self.notes.who}:{self._sent}"
        self._sent += 1
        key = f"key-{self.rng.randrange(40)}" if keyed else ""
        return Record(identity, self.a_timestamp(), key, padded(identity, self.rng))

    def a_timestamp(self) -> int:
        """Now, or somewhat earlier."""
        return time.time_ns() // 1_000_000 - (self.rng.randrange(3000) if self.rng.random() < 0.3 else 0)

    def a_partition(self, topic: str) -> Partition:
        return topic, self.rng.randrange(self.task.topics[topic])

    def to_feed(self) -> tuple[Partition, list[Record]]:
        """Where the next records of a feeder go, and which."""
        topic = self.rng.choices(("plain", "expiring", "compacted"), (6, 2, 2))[0]
        return self.a_partition(topic), self.records(self.rng.choice((1, 1, 2, 5)), keyed=topic == "compacted")

    def to_move(self) -> list[tuple[Partition, list[Record]]]:
        """What the next transaction of a mover writes."""
        parts = self.rng.randint(1, 3)
        return [(self.a_partition("plain"), self.records(self.rng.randint(1, 3))) for _ in range(parts)]

    def to_look_up(self) -> tuple[Partition, int]:
        """A partition, and a time to look for there."""
        where = self.a_partition(self.rng.choice(("plain", "copied")))
        return where, time.time_ns() // 1_000_000 - self.rng.choice((0, 500, 5000, 60_000, 600_000))

    def look(self, ask: Callable[[Partition, int], tuple[int, int | None] | None]) -> None:
        """Look up by time until nothing more is to be sent. `ask` answers offset and timestamp, None for no answer."""
        while not self.orders.is_quiet:
            where, timestamp = self.to_look_up()
            begun = time.monotonic_ns()
            found = ask(where, timestamp)
            if found is not None:
                self.notes.looked_up(where, timestamp, begun, *found)
            self.orders.pause(POLL_S if found is None else self.rng.uniform(0, 2))

    def take(self, batches: Mapping[Partition, list[tuple[int, str, int]]]) -> dict[Partition, int]:
        """Note what a member of a group has read, by partition: offset, id and timestamp; answers what it commits then."""
        group = str(self.role["group"])
        for where, found in batches.items():
            self.notes.polled(where, found, committed=bool(self.role["committed"]), group=group)
        offsets = {where: found[-1][0] + 1 for where, found in batches.items()}
        self.notes.commits(group, offsets)
        return offsets

    def committed(self, offsets: Mapping[Partition, int], is_kept: bool | None) -> None:
        for where, offset in offsets.items():
            self.notes.offset_committed(str(self.role["group"]), where, offset, is_kept)

    def copy_of(self, original: str, transaction: str) -> Record:
        identity = copy_id(original, transaction)
        return Record(identity, self.a_timestamp(), "", padded(identity, self.rng))

    def keep_trying(self) -> Iterator[None]:
        """Turns of something that may fail for as long as a server may be away."""
        deadline = time.monotonic() + PATIENCE_S
        yield
        while time.monotonic() < deadline and not self.orders.is_over:
            time.sleep(POLL_S)
            yield


def padded(identity: str, rng: random.Random) -> bytes:
    """A value: whose it is, and bytes to fill segments with."""
    return identity.encode() + b"\n" + rng.randbytes(rng.randrange(MOST_PADDING // 2)).hex().encode()


def id_of(value: bytes | None) -> str:
    return bytes(value or b"").partition(b"\n")[0].decode()


def found_in(batches: Mapping[Any, Sequence[Any]]) -> dict[Partition, list[tuple[int, str, int]]]:
    """(offset, id, timestamp) of each partition, as two of the clients give records."""
    return {
        (where.topic, where.partition): [(each.offset, id_of(each.value), each.timestamp) for each in batch]
        for where, batch in batches.items()
    }


def by_partition(found: Iterable[tuple[Partition, tuple[int, str, int]]]) -> dict[Partition, list[tuple[int, str, int]]]:
    """(offset, id, timestamp) of each partition."""
    records: dict[Partition, list[tuple[int, str, int]]] = {}
    for where, record in found:
        records.setdefault(where, []).append(record)
    return records


Part = Callable[[Work], None]


def run(parts: Mapping[str, Part]) -> None:
    """The main function of a client process: its roles in threads, until it is told that all is over.

    A role that ends with an error ends the process with exit code 1, and says so on standard error.
    """
    logging.basicConfig(level=logging.CRITICAL)
    task, orders = Task.from_json(sys.argv[1]), Orders()
    notes = Notes(task.history)
    threads = []
    for number, role in enumerate(task.roles):
        who = f"{task.name}/{task.life}/{role['role']}{number}"
        work = Work(task, role, orders, Notebook(notes, who), random.Random(f"{task.seed}/{who}"))
        threads.append(threading.Thread(target=_play, args=(parts[role["role"]], work), name=who))
    listener = threading.Thread(target=orders.listen, daemon=True)
    listener.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes.close()
    os._exit(0)  # what a client still tries in threads of its own is nobody's concern


def _play(part: Part, work: Work) -> None:
    try:
        work.notes.write("begins")
        part(work)
        work.notes.write("is done")
    except BaseException:
        work.notes.write("failed", error=traceback.format_exc())
        sys.stderr.write(f"{work.notes.who}\n{traceback.format_exc()}\n")
        sys.stderr.flush()
        os._exit(1)


class Notes:
    """The file of a process. Its threads share it."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()

    def write(self, who: str, do: str, **told: Any) -> None:
        """Note something now; the lines of a file ascend by time."""
        with self._lock:
            line = {"at": time.monotonic_ns(), "who": who, "do": do, **told}
            os.write(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Notebook:
    """What one part of a process notes, under its name. Partitions are (topic, number)."""

    def __init__(self, notes: Notes, who: str) -> None:
        self._notes = notes
        self.who = who

    def write(self, do: str, **told: Any) -> None:
        self._notes.write(self.who, do, **told)

    def sends(self, where: tuple[str, int], producer: str, records: Sequence[Sequence[Any]], transaction: str = "") -> None:
        """`records`: (id, timestamp) or (id, timestamp, key), in the order in which they leave."""
        self.write("sends", to=where, producer=producer, records=records, transaction=transaction)

    def acknowledged(self, where: tuple[str, int], ids: Sequence[str], base_offset: int) -> None:
        self.write("acknowledged", to=where, ids=ids, offset=base_offset)

    def given_up(self, ids: Sequence[str], error: str) -> None:
        """Nobody knows whether they are there."""
        self.write("given up", ids=ids, error=error)

    def introduces(self, transactional_id: str, producer: str) -> None:
        self.write("introduces", transactional_id=transactional_id, producer=producer)

    def introduced(self, transactional_id: str, producer: str) -> None:
        self.write("introduced", transactional_id=transactional_id, producer=producer)

    def ends(self, transaction: str, *, commit: bool) -> None:
        """It is about to be ended: one that never comes here with `commit` is committed by nobody."""
        self.write("ends", transaction=transaction, commit=commit)

    def ended(self, transaction: str, is_committed: bool | None) -> None:
        self.write("ended", transaction=transaction, committed=is_committed)

    def moved(self, where: tuple[str, int], position: int | None) -> None:
        """Reading goes on there; None: wherever the next record is."""
        self.write("moved", of=where, position=position)

    def polled(
        self,
        where: tuple[str, int],
        records: Sequence[tuple[int, str, int]],
        *,
        committed: bool,
        group: str = "",
        transaction: str = "",
        next_position: int | None = None,
    ) -> None:
        """`records`: (offset, id, timestamp). `next_position` None: behind the last of them."""
        told = {"committed": committed, "group": group, "transaction": transaction, "next": next_position}
        self.write("polled", of=where, records=records, **told)

    def commits(self, group: str, offsets: dict[tuple[str, int], int], transaction: str = "") -> None:
        for where, offset in offsets.items():
            self.write("commits", group=group, of=where, offset=offset, transaction=transaction)

    def offset_committed(self, group: str, where: tuple[str, int], offset: int, is_kept: bool | None) -> None:
        self.write("offset committed", group=group, of=where, offset=offset, kept=is_kept)

    def offset_fetched(self, group: str, where: tuple[str, int], offset: int, begun: int) -> None:
        """`begun`: when it was asked, in ns."""
        self.write("offset fetched", group=group, of=where, offset=offset, begun=begun)

    def looked_up(self, where: tuple[str, int], timestamp: int, begun: int, offset: int, found_timestamp: int | None) -> None:
        """`found_timestamp` None: the client does not say."""
        self.write("looked up", of=where, timestamp=timestamp, begun=begun, offset=offset, found=found_timestamp)
