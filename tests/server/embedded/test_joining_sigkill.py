"""SIGKILL of the owner of a directory that three processes share, again and again. Each process appends, with and without
transactions, and reports what was acknowledged; after the kills that is compared with what is stored."""

from __future__ import annotations

import contextlib
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import triolog

from tests.support import kill_runs
from tests.support.counts import counts
from tests.support.server_process import DEADLINE_S, environment

WORKER: Final = """
import pathlib, sys
import triolog

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
log = triolog.blocking.open_or_join(folder / "d", topics={"orders": 2, "bills": 1})
number = 0
while not (folder / "stop").exists():
    number += 1
    value = b"%s-%d" % (name.encode(), number)
    if number % 3:
        said = "appended", number % 2, log.append("orders", [value], partition=number % 2).base_offset
    else:
        transaction = log.transaction(name)
        transaction.begin()
        transaction.append("orders", [value], partition=number % 2)
        transaction.append("bills", [value])
        if number % 2:
            transaction.commit()
        else:
            transaction.abort()
        said = ("committed" if number % 2 else "aborted", 0, 0)
    print(value.decode(), *said, flush=True)
log.stop()
"""


@attrs.frozen
class Acknowledged:
    """A line of a worker."""

    value: bytes
    call: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, line: str) -> Acknowledged:
        value, call, partition, offset = line.split()
        return cls(value.encode(), call, int(partition), int(offset))


@attrs.define(eq=False)
class Workers:
    """Owner: the test. Each worker has a thread that reads its lines."""

    folder: Path
    lines: queue.Queue[str] = attrs.field(factory=queue.Queue)
    names: list[str] = attrs.field(factory=list)
    running: dict[int, tuple[subprocess.Popen[str], threading.Thread]] = attrs.field(factory=dict)

    def start(self) -> None:
        name = f"w{len(self.names)}"
        self.names.append(name)
        command = [sys.executable, "-c", WORKER, str(self.folder), name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        reader = threading.Thread(target=self._read, args=(process,))
        reader.start()
        self.running[process.pid] = process, reader

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                self.lines.put(line)

    def kill_owner(self) -> bool:
        """False: no worker owns the directory at this moment."""
        owner = (self.folder / "d" / ".lock").read_text().rpartition(" ")[2]
        if not owner.strip().isdigit() or int(owner) not in self.running:
            return False
        self._ended(int(owner), signal.SIGKILL)
        return True

    def _ended(self, pid: int, by: signal.Signals | None = None) -> int:
        process, reader = self.running.pop(pid)
        if by is not None:
            process.send_signal(by)
        with process:
            status = process.wait(DEADLINE_S)
        reader.join()
        return status

    def stop(self) -> list[int]:
        (self.folder / "stop").touch()
        return [self._ended(pid) for pid in list(self.running)]

    def kill_all(self) -> None:
        for pid in list(self.running):
            self._ended(pid, signal.SIGKILL)


@contextlib.contextmanager
def workers(folder: Path) -> Iterator[Workers]:
    found = Workers(folder)
    try:
        yield found
    finally:
        found.kill_all()


@pytest.mark.merge
def test_no_acknowledged_record_is_lost_or_doubled_when_owners_are_killed() -> None:
    with kill_runs.choices(0) as chosen, tempfile.TemporaryDirectory(prefix="triolog-", dir="/tmp") as folder:
        with workers(Path(folder)) as running:
            acknowledged = kill_owners(running, chosen, counts(60, merge=5))
            assert running.stop() == [0, 0, 0]
            while not running.lines.empty():
                acknowledged.append(Acknowledged.parse(running.lines.get()))
        compare(Path(folder), acknowledged, running.names)


def kill_owners(running: Workers, chosen: random.Random, kills: int) -> list[Acknowledged]:
    """Each after some acknowledgements; return all of them."""
    acknowledged = []
    for _ in range(3):
        running.start()
    for _ in range(kills):
        left = chosen.randrange(1, 60)
        is_killed = False
        while left > 0 or not is_killed:
            acknowledged.append(Acknowledged.parse(running.lines.get(timeout=DEADLINE_S)))
            left -= 1
            is_killed = left <= 0 and running.kill_owner()
        running.start()
    return acknowledged


def compare(folder: Path, acknowledged: list[Acknowledged], names: list[str]) -> None:
    stored: dict[str, Any] = defaultdict(list)
    with triolog.blocking.open_or_join(folder / "d") as log:
        for name in names:  # ends the transactions of killed processes
            transaction = log.transaction(name)
            transaction.begin()
            transaction.abort()
        for record in log.follow(["orders", "bills"], max_wait_s=0):
            stored[record.topic].append(record)
    places = {(each.partition, each.offset): each.value for each in stored["orders"]}
    orders, bills = ([each.value for each in stored[topic]] for topic in ("orders", "bills"))
    assert [value for value, count in Counter(orders).items() if count > 1] == []
    assert [value for value, count in Counter(bills).items() if count > 1] == []
    for each in acknowledged:
        if each.call == "appended":
            assert places[each.partition, each.offset] == each.value
        else:
            assert (each.value in orders, each.value in bills) == (each.call == "committed",) * 2
    numbers = [(value, int(value.partition(b"-")[2])) for value in orders]
    assert {value for value, number in numbers if number % 3 == 0} == set(bills)
    assert [value for value, number in numbers if number % 6 == 0] == []
    order: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for record in stored["orders"]:
        name, _, number = record.value.partition(b"-")
        order[name, record.partition].append(int(number))
    assert [each for each in order.values() if each != sorted(each)] == []
    assert len({each.call for each in acknowledged}) == 3
